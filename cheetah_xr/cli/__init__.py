"""The command line: thin, one function per command, which imports what it needs: ``--help`` waits for nothing else."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._version import __version__
from ..errors import SpecError
from .calibration_commands import calibrate, validate
from .console import errors, out
from .quick_start import quick_start

if TYPE_CHECKING:
    from ..specs import Options
    from ..sweep.runner import Job, Workers

app = typer.Typer(
    name="cheetah-xr",
    help="Design-space engine for LLM inference performance.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


ModelName = Annotated[str, typer.Option(help="Catalogue name, YAML file or Hugging Face config.json.")]
GpuName = Annotated[str, typer.Option(help="Catalogue name or YAML file.")]
PrecisionName = Annotated[
    str | None, typer.Option(help="Catalogue name or YAML file; default that of the published checkpoint.")
]
EfficiencyName = Annotated[str, typer.Option(help="Catalogue name or YAML file; ideal is the speed ceiling.")]
TpDegree = Annotated[int, typer.Option(help="Tensor-parallel degree.")]
DpDegree = Annotated[int, typer.Option(help="Data-parallel degree of attention.")]
EpDegree = Annotated[int, typer.Option(help="Expert-parallel degree.")]
OptionPairs = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="Accounting option NAME=VALUE; repeat for more.")
]


class Kind(StrEnum):
    """What `list` can list."""

    models = "models"
    gpus = "gpus"
    precisions = "precisions"
    efficiencies = "efficiencies"
    sweeps = "sweeps"


class Phase(StrEnum):
    """Phases of inference."""

    prefill = "prefill"
    decode = "decode"


class Prefill(StrEnum):
    """Whether forward passes mix prefill and decode."""

    mixed = "mixed"
    separate = "separate"


class Lengths(StrEnum):
    """Lengths of requests."""

    random = "random"
    fixed = "fixed"


def _version(value: bool) -> None:
    if value:
        out.print(f"cheetah-xr {__version__}")
        raise typer.Exit


@app.callback()
def common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is being done.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")] = False,
) -> None:
    """Options of every command."""
    if verbose:
        from rich.logging import RichHandler

        logger = logging.getLogger("cheetah_xr")
        logger.setLevel(logging.INFO)
        logger.addHandler(RichHandler(console=errors, show_path=False))


@app.command()
def sweep(
    files: Annotated[list[str], typer.Argument(help="Sweep files, or names of shipped sweeps.", metavar="FILE...")],
    store: Annotated[
        str | None, typer.Option(help="Folder of the result, or a URL (s3://...); default outputs/NAME.zarr.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Compute the missing blocks of an existing store.")
    ] = True,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing store.")] = False,
    workers: Annotated[int | None, typer.Option(help="Threads or processes; default one per core.", min=1)] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Work in processes instead of threads.")] = False,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run on.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show points, blocks, bytes and specs; run nothing.")
    ] = False,
) -> None:
    """Run sweeps into Zarr stores and summarize the results.

    Example: `cheetah-xr sweep sweeps/qwen3-32b-h100.yaml`
    """
    from ..sweep.runner import Workers, make_job, remaining_progress
    from .sweep_summary import render_job, summarize

    if store is not None and len(files) > 1:
        raise SpecError("--store names one folder; give one sweep file with it")
    if scheduler is not None and (workers is not None or processes):
        raise SpecError("--workers and --processes are for this machine; a --scheduler has its own workers")
    for job in [make_job(file, store) for file in files]:
        grid = job.grid
        axes = " x ".join(f"{dim} {grid.sizes[dim]}" for dim in grid.dims) or "one point"
        errors.print(f"{job.sweep.name}: {axes}", highlight=False, markup=False)
        blocks = f"{len(job.blocks):,} block{'s' if len(job.blocks) > 1 else ''}"
        size = f"{job.bytes_on_disk / 1e6:,.3g} MB before compression"
        errors.print(f"{grid.n_points:,} points, {blocks}, {size}", highlight=False)
        if dry_run:
            out.print(render_job(job), highlight=False, soft_wrap=True, markup=False)
            continue
        try:
            _run(job, resume, overwrite, Workers(None, workers, processes), scheduler)
        except KeyboardInterrupt:
            text = f"interrupted: {job.path}: {remaining_progress(job)}"
            errors.print(text, highlight=False, soft_wrap=True, markup=False)
            raise typer.Exit(130) from None
        out.print(job.sweep.title, style="bold", highlight=False, soft_wrap=True, markup=False)
        with errors.status("reading the result"):
            lines = summarize(job)
        for line in [*lines, f"{grid.n_points:,} points in {job.path}"]:
            out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)


def _run(job: Job, resume: bool, overwrite: bool, how: Workers, scheduler: str | None) -> None:
    from ..sweep.runner import Workers, run_job

    if scheduler is None:
        run_job(job, resume=resume, overwrite=overwrite, how=how)
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise SpecError(f"--scheduler {scheduler}: cannot be reached ({error})") from None
    with client:
        run_job(job, resume=resume, overwrite=overwrite, how=Workers(client))


@app.command()
def estimate(
    model: ModelName,
    gpu: GpuName,
    batch: Annotated[int, typer.Option(help="Concurrent sequences in the instance.")] = 1,
    seq_len: Annotated[int, typer.Option(help="Prompt tokens (prefill) or context tokens (decode).")] = 2048,
    phase: Annotated[Phase, typer.Option(help="Phase.")] = Phase.decode,
    precision: PrecisionName = None,
    efficiency: EfficiencyName = "default",
    tp: TpDegree = 1,
    dp: DpDegree = 1,
    ep: EpDegree = 1,
    option: OptionPairs = None,
    explain_memory: Annotated[
        bool,
        typer.Option("--explain-memory", help="First list the memory of one GPU by item, and the KV-cache capacity."),
    ] = False,
) -> None:
    """Estimate one point: a readable breakdown; an invalid point is an error.

    Example: `cheetah-xr estimate --model llama-3.1-70b --gpu h100-sxm --tp 8 --batch 64 --seq-len 8192`

    Example: `cheetah-xr estimate --model gemma-3-27b --gpu h100-sxm --seq-len 32768 --explain-memory`
    """
    with quick_start():
        from ..engine.inputs.arguments import Axes
        from ..specs import load_model
        from .estimate import estimate as estimate_point
        from .estimate import render, render_memory

        loaded = load_model(model)
        scheme = precision or loaded.default_precision
        axes = Axes(loaded, gpu, scheme, efficiency, phase.value, batch, seq_len, tp, dp, ep, _options(option or []))
        if explain_memory:
            out.print(render_memory(axes), highlight=False)
        out.print(render(*estimate_point(axes)), highlight=False)


@app.command()
def serve(
    model: ModelName,
    gpu: GpuName,
    concurrency: Annotated[
        int, typer.Option(help="Concurrent (in-flight) requests; one that finishes is replaced at once.")
    ] = 64,
    isl: Annotated[int, typer.Option(help="Mean prompt tokens.")] = 8192,
    osl: Annotated[int, typer.Option(help="Mean output tokens.")] = 1024,
    precision: PrecisionName = None,
    efficiency: EfficiencyName = "default",
    tp: TpDegree = 1,
    dp: DpDegree = 1,
    ep: EpDegree = 1,
    prefill: Annotated[
        Prefill | None,
        typer.Option(help="Mixed (chunked-prefill) batches (default), or prefill in forward passes of its own."),
    ] = None,
    lengths: Annotated[
        Lengths | None, typer.Option(help="Lengths of requests: random (default), or fixed (synchronized batches).")
    ] = None,
    chunked_prefill_size: Annotated[
        int, typer.Option(help="Most prefill tokens of a request in one forward pass.")
    ] = 8192,
    prefill_workers: Annotated[
        int | None,
        typer.Option(help="Prefill instances (disaggregated); --tp, --dp and --ep are then those of decode instances."),
    ] = None,
    prefill_tp: Annotated[int | None, typer.Option(help="Their tensor-parallel degree; default --tp.")] = None,
    prefill_dp: Annotated[int | None, typer.Option(help="Their data-parallel degree; default --dp.")] = None,
    prefill_ep: Annotated[int | None, typer.Option(help="Their expert-parallel degree; default --ep.")] = None,
    decode_workers: Annotated[int | None, typer.Option(help="Decode instances (disaggregated); default 1.")] = None,
    option: OptionPairs = None,
) -> None:
    """Serve requests, aggregated on one instance or with disaggregated prefill and decode: latencies and throughput.

    Example: `cheetah-xr serve --model llama-3.1-70b --gpu h100-sxm --tp 4 --concurrency 64 --isl 8192 --osl 1024`

    Example: `cheetah-xr serve --model llama-3.1-70b --gpu h100-sxm --tp 4 --prefill-workers 3 --concurrency 64`
    """
    from ..serving import serve as serve_together
    from ..serving import serve_disaggregated
    from ..specs import load_model
    from .serve import render

    loaded = load_model(model)
    scheme = precision or loaded.default_precision
    load: dict[str, Any] = {
        "concurrency": concurrency,
        "isl": isl,
        "osl": osl,
        "chunked_prefill_size": chunked_prefill_size,
    }
    more = {**load, "efficiency": efficiency, "options": _options(option or [])}
    together = {"prefill": prefill, "lengths": lengths}
    apart = {"prefill_tp": prefill_tp, "prefill_dp": prefill_dp, "prefill_ep": prefill_ep}
    if prefill_workers is None:
        _not_given({**apart, "decode_workers": decode_workers}, "needs --prefill-workers")
        chosen: dict[str, Any] = {name: value.value for name, value in together.items() if value is not None}
        ds = serve_together(loaded, gpu, scheme, tp=tp, dp=dp, ep=ep, **chosen, **more)
    else:
        _not_given(together, "is for aggregated serving; leave out --prefill-workers")
        own = {"prefill_tp": tp, "prefill_dp": dp, "prefill_ep": ep}
        layout: dict[str, Any] = {name: own[name] if value is None else value for name, value in apart.items()}
        layout |= {"decode_tp": tp, "decode_dp": dp, "decode_ep": ep, "prefill_workers": prefill_workers}
        layout |= {"decode_workers": 1 if decode_workers is None else decode_workers}
        ds = serve_disaggregated(loaded, gpu, scheme, **layout, **more)
    out.print(render(ds), highlight=False)


def _not_given(values: dict[str, Any], why: str) -> None:
    """Reject options that have no meaning here."""
    for name, value in values.items():
        if value is not None:
            raise SpecError(f"--{name.replace('_', '-')} {value}: {why}")


def _options(pairs: list[str]) -> Options:
    """Parse NAME=VALUE pairs; the value is YAML, so numbers, true and lists can be written."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from ..specs import Options, to_record

    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise SpecError(f"--option {pair!r}: expected NAME=VALUE, such as small_ops=memory")
        try:
            values[name] = YAML(typ="safe", pure=True).load(text)
        except YAMLError:
            raise SpecError(f"--option {pair!r}: the value cannot be read") from None
    return to_record(Options, values, "--option")


@app.command()
def info(store: Annotated[str, typer.Argument(help="Folder or URL of a result.")]) -> None:
    """Describe a result: question, axes, variables, provenance; every block is read and its checksums compared.

    The exit code is 1 when blocks are missing or damaged.

    Example: `cheetah-xr info outputs/qwen3-32b-h100.zarr`
    """
    from ..sweep.store.writer import read_completion
    from .sweep_summary import describe

    with errors.status("reading every block"):
        found = read_completion(store, checksums=True)
    out.print(describe(store, found), highlight=False, soft_wrap=True, markup=False)
    if not found.complete:
        raise typer.Exit(1)


@app.command()
def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures and tables; all by default.", metavar="[NAME]...")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; default outputs/figures, or one inside it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Redraw for another model.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Redraw for another accelerator.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the names.")] = False,
) -> None:
    """Make figures and tables: pictures, the numbers behind them, and a gallery.

    Example: `cheetah-xr figures regime-map --model qwen3-32b --gpu h200-sxm`
    """
    from ..figures import catalogue

    if show:
        out.print("\n".join(catalogue.select(names or [])), highlight=False)
        return
    from ..figures import render as drawing

    made = []
    folder = drawing.folder_for(out_folder, model, gpu)
    for item in drawing.make(names or [], folder, model, gpu):
        if isinstance(item, drawing.LeftOut):
            errors.print(f"{item.name}: left out: {item.reason}", highlight=False, markup=False, soft_wrap=True)
            continue
        made.append(item)
        errors.print(f"{item.name}: {item.title}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"{len(made)} in {drawing.write_gallery(made, folder)}", highlight=False, soft_wrap=True, markup=False)


app.command()(calibrate)
app.command()(validate)


@app.command("list")
def list_command(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List the catalogue: models, gpus, precisions, efficiencies or sweeps.

    KV of models is in bf16 on one GPU: the growth per token once windows are full, and the cache of 8,192 tokens,
    states included. Attention: w window, c chunk, top n what an indexer keeps, /n an entry for every n tokens.

    Example: `cheetah-xr list gpus`
    """
    from .catalogue_tables import TABLES

    out.print(TABLES[kind.value](), highlight=False)


def main() -> None:
    """Run the command line; a bad input is one message on standard error and exit code 2."""
    try:
        app()
    except SpecError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
