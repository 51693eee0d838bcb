"""Run a sweep over blocks: the only place that knows Dask."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator, Sequence
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
from .config import Sweep, load_sweep
from .plan import Recipe, make_recipe
from .store.completion import State
from .store.layout import fingerprint_of, fingerprint_parts, stored_coords
from .store.location import Place, place_of
from .store.writer import finished, prepare_store, state, write_block

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A sweep made ready: its recipe, blocks and place."""

    sweep: Sweep
    recipe: Recipe
    blocks: Blocks
    place: Place

    @property
    def path(self) -> Path | str:
        """Folder or URL of the store."""
        return self.place.path

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the result before compression."""
        return self.recipe.nbytes

    @property
    def grid(self) -> Grid:
        """The points of the sweep."""
        return self.recipe.engine.grid

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the result depends on, by part, as hashes."""
        return fingerprint_parts(self.recipe, self.blocks)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything the result depends on."""
        return fingerprint_of(self.parts)

    def record(self) -> Sweep:
        """The sweep with its specs in place of their names: all that a worker elsewhere needs."""
        records = {kind: list(found) for kind, found in self.grid.records.items() if kind in RECORDS}
        whole = {kind: found if kind in self.grid.sizes else found[0] for kind, found in records.items()}
        return self.sweep.model_copy(update=whole)


def make_job(source: str | Path | Sweep, store: str | Path | Place | None = None) -> Job:
    """Read a sweep and resolve it; nothing is written.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.
    """
    sweep = load_sweep(source)
    try:
        recipe = make_recipe(sweep)
        size = {} if sweep.block_points is None else {"points": sweep.block_points}
        blocks = cut(recipe.engine.grid, whole=recipe.whole_dims, **size)
        _check_answer(sweep, recipe)
    except SpecError as error:
        raise SpecError(f"{sweep.name if isinstance(source, Sweep) else source}: {error}") from None
    return Job(sweep, recipe, blocks, place_of(store if store is not None else Path("outputs") / f"{sweep.name}.zarr"))


def _check_answer(sweep: Sweep, recipe: Recipe) -> None:
    """What the answer of a sweep names must be stored, stand beside what is stored, or follow from it."""
    there = {*(product.name for product in recipe.products), *map(str, stored_coords(recipe).coords), *DERIVED}
    unknown = [c.name for c in parse_all(sweep.where) if c.name not in there]
    if unknown:
        raise SpecError(f"where: {', '.join(unknown)} is not there; there are {', '.join(sorted(there))}")
    along = [name for name, coord in stored_coords(recipe).coords.items() if coord.ndim == 1]
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
        Fill what is missing of an existing store of the same sweep; every chunk that is there is checked first.
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
        with job.place.locked():
            found = prepare_store(job.place, job.recipe, job.blocks, job.parts, resume=resume, overwrite=overwrite)
            _tell(job, found, progress)
            todo = [block for block in job.blocks if block.number not in found.done]
            with _bar(job, len(found.done), progress) as advance:
                _compute(job, todo, how, advance)
            _check_whole(job)
    except OSError as error:
        raise SpecError(f"{job.place}: cannot be written ({error.strerror or error}); {kept(job)}") from None
    log.info("%s: done in %.1f s", job.sweep.name, time.perf_counter() - started)
    return job.path


def _tell(job: Job, found: State, progress: bool) -> None:
    """Say what is there already, and what is damaged."""
    log.info("%s: %d of %d blocks are there", job.sweep.name, len(found.done), found.total)
    console = Console(stderr=True, soft_wrap=True)
    if found.done and progress:
        console.print(f"{job.place}: {len(found.done)} of {found.total} blocks are there", highlight=False)
    for number, keys in found.damaged.items():
        log.warning("%s: block %d is computed again: %s lost or damaged", job.place, number, ", ".join(keys))
    if found.damaged and progress:
        console.print(f"{job.place}: {len(found.damaged)} damaged blocks are computed again", highlight=False)


def kept(job: Job) -> str:
    """What a failed run leaves."""
    try:
        done = len(finished(job.place))
    except (SpecError, OSError):
        return "nothing is kept"
    return f"{done} of {len(job.blocks)} blocks are kept, and the same command resumes"


def _check_whole(job: Job) -> None:
    """Every block must be there now; else someone removed it, or workers wrote to another place."""
    found = state(job.place)
    if not found.complete:
        raise SpecError(
            f"{job.place}: {found.total - len(found.done)} of {found.total} blocks are not there after the run; all "
            "workers must see one folder, or write to an object store"
        )


def run_block(job: Job, block: Block) -> int:
    """Compute one block, write it, mark it; returns its number."""
    write_block(job.place, job.recipe, job.fingerprint, block, job.recipe.make(block.selection))
    return block.number


@dataclass(frozen=True)
class Failed:
    """Why a block was not written, as plain data: Dask shortens errors and drops their type on the way."""

    reason: str
    number: int | None = None

    def again(self) -> SpecError | OSError:
        """The error it was."""
        return SpecError(self.reason) if self.number is None else OSError(self.number, self.reason)


def run_far(job: Job, block: Block) -> int | Failed:
    """:func:`run_block` in another process."""
    try:
        return run_block(job, block)
    except SpecError as error:
        return Failed(str(error))
    except OSError as error:
        return Failed(error.strerror or str(error), error.errno or errno.EIO)


def _compute(job: Job, todo: Sequence[Block], how: Workers, advance: Any) -> None:
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


def _on_threads(job: Job, todo: Sequence[Block], workers: int, advance: Any) -> None:
    tasks = [delayed(partial(run_block, job, block), pure=False)() for block in todo]

    def block_done(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, int):
            advance()

    with ThreadPoolExecutor(workers) as pool, Callback(posttask=block_done), dask.config.set(pool=pool):
        compute(*tasks, scheduler="threads", optimize_graph=False)


def _on_client(job: Job, todo: Sequence[Block], client: Any, advance: Any) -> None:
    """Workers make the job again from the sweep's record: a task like others, so it survives the worker that ran it."""
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    there = client.submit(make_job, job.record(), job.place.absolute(), pure=False)
    futures = [client.submit(run_far, there, block, pure=False) for block in todo]
    try:
        for future in as_completed(futures):
            outcome = future.result()
            if isinstance(outcome, Failed):
                raise outcome.again()
            advance()
    except KilledWorker:
        raise SpecError(
            f"{job.place}: a block ended every worker that tried it, out of memory perhaps (block_memory_mb makes "
            f"blocks smaller); {kept(job)}"
        ) from None
    except CancelledError:
        raise SpecError(f"{job.place}: the scheduler is gone or cancelled the run; {kept(job)}") from None
    finally:
        if client.status == "running":
            client.cancel(futures)


@contextmanager
def _bar(job: Job, done: int, show: bool) -> Iterator[Any]:
    """Progress bar over blocks, with points per second."""
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
