"""The command ``cheetah-xr sweep``: run sweep files into Zarr stores and summarize the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SpecError
from .console import errors, out

if TYPE_CHECKING:
    from ..sweep.runner import Job, Workers


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
    from .sweep_summary import render_job

    if store is not None and len(files) > 1:
        raise SpecError("--store names one folder; give one sweep file with it")
    if scheduler is not None and (workers is not None or processes):
        raise SpecError("--workers and --processes are for this machine; a --scheduler has its own workers")
    for job in [make_job(file, store) for file in files]:
        _print_size(job)
        if dry_run:
            out.print(render_job(job), highlight=False, soft_wrap=True, markup=False)
            continue
        try:
            _run(job, resume, overwrite, Workers(None, workers, processes), scheduler)
        except KeyboardInterrupt:
            text = f"interrupted: {job.path}: {remaining_progress(job)}"
            errors.print(text, highlight=False, soft_wrap=True, markup=False)
            raise typer.Exit(130) from None
        _print_summary(job)


def _run(job: Job, resume: bool, overwrite: bool, how: Workers, scheduler: str | None) -> None:
    """Run a job on this machine, or on the workers of a Dask scheduler."""
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


def _print_size(job: Job) -> None:
    """Print the axes, points, blocks and bytes of a job, on standard error."""
    grid = job.grid
    axes = " x ".join(f"{dim} {grid.sizes[dim]}" for dim in grid.dims) or "one point"
    errors.print(f"{job.sweep.name}: {axes}", highlight=False, markup=False)
    blocks = f"{len(job.blocks):,} block{'s' if len(job.blocks) > 1 else ''}"
    size = f"{job.bytes_on_disk / 1e6:,.3g} MB before compression"
    errors.print(f"{grid.n_points:,} points, {blocks}, {size}", highlight=False)


def _print_summary(job: Job) -> None:
    """Print the title of a finished sweep, and its result in a few lines."""
    from .sweep_summary import summarize

    out.print(job.sweep.title, style="bold", highlight=False, soft_wrap=True, markup=False)
    with errors.status("reading the result"):
        lines = summarize(job)
    for line in [*lines, f"{job.grid.n_points:,} points in {job.path}"]:
        out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
