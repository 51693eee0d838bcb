"""Search: the best point along axes, tile by tile, for one aim or for every value of a target at once."""

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
from .choice import Choice, Numbers
from .conditions import OPERATORS, Condition
from .derive import DERIVED
from .limits import Limits, limits_of

Array = NDArray[Any]
Place = tuple[slice, ...]

TILE_POINTS = 32_768
"""Points looked at once: four arrays of a quarter of a megabyte stay in a core's cache."""

ROW_POINTS = 1024
"""Points along the innermost axis, enough for quick loops; the rest of a tile is along what is searched."""


def choose(
    numbers: Numbers, metric: str, over: Sequence[str], conditions: Sequence[Condition], *, minimize: bool
) -> Choice:
    """Find the best point along `over`, on all dims that metric and conditions have; the first of equal ones.

    A condition whose number is a coordinate is a target: every value of it has an answer of its own.
    """
    used = {dim for name in (metric, *(name for c in conditions for name in c.names)) for dim in numbers.dims(name)}
    axis = next((c.number for c in conditions if isinstance(c.number, str)), None)
    order = numbers.order
    lengths = [numbers.sizes[dim] if dim in used and dim != axis else 1 for dim in order]
    goal = _goal(numbers, metric, conditions, minimize=minimize)
    search = _Search(tuple(lengths), _strides(numbers, over), goal.n_limits)
    places = search.tiles()
    with quick_loops(places[0][-1].stop if order else 1):
        for place in places:
            goal.look(search, place)
    best, first = search.best[0], search.first[0]
    if axis is not None and goal.limits is not None:
        at, given = order.index(axis), goal.limits.places
        best, first = (np.moveaxis(a[given].squeeze(at + 1), 0, at) for a in (search.best, search.first))
    sizes = [numbers.sizes[dim] for dim in over]
    # Flat, because NumPy 2.4.6 gets arrays of more than 8192 elements wrong whose last axis is of length 1.
    indices = np.unravel_index(np.minimum(first, math.prod(sizes) - 1).reshape(-1), sizes)
    chosen = {dim: index.reshape(first.shape) for dim, index in zip(over, indices, strict=True)}
    return Choice(numbers, frozenset(used - set(over)), chosen, np.isfinite(best))


def _strides(numbers: Numbers, over: Sequence[str]) -> list[int]:
    """Of every dim, how much later a step along it comes in the order of `over`; 0 for the others."""
    steps = {dim: math.prod(numbers.sizes[after] for after in over[i + 1 :]) for i, dim in enumerate(over)}
    return [steps.get(dim, 0) for dim in numbers.order]


@dataclass(frozen=True)
class _Goal:
    """What is to be as large as possible, NaN where a condition fails, and the limits of one more condition."""

    program: Program
    limits: Limits | None
    buffers: Mapping[str, Array]
    nan_never_counts: bool

    @property
    def n_limits(self) -> int:
        """Answers that are asked for."""
        return 1 if self.limits is None else self.limits.values.size

    def look(self, search: _Search, place: Place) -> None:
        """Search a tile for every limit that some point of it reaches."""
        shape = [s.stop - s.start for s in place]
        tile = {name: buffer[: math.prod(shape)].reshape(shape) for name, buffer in self.buffers.items()}
        score, masked = tile["score"], tile.pop("masked")
        limits, everywhere, somewhere = self.limits, 1, 1
        if limits is not None and limits.step_time is not None:
            values = limits.at(place)
            everywhere, somewhere = limits.reached(values, nan_never_counts=self.nan_never_counts)
        if not somewhere:
            return
        self.program.run(place, tile)
        if limits is not None and limits.step_time is None:
            values = tile["value"]
            everywhere, somewhere = limits.reached(values, nan_never_counts=False)
        if everywhere:
            search.see(slice(0, everywhere), score, place)
        bits = masked.view(np.int64)
        for number in range(everywhere, somewhere):
            assert limits is not None
            np.copyto(bits, limits.missed(number, values))
            np.bitwise_or(bits, score.view(np.int64), out=bits)
            search.see(slice(number, number + 1), masked, place)


def _goal(numbers: Numbers, metric: str, conditions: Sequence[Condition], *, minimize: bool) -> _Goal:
    """The expressions of a choice, and the condition that is looked at first: the target, or one on the time."""
    known: dict[Any, Value] = {}

    def wide(name: str, array: Array) -> Value:
        if array.dtype.kind not in "iuf":
            return array
        return known.setdefault((name, array.shape), later(array, np.float64))

    score = numbers.value(metric, wide)
    outputs = {"score": apply(np.negative, score) if minimize else score}
    in_time = [limits_of(numbers, c) for c in conditions]
    targets = [i for i, c in enumerate(conditions) if isinstance(c.number, str)]
    at = next(iter([*targets, *(i for i, found in enumerate(in_time) if found is not None)]), None)
    holds = [_holds(numbers, c, wide) for i, c in enumerate(conditions) if i != at]
    if holds:
        missed = apply(_missed, reduce(partial(apply, np.logical_and), holds), dtype=np.int64)
        outputs["score"] = apply(_nan_too, outputs["score"], missed, dtype=np.float64)
    limits = None
    if at is not None:
        target, limits = conditions[at], in_time[at]
        if limits is None:
            limits = Limits(np.greater_equal, np.asarray(numbers.arrays[str(target.number)][1]))
            outputs["value"] = numbers.value(target.name, wide)
        limits = limits.from_easy_to_hard()
    buffers = {
        name: aligned(TILE_POINTS, value.dtype) for name, value in (outputs | {"masked": outputs["score"]}).items()
    }
    reads_time = metric not in numbers.arrays and "step_time" in DERIVED[metric].needs
    return _Goal(Program(outputs, {}), limits, buffers, reads_time)


def _holds(numbers: Numbers, c: Condition, wide: Callable[[str, Array], Value]) -> Value:
    """Where a condition holds: NaN never does."""
    value = numbers.value(c.name, wide)
    found: Value = OPERATORS[c.op](value, c.number)
    return apply(np.logical_and, found, apply(np.equal, value, value)) if c.op == "!=" else found


def _missed(holds: Array, out: Array) -> None:
    """All bits set where a condition fails, none where it holds."""
    np.copyto(out, holds.view(np.int8))
    np.subtract(out, 1, out=out)


def _nan_too(score: Array, missed: Array, out: Array) -> None:
    """NaN, which is all bits set, also where a condition fails: several times faster than writing where a mask says."""
    np.bitwise_or(score.view(np.int64), missed, out=out.view(np.int64))


@dataclass
class _Search:
    """The best so far along some axes, by target, and how early it comes in the order of what is searched."""

    lengths: tuple[int, ...]
    strides: Sequence[int]
    n_targets: int
    best: Array = field(init=False)
    first: Array = field(init=False)

    def __post_init__(self) -> None:
        self.along = tuple(i for i, stride in enumerate(self.strides) if stride)
        rest = [1 if i in self.along else n for i, n in enumerate(self.lengths)]
        self.nowhere = np.iinfo(np.int64).max
        self.best = np.full((self.n_targets, *rest), -np.inf)
        self.first = np.full((self.n_targets, *rest), self.nowhere)
        self._shapes: dict[tuple[int, ...], tuple[Array, Array]] = {}
        self._mask = aligned(TILE_POINTS, np.bool_)

    def tiles(self) -> list[Place]:
        """Places that cover everything: runs along the innermost axis, and all there is room for of the search."""
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

    def see(self, targets: slice, score: Array, place: Place) -> None:
        """Take a tile into account for targets that all of it may serve; NaN serves none."""
        index = targets, *(slice(None) if i in self.along else s for i, s in enumerate(place))
        best, first = self.best[index], self.first[index]
        here = np.fmax.reduce(score, axis=self.along, keepdims=True)
        reach = (here >= best) & (here > -np.inf)
        if not reach.any():
            return
        limit = np.where(reach.any(axis=0), here, np.nan)
        hits = np.flatnonzero(np.equal(score, limit, out=self._mask[: score.size].reshape(score.shape)))
        ranks, columns = self._ranks(score.shape)
        there: Array = np.full(here.size, self.nowhere)
        start = sum(s.start * stride for s, stride in zip(place, self.strides, strict=True))
        np.minimum.at(there, columns[hits], ranks[hits] + start)
        there = there.reshape(here.shape)
        better = reach & ((here > best) | (there < first))
        np.copyto(best, here, where=better)
        np.copyto(first, there, where=better)

    def _ranks(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Of every point of a tile, its place in the order of what is searched and its column; both from 0."""
        if shape not in self._shapes:
            indices = np.indices(shape, dtype=np.int64, sparse=True)
            ranks = sum(index * stride for index, stride in zip(indices, self.strides, strict=True))
            kept = [1 if i in self.along else n for i, n in enumerate(shape)]
            columns = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape)
            self._shapes[shape] = np.broadcast_to(ranks, shape).reshape(-1), columns.reshape(-1)
        return self._shapes[shape]
