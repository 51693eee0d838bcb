"""Blocks: how a sweep is cut into tasks and chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..engine.grid import Grid
from ..specs import SpecError

BLOCK_POINTS = 2_097_152
"""Points of a block: enough to amortise the cost of a task and a chunk, few enough for several in memory at once."""

REDUCED_POINTS = 4_194_304
"""Points of a block that is reduced: its chunks are small, and longer axes in it make quicker loops."""

MOST_BLOCKS = 1_000_000
"""Most blocks of a sweep: each is a task, a completion record and a file of every variable."""


@dataclass(frozen=True)
class Block:
    """One block: its number, its index along each dim, and the slices it covers."""

    number: int
    index: dict[str, int]
    selection: dict[str, slice]


@dataclass(frozen=True)
class Blocks:
    """A sweep cut into blocks of `steps` values along each dim; one block is one chunk of every variable."""

    dims: tuple[str, ...]
    sizes: Mapping[str, int]
    steps: Mapping[str, int]

    def __len__(self) -> int:
        return math.prod(self.counts)

    @property
    def counts(self) -> tuple[int, ...]:
        """Count the blocks along each dim."""
        return tuple(-(-self.sizes[dim] // self.steps[dim]) for dim in self.dims)

    def __iter__(self) -> Iterator[Block]:
        for number, index in enumerate(itertools.product(*(range(n) for n in self.counts))):
            at = dict(zip(self.dims, index, strict=True))
            ends = {dim: min((i + 1) * self.steps[dim], self.sizes[dim]) for dim, i in at.items()}
            selection = {dim: slice(i * self.steps[dim], ends[dim]) for dim, i in at.items()}
            yield Block(number, at, selection)


def cut(grid: Grid, points: int | None = None, whole: Sequence[str] = ()) -> Blocks:
    """Cut a grid into blocks of at most `points` points, whole along the dims of `whole`, then along the longest.

    By default blocks have BLOCK_POINTS, or REDUCED_POINTS when dims are whole.

    Raises
    ------
    SpecError
        When the dims that must be whole hold more than eight times as many points, or blocks are too many.
    """
    if points is None:
        points = REDUCED_POINTS if whole else BLOCK_POINTS
    steps = {dim: grid.sizes[dim] for dim in whole}
    reduced = math.prod(steps.values())
    if reduced > 8 * points:
        raise SpecError(
            f"over {', '.join(whole)}: {reduced:,} points are reduced to one; a block has at most {8 * points:,}: "
            "shorten an axis"
        )
    remaining = max(1, points // reduced)
    for dim in reversed([dim for dim in grid.order if dim not in whole]):
        steps[dim] = max(1, min(grid.sizes[dim], remaining))
        remaining //= steps[dim]
    blocks = Blocks(grid.dims, grid.sizes, {dim: steps[dim] for dim in grid.dims})
    if math.prod(blocks.counts) > MOST_BLOCKS:
        raise SpecError(
            f"{grid.n_points:,} points are {math.prod(blocks.counts):,} blocks; a sweep has at most {MOST_BLOCKS:,}: "
            "shorten an axis, or give blocks more memory (block_memory_mb)"
        )
    return blocks
