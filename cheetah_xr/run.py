"""Run a sweep over blocks: the only place that knows Dask."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask.config
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .analysis.conditions import parse_all
from .analysis.derive import DERIVED
from .blocks import Block, Blocks, cut
from .grid import Grid
from .recipe import Recipe, make_recipe
from .specs import SpecError
from .store import prepare_store, stored_coords, write_block
from .sweep import Sweep, load_sweep

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A sweep made ready: its recipe, blocks and store."""

    sweep: Sweep
    recipe: Recipe
    blocks: Blocks
    path: Path

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the result before compression."""
        return self.recipe.nbytes

    @property
    def grid(self) -> Grid:
        """The points of the sweep."""
        return self.recipe.engine.grid


def make_job(source: str | Path | Sweep, store: str | Path | None = None) -> Job:
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
    path = Path(store) if store is not None else Path("outputs") / f"{sweep.name}.zarr"
    return Job(sweep, recipe, blocks, path)


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
) -> Path:
    """Run a sweep into a Zarr store, block by block.

    Parameters
    ----------
    source
        Path of a sweep file, name of a shipped one, or a Sweep.
    store
        Folder of the result; by default ``outputs/<name>.zarr``.
    resume
        Fill what is missing of an existing store of the same sweep.
    client
        A ``dask.distributed.Client``; by default threads of this process.
    progress
        Show a progress bar on standard error.
    overwrite
        Replace an existing store.
    workers
        Threads; by default one per core.

    Returns
    -------
    pathlib.Path
        The store, for :func:`cheetah_xr.open_result`.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed; when the store holds something else.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> path = cx.run_sweep("qwen3-32b-h100")  # doctest: +SKIP
    """
    return run_job(
        make_job(source, store), resume=resume, client=client, progress=progress, overwrite=overwrite, workers=workers
    )


def run_job(
    job: Job,
    *,
    resume: bool = True,
    client: Any = None,
    progress: bool = True,
    overwrite: bool = False,
    workers: int | None = None,
) -> Path:
    """Run a job; see :func:`run_sweep`."""
    if workers is not None and workers < 1:
        raise SpecError(f"workers: expected at least 1, got {workers}")
    try:
        done = prepare_store(job.path, job.recipe, job.blocks, resume=resume, overwrite=overwrite)
    except OSError as error:
        raise SpecError(f"{job.path}: cannot be written ({error.strerror})") from None
    todo = [block for block in job.blocks if block.number not in done]
    log.info("%s: %d blocks, %d to do", job.sweep.name, len(job.blocks), len(todo))
    if done and progress:
        Console(stderr=True).print(f"{job.path}: {len(done)} of {len(job.blocks)} blocks are there", highlight=False)
    started = time.perf_counter()
    with _bar(job, len(job.blocks) - len(todo), progress) as advance:
        if client is None:
            _on_threads(job, todo, workers or os.cpu_count() or 1, advance)
        else:
            _on_client(job, todo, client, advance)
    log.info("%s: done in %.1f s", job.sweep.name, time.perf_counter() - started)
    return job.path


def run_block(recipe: Recipe, path: Path, block: Block) -> int:
    """Compute one block, write it, mark it; returns its number."""
    write_block(path, recipe, block, recipe.make(block.selection))
    return block.number


def _on_threads(job: Job, todo: Sequence[Block], workers: int, advance: Any) -> None:
    tasks = [delayed(partial(run_block, job.recipe, job.path, block), pure=False)() for block in todo]

    def block_done(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, int):
            advance()

    with ThreadPoolExecutor(workers) as pool, Callback(posttask=block_done), dask.config.set(pool=pool):
        compute(*tasks, scheduler="threads", optimize_graph=False)


def _on_client(job: Job, todo: Sequence[Block], client: Any, advance: Any) -> None:
    from distributed import as_completed

    recipe = client.scatter(job.recipe, broadcast=True)
    futures = [client.submit(run_block, recipe, job.path.resolve(), block, pure=False) for block in todo]
    for future in as_completed(futures):
        future.result()
        advance()


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
