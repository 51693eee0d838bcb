"""Search for the best point along axes, tile by tile, at once for every value of a target if there is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.lazy import Program, Value, aligned, apply, later, quick_loops
from .choice import Choice, NamedArrays
from .conditions import OPERATORS, Condition
from .derive import DERIVED
from .thresholds import Thresholds, thresholds_of

Array = NDArray[Any]
Tile = tuple[slice, ...]

TILE_POINTS = 32_768
"""Points of a tile: four arrays of a quarter of a megabyte stay in a core's cache."""

ROW_POINTS = 1024
"""Points along the innermost axis, enough for quick loops; the rest of a tile is along what is searched."""


def find_best(
    inputs: NamedArrays, metric: str, over: Sequence[str], conditions: Sequence[Condition], *, minimize: bool
) -> Choice:
    """Find the best point along `over`, on all dims that metric and conditions have; the first of equal ones.

    A condition whose number is a coordinate is a target: every value of it has a best point of its own.
    """
    used = {dim for name in (metric, *(name for c in conditions for name in c.names)) for dim in inputs.dims(name)}
    axis = next((c.number for c in conditions if isinstance(c.number, str)), None)
    order = inputs.order
    lengths = [inputs.sizes[dim] if dim in used and dim != axis else 1 for dim in order]
    objective = _objective(inputs, metric, conditions, minimize=minimize)
    search = _Search(tuple(lengths), _strides(inputs, over), objective.n_thresholds)
    tiles = search.tiles()
    with quick_loops(tiles[0][-1].stop if order else 1):
        for tile in tiles:
            objective.search_tile(search, tile)
    best, first = search.best[0], search.first[0]
    if axis is not None and objective.thresholds is not None:
        at, given = order.index(axis), objective.thresholds.positions
        best, first = (np.moveaxis(a[given].squeeze(at + 1), 0, at) for a in (search.best, search.first))
    sizes = [inputs.sizes[dim] for dim in over]
    # Flat, because NumPy 2.4.6 gets arrays of more than 8192 elements wrong whose last axis is of length 1.
    indices = np.unravel_index(np.minimum(first, math.prod(sizes) - 1).reshape(-1), sizes)
    chosen = {dim: index.reshape(first.shape) for dim, index in zip(over, indices, strict=True)}
    return Choice(inputs, frozenset(used - set(over)), chosen, np.isfinite(best))


def _strides(inputs: NamedArrays, over: Sequence[str]) -> list[int]:
    """Return for every dim how much later a step along it comes in the order of `over`; 0 for the others."""
    steps = {dim: math.prod(inputs.sizes[after] for after in over[i + 1 :]) for i, dim in enumerate(over)}
    return [steps.get(dim, 0) for dim in inputs.order]


@dataclass(frozen=True)
class _Objective:
    """The score to maximize, NaN where a condition fails, and the thresholds of one more condition."""

    program: Program
    thresholds: Thresholds | None
    buffers: Mapping[str, Array]
    nan_never_counts: bool

    @property
    def n_thresholds(self) -> int:
        """Number of best points: one for every threshold."""
        return 1 if self.thresholds is None else self.thresholds.values.size

    def search_tile(self, search: _Search, tile: Tile) -> None:
        """Search a tile for every threshold that some point of it reaches."""
        shape = [s.stop - s.start for s in tile]
        arrays = {name: buffer[: math.prod(shape)].reshape(shape) for name, buffer in self.buffers.items()}
        score, masked = arrays["score"], arrays.pop("masked")
        thresholds, everywhere, somewhere = self.thresholds, 1, 1
        if thresholds is not None and thresholds.step_time is not None:
            values = thresholds.at(tile)
            everywhere, somewhere = thresholds.reached(values, nan_never_counts=self.nan_never_counts)
        if not somewhere:
            return
        self.program.run(tile, arrays)
        if thresholds is not None and thresholds.step_time is None:
            values = arrays["value"]
            everywhere, somewhere = thresholds.reached(values, nan_never_counts=False)
        if everywhere:
            search.update(slice(0, everywhere), score, tile)
        bits = masked.view(np.int64)
        for number in range(everywhere, somewhere):
            assert thresholds is not None
            np.copyto(bits, thresholds.missed(number, values))
            np.bitwise_or(bits, score.view(np.int64), out=bits)
            search.update(slice(number, number + 1), masked, tile)


def _objective(inputs: NamedArrays, metric: str, conditions: Sequence[Condition], *, minimize: bool) -> _Objective:
    """Return the expressions of a search, and the condition checked first: the target, or one on the step time."""
    known: dict[Any, Value] = {}

    def wide(name: str, array: Array) -> Value:
        if array.dtype.kind not in "iuf":
            return array
        return known.setdefault((name, array.shape), later(array, np.float64))

    score = inputs.value(metric, wide)
    outputs = {"score": apply(np.negative, score) if minimize else score}
    in_time = [thresholds_of(inputs, c) for c in conditions]
    targets = [i for i, c in enumerate(conditions) if isinstance(c.number, str)]
    at = next(iter([*targets, *(i for i, of_time in enumerate(in_time) if of_time is not None)]), None)
    holds = [_holds(inputs, c, wide) for i, c in enumerate(conditions) if i != at]
    if holds:
        missed = apply(_missed, reduce(partial(apply, np.logical_and), holds), dtype=np.int64)
        outputs["score"] = apply(_masked_score, outputs["score"], missed, dtype=np.float64)
    thresholds = None
    if at is not None:
        target, thresholds = conditions[at], in_time[at]
        if thresholds is None:
            thresholds = Thresholds(np.greater_equal, np.asarray(inputs.by_name[str(target.number)][1]))
            outputs["value"] = inputs.value(target.name, wide)
        thresholds = thresholds.from_easy_to_hard()
    buffers = {
        name: aligned(TILE_POINTS, value.dtype) for name, value in (outputs | {"masked": outputs["score"]}).items()
    }
    reads_time = metric not in inputs.by_name and "step_time" in DERIVED[metric].needs
    return _Objective(Program(outputs, {}), thresholds, buffers, reads_time)


def _holds(inputs: NamedArrays, c: Condition, wide: Callable[[str, Array], Value]) -> Value:
    """Return where a condition holds: NaN never does."""
    value = inputs.value(c.name, wide)
    holds: Value = OPERATORS[c.op](value, c.number)
    return apply(np.logical_and, holds, apply(np.equal, value, value)) if c.op == "!=" else holds


def _missed(holds: Array, out: Array) -> None:
    """Set all bits where a condition fails, none where it holds."""
    np.copyto(out, holds.view(np.int8))
    np.subtract(out, 1, out=out)


def _masked_score(score: Array, missed: Array, out: Array) -> None:
    """Set the score to NaN, which is all bits set, where a condition fails: much faster than a masked write."""
    np.bitwise_or(score.view(np.int64), missed, out=out.view(np.int64))


@dataclass
class _Search:
    """The best score so far along some axes, by target, and its position in the order of the search."""

    lengths: tuple[int, ...]
    strides: Sequence[int]
    n_targets: int
    best: Array = field(init=False)
    first: Array = field(init=False)

    def __post_init__(self) -> None:
        self.along = tuple(i for i, stride in enumerate(self.strides) if stride)
        rest = [1 if i in self.along else n for i, n in enumerate(self.lengths)]
        self.never = np.iinfo(np.int64).max
        self.best = np.full((self.n_targets, *rest), -np.inf)
        self.first = np.full((self.n_targets, *rest), self.never)
        self._shapes: dict[tuple[int, ...], tuple[Array, Array]] = {}
        self._mask = aligned(TILE_POINTS, np.bool_)

    def tiles(self) -> list[Tile]:
        """Return tiles that cover everything: runs along the innermost axis, and what fits of the searched axes."""
        n = len(self.lengths)
        steps = [1] * n
        innermost = max((i for i in range(n) if self.lengths[i] > 1), default=0)

        def grow(i: int, most: int) -> None:
            parts = -(-self.lengths[i] // max(1, most))
            steps[i] = -(-self.lengths[i] // parts)

        grow(innermost, TILE_POINTS if innermost in self.along else ROW_POINTS)
        for i in sorted(range(n), key=lambda i: (i in self.along, i), reverse=True):
            grow(i, steps[i] * (TILE_POINTS // math.prod(steps)))
        ranges = [
            [slice(i, min(i + step, length)) for i in range(0, length, step)]
            for step, length in zip(steps, self.lengths, strict=True)
        ]
        return list(itertools.product(*ranges))

    def update(self, targets: slice, score: Array, tile: Tile) -> None:
        """Update the best of targets from a tile of scores; NaN is never best."""
        index = targets, *(slice(None) if i in self.along else s for i, s in enumerate(tile))
        best, first = self.best[index], self.first[index]
        here = np.fmax.reduce(score, axis=self.along, keepdims=True)
        reach = (here >= best) & (here > -np.inf)
        if not reach.any():
            return
        limit = np.where(reach.any(axis=0), here, np.nan)
        hits = np.flatnonzero(np.equal(score, limit, out=self._mask[: score.size].reshape(score.shape)))
        ranks, columns = self._ranks(score.shape)
        earliest: Array = np.full(here.size, self.never)
        start = sum(s.start * stride for s, stride in zip(tile, self.strides, strict=True))
        np.minimum.at(earliest, columns[hits], ranks[hits] + start)
        earliest = earliest.reshape(here.shape)
        better = reach & ((here > best) | (earliest < first))
        np.copyto(best, here, where=better)
        np.copyto(first, earliest, where=better)

    def _ranks(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return for every point of a tile its position in the order of the search, and its column; both from 0."""
        if shape not in self._shapes:
            indices = np.indices(shape, dtype=np.int64, sparse=True)
            ranks = sum(index * stride for index, stride in zip(indices, self.strides, strict=True))
            kept = [1 if i in self.along else n for i, n in enumerate(shape)]
            columns = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape)
            self._shapes[shape] = np.broadcast_to(ranks, shape).reshape(-1), columns.reshape(-1)
        return self._shapes[shape]
