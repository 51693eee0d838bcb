"""The command line: thin, one function per command."""

from __future__ import annotations

import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler

from ._version import __version__
from .axes import Axes
from .engine import canonical_json
from .estimate import estimate as estimate_point
from .estimate import render, render_memory
from .listing import TABLES
from .run import Job, Workers, kept, make_job, run_job
from .specs import Options, SpecError, load_model, to_record
from .store import state
from .summary import describe, summarize

app = typer.Typer(
    name="cheetah-xr",
    help="Design-space engine for LLM inference performance.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
WIDE = 200
"""Columns where no terminal says how many there are: a table in a file is not cut."""


def _width(stream: Any) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else WIDE


out = Console(width=_width(sys.stdout))
errors = Console(stderr=True, width=_width(sys.stderr))


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
        logger = logging.getLogger("cheetah_xr")
        logger.setLevel(logging.INFO)
        logger.addHandler(RichHandler(console=errors, show_path=False))


@app.command()
def sweep(
    files: Annotated[list[str], typer.Argument(help="Sweep files, or names of shipped sweeps.", metavar="FILE...")],
    store: Annotated[
        str | None, typer.Option(help="Folder of the result, or a URL (s3://...); default outputs/NAME.zarr.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume/--no-resume", help="Fill what an existing store misses.")] = True,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing store.")] = False,
    workers: Annotated[int | None, typer.Option(help="Threads or processes; default one per core.", min=1)] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Work in processes instead of threads.")] = False,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run on.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show points, blocks, bytes and specs; run nothing.")
    ] = False,
) -> None:
    """Run sweeps into Zarr stores and say what they answered.

    Example: `cheetah-xr sweep sweeps/qwen3-32b-h100.yaml`
    """
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
            text = f"interrupted: {job.path}: {kept(job)}"
            errors.print(text, highlight=False, soft_wrap=True, markup=False)
            raise typer.Exit(130) from None
        out.print(job.sweep.title, style="bold", highlight=False, soft_wrap=True, markup=False)
        with errors.status("reading the answer"):
            lines = summarize(job)
        for line in [*lines, f"{grid.n_points:,} points in {job.path}"]:
            out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)


def _run(job: Job, resume: bool, overwrite: bool, how: Workers, scheduler: str | None) -> None:
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


def render_job(job: Job) -> str:
    """What a sweep would do: blocks, what is stored, and the resolved specs."""
    lines = [f"store: {job.path}", f"block: {', '.join(f'{dim} {step}' for dim, step in job.blocks.steps.items())}"]
    for product in job.recipe.products:
        shape = " x ".join(f"{dim} {n}" for dim, n in zip(product.dims, product.shape, strict=True)) or "scalar"
        lines.append(f"stored: {product.name} {product.dtype} ({shape}), {product.nbytes / 1e6:,.3g} MB")
    for kind, records in job.grid.records.items():
        lines += [f"{kind}: {canonical_json(record.canonical())}" for record in records]
    lines.append(f"options: {canonical_json(job.grid.options.canonical())}")
    return "\n".join(lines)


@app.command()
def estimate(
    model: Annotated[str, typer.Option(help="Catalogue name, YAML file or Hugging Face config.json.")],
    gpu: Annotated[str, typer.Option(help="Catalogue name or YAML file.")],
    batch: Annotated[int, typer.Option(help="Concurrent sequences in the instance.")] = 1,
    seq_len: Annotated[int, typer.Option(help="Prompt tokens (prefill) or context tokens (decode).")] = 2048,
    phase: Annotated[Phase, typer.Option(help="Phase.")] = Phase.decode,
    precision: Annotated[
        str | None, typer.Option(help="Catalogue name or YAML file; default that of the published checkpoint.")
    ] = None,
    efficiency: Annotated[
        str, typer.Option(help="Catalogue name or YAML file; ideal is the speed ceiling.")
    ] = "default",
    tp: Annotated[int, typer.Option(help="Tensor-parallel degree.")] = 1,
    dp: Annotated[int, typer.Option(help="Data-parallel degree of attention.")] = 1,
    ep: Annotated[int, typer.Option(help="Expert-parallel degree.")] = 1,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Accounting option NAME=VALUE; repeat for more.")
    ] = None,
    explain_memory: Annotated[
        bool, typer.Option("--explain-memory", help="First say what the memory of one GPU holds, and what fits.")
    ] = False,
) -> None:
    """Estimate one point: a readable breakdown; an invalid point is an error.

    Example: `cheetah-xr estimate --model llama-3.1-70b --gpu h100-sxm --tp 8 --batch 64 --seq-len 8192`

    Example: `cheetah-xr estimate --model gemma-3-27b --gpu h100-sxm --seq-len 32768 --explain-memory`
    """
    loaded = load_model(model)
    scheme = precision or getattr(loaded, "default_precision", "bf16")
    axes = Axes(loaded, gpu, scheme, efficiency, phase.value, batch, seq_len, tp, dp, ep, _options(option or []))
    if explain_memory:
        out.print(render_memory(axes), highlight=False)
    out.print(render(*estimate_point(axes)), highlight=False)


def _options(pairs: list[str]) -> Options:
    """Parse NAME=VALUE pairs; the value is YAML, so numbers, true and lists can be written."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise SpecError(f"--option {pair!r}: expected NAME=VALUE, such as small_ops=memory")
        try:
            found[name] = YAML(typ="safe", pure=True).load(text)
        except YAMLError:
            raise SpecError(f"--option {pair!r}: the value cannot be read") from None
    return to_record(Options, found, "--option")


@app.command()
def info(store: Annotated[str, typer.Argument(help="Folder or URL of a result.")]) -> None:
    """Say what a result holds: question, axes, variables, provenance; every block is read and its checksums compared.

    The exit code is 1 when blocks are missing or damaged.

    Example: `cheetah-xr info outputs/qwen3-32b-h100.zarr`
    """
    with errors.status("reading every block"):
        found = state(store, checksums=True)
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
    from .figures import render as drawing

    if show:
        out.print("\n".join(drawing.chosen(names or [])), highlight=False)
        return
    made = []
    folder = drawing.folder_for(out_folder, model, gpu)
    for item in drawing.make(names or [], folder, model, gpu):
        if isinstance(item, drawing.LeftOut):
            errors.print(f"{item.name}: left out: {item.reason}", highlight=False, markup=False, soft_wrap=True)
            continue
        made.append(item)
        errors.print(f"{item.name}: {item.title}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"{len(made)} in {drawing.write_gallery(made, folder)}", highlight=False, soft_wrap=True, markup=False)


@app.command("list")
def list_command(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List the catalogue: models, gpus, precisions, efficiencies or sweeps.

    KV of models is in bf16 on one GPU: the growth per token once windows are full, and all that 8,192 tokens keep,
    states included. Attention: w window, c chunk, top n what an indexer keeps, /n an entry for every n tokens.

    Example: `cheetah-xr list gpus`
    """
    out.print(TABLES[kind.value](), highlight=False)


def main() -> None:
    """Run the command line; a bad input is one message on standard error and exit code 2."""
    try:
        app()
    except SpecError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
