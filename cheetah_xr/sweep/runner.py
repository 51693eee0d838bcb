"""Run a sweep over blocks: the only location that knows Dask."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import dask.config
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..analysis.conditions import parse_all
from ..analysis.derive import DERIVED
from ..engine.dims import RECORDS
from ..engine.grid import Grid
from ..specs import SpecError
from .blocks import Block, Blocks, cut
from .config import Sweep, find_sweep
from .plan import Plan, make_plan
from .store.completion import Completion
from .store.layout import fingerprint_of, fingerprint_parts, stored_coords
from .store.location import Location, location_of
from .store.writer import finished_blocks, prepare_store, read_completion, write_block

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A sweep ready to run: its plan, blocks and location."""

    sweep: Sweep
    plan: Plan
    blocks: Blocks
    location: Location

    @property
    def path(self) -> Path | str:
        """Return the folder or URL of the store."""
        return self.location.path

    @property
    def bytes_on_disk(self) -> int:
        """Count the bytes of the store before compression."""
        return self.plan.nbytes

    @property
    def grid(self) -> Grid:
        """Return the grid of the sweep."""
        return self.plan.engine.grid

    @cached_property
    def parts(self) -> dict[str, str]:
        """Hash what the result depends on, by part."""
        return fingerprint_parts(self.plan, self.blocks)

    @cached_property
    def fingerprint(self) -> str:
        """Hash everything the result depends on."""
        return fingerprint_of(self.parts)

    def resolved_sweep(self) -> Sweep:
        """Return the sweep with records in place of their names: all that a remote worker needs."""
        records = {kind: list(values) for kind, values in self.grid.records.items() if kind in RECORDS}
        resolved = {kind: values if kind in self.grid.sizes else values[0] for kind, values in records.items()}
        return self.sweep.model_copy(update=resolved)


def make_job(source: str | Path | Sweep, store: str | Path | Location | None = None) -> Job:
    """Read a sweep and resolve it; nothing is written.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.
    """
    sweep = find_sweep(source)
    try:
        plan = make_plan(sweep)
        size = {} if sweep.block_points is None else {"points": sweep.block_points}
        blocks = cut(plan.engine.grid, whole=plan.whole_dims, **size)
        _check_summary(sweep, plan)
    except SpecError as error:
        raise SpecError(f"{sweep.name if isinstance(source, Sweep) else source}: {error}") from None
    return Job(sweep, plan, blocks, location_of(store if store is not None else Path("outputs") / f"{sweep.name}.zarr"))


def _check_summary(sweep: Sweep, plan: Plan) -> None:
    """Check that what ``where`` and ``compare`` name is stored, is a coordinate, or can be derived."""
    available = {*(product.name for product in plan.products), *map(str, stored_coords(plan).coords), *DERIVED}
    unknown = [c.name for c in parse_all(sweep.where) if c.name not in available]
    if unknown:
        raise SpecError(
            f"where: {', '.join(unknown)} is not among the results; available: {', '.join(sorted(available))}"
        )
    along = [name for name, coord in stored_coords(plan).coords.items() if coord.ndim == 1]
    if sweep.compare is not None and sweep.compare not in along:
        raise SpecError(
            f"compare: {sweep.compare!r} is not along an axis of the sweep; possible: {', '.join(map(str, along))}"
        )


def run_sweep(
    source: str | Path | Sweep,
    store: str | Path | None = None,
    resume: bool = True,
    client: Any = None,
    progress: bool = True,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    processes: bool = False,
) -> Path | str:
    """Run a sweep into a Zarr store, block by block.

    Parameters
    ----------
    source
        Path of a sweep file, name of a shipped one, or a Sweep.
    store
        Folder of the result, or a URL such as ``s3://bucket/name.zarr``; by default ``outputs/<name>.zarr``.
    resume
        Compute the missing blocks of an existing store of the same sweep; every stored chunk is checked first.
    client
        A ``dask.distributed.Client``; by default threads of this process.
    progress
        Show a progress bar on standard error.
    overwrite
        Replace an existing store.
    workers
        Threads, or processes; by default one per core.
    processes
        Work in processes of a local Dask cluster instead of threads; one that is killed is replaced.

    Returns
    -------
    pathlib.Path or str
        The store, for :func:`cheetah_xr.open_result`.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed; when the store holds something else, is in use, or cannot be
        written.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> path = cx.run_sweep("qwen3-32b-h100")  # doctest: +SKIP
    """
    job = make_job(source, store)
    how = Workers(client, workers, processes)
    return run_job(job, resume=resume, how=how, progress=progress, overwrite=overwrite)


@dataclass(frozen=True)
class Workers:
    """What computes blocks: a Dask client, or threads or processes of this machine."""

    client: Any = None
    number: int | None = None
    processes: bool = False


def run_job(
    job: Job, *, resume: bool = True, how: Workers | None = None, progress: bool = True, overwrite: bool = False
) -> Path | str:
    """Run a job; see :func:`run_sweep`."""
    how = how or Workers()
    if how.number is not None and how.number < 1:
        raise SpecError(f"workers: expected at least 1, got {how.number}")
    started = time.perf_counter()
    try:
        with job.location.locked():
            completion = prepare_store(
                job.location, job.plan, job.blocks, job.parts, resume=resume, overwrite=overwrite
            )
            _report_completion(job, completion, progress)
            todo = [block for block in job.blocks if block.number not in completion.done]
            with _bar(job, len(completion.done), progress) as advance:
                _compute(job, todo, how, advance)
            _check_complete(job)
    except OSError as error:
        raise SpecError(
            f"{job.location}: cannot be written ({error.strerror or error}); {remaining_progress(job)}"
        ) from None
    log.info("%s: done in %.1f s", job.sweep.name, time.perf_counter() - started)
    return job.path


def _report_completion(job: Job, completion: Completion, progress: bool) -> None:
    """Report finished and damaged blocks of an existing store."""
    log.info("%s: %d of %d blocks are finished", job.sweep.name, len(completion.done), completion.total)
    console = Console(stderr=True, soft_wrap=True)
    if completion.done and progress:
        console.print(
            f"{job.location}: {len(completion.done)} of {completion.total} blocks are finished", highlight=False
        )
    for number, keys in completion.damaged.items():
        log.warning("%s: block %d is computed again: %s lost or damaged", job.location, number, ", ".join(keys))
    if completion.damaged and progress:
        console.print(f"{job.location}: {len(completion.damaged)} damaged blocks are computed again", highlight=False)


def remaining_progress(job: Job) -> str:
    """Describe what a failed run leaves in the store."""
    try:
        done = len(finished_blocks(job.location))
    except (SpecError, OSError):
        return "nothing is kept"
    return f"{done} of {len(job.blocks)} blocks are kept, and the same command resumes"


def _check_complete(job: Job) -> None:
    """Check that every block is finished; else it was removed, or workers wrote to another location."""
    completion = read_completion(job.location)
    if not completion.complete:
        missing = completion.total - len(completion.done)
        raise SpecError(
            f"{job.location}: {missing} of {completion.total} blocks are missing after the run; "
            "all workers must see one folder, or write to an object store"
        )


def run_block(job: Job, block: Block) -> int:
    """Compute one block, write it with its completion record, and return its number."""
    write_block(job.location, job.plan, job.fingerprint, block, job.plan.compute_block(block.selection))
    return block.number


@dataclass(frozen=True)
class BlockFailure:
    """Why a block was not written, as plain data: Dask shortens errors and drops their type on the way."""

    reason: str
    number: int | None = None

    def to_error(self) -> SpecError | OSError:
        """Return the error as it was raised."""
        return SpecError(self.reason) if self.number is None else OSError(self.number, self.reason)


def run_block_remotely(job: Job, block: Block) -> int | BlockFailure:
    """Run :func:`run_block` in another process; return its failure as data."""
    try:
        return run_block(job, block)
    except SpecError as error:
        return BlockFailure(str(error))
    except OSError as error:
        return BlockFailure(error.strerror or str(error), error.errno or errno.EIO)


def _compute(job: Job, todo: Sequence[Block], how: Workers, advance: Callable[[], None]) -> None:
    number = how.number or os.cpu_count() or 1
    if how.client is not None:
        _on_client(job, todo, how.client, advance)
    elif how.processes:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=number, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            _on_client(job, todo, client, advance)
    else:
        _on_threads(job, todo, number, advance)


def _on_threads(job: Job, todo: Sequence[Block], workers: int, advance: Callable[[], None]) -> None:
    tasks = [delayed(partial(run_block, job, block), pure=False)() for block in todo]

    def block_done(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, int):
            advance()

    with ThreadPoolExecutor(workers) as pool, Callback(posttask=block_done), dask.config.set(pool=pool):
        compute(*tasks, scheduler="threads", optimize_graph=False)


def _on_client(job: Job, todo: Sequence[Block], client: Any, advance: Callable[[], None]) -> None:
    """Run blocks on a Dask client.

    Workers rebuild the job from the resolved sweep. That is a task like others, so it survives the worker that ran it.
    """
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    remote_job = client.submit(make_job, job.resolved_sweep(), job.location.absolute(), pure=False)
    futures = [client.submit(run_block_remotely, remote_job, block, pure=False) for block in todo]
    try:
        for future in as_completed(futures):
            outcome = future.result()
            if isinstance(outcome, BlockFailure):
                raise outcome.to_error()
            advance()
    except KilledWorker:
        raise SpecError(
            f"{job.location}: a block ended every worker that tried it, out of memory perhaps (block_memory_mb makes "
            f"blocks smaller); {remaining_progress(job)}"
        ) from None
    except CancelledError:
        raise SpecError(
            f"{job.location}: the scheduler is gone or cancelled the run; {remaining_progress(job)}"
        ) from None
    finally:
        if client.status == "running":
            client.cancel(futures)


@contextmanager
def _bar(job: Job, done: int, show: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar over blocks, with points per second."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("blocks  {task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    started, counted = time.perf_counter(), 0
    each = job.grid.n_points / len(job.blocks)
    with Progress(*columns, console=Console(stderr=True), disable=not show) as bar:
        task = bar.add_task(job.sweep.name, total=len(job.blocks), completed=done, rate="")

        def advance() -> None:
            nonlocal counted
            counted += 1
            rate = counted * each / max(time.perf_counter() - started, 1e-9)
            bar.update(task, advance=1, rate=f"{rate / 1e6:.1f} M points/s")

        yield advance
