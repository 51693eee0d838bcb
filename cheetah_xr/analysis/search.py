"""Search: the best point along axes, tile by tile, for one aim or for every value of a target at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import Program, Value, apply, later
from .choice import Choice, Numbers
from .conditions import OPERATORS, Condition
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
    target = next((c for c in conditions if isinstance(c.number, str)), None)
    axis = None if target is None else str(target.number)
    order = numbers.order
    lengths = [numbers.sizes[dim] if dim in used and dim != axis else 1 for dim in order]
    goal = _goal(numbers, metric, conditions, target, minimize=minimize)
    search = _Search(tuple(lengths), _strides(numbers, over), goal.limits.values.size)
    for place in search.tiles():
        goal.look(search, place)
    best, first = search.best[goal.limits.places], search.first[goal.limits.places]
    if axis is None:
        best, first = best[0], first[0]
    else:
        at = order.index(axis)
        best, first = (np.moveaxis(a.squeeze(at + 1), 0, at) for a in (best, first))
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
    """What is to be as large as possible, NaN where a condition fails, and what targets are compared with."""

    program: Program
    limits: Limits
    buffers: Mapping[str, Array]
    masked: Array

    def look(self, search: _Search, place: Place) -> None:
        """Compute a tile, and search it for every target that it may change."""
        shape = [s.stop - s.start for s in place]
        size = math.prod(shape)
        tile = {name: buffer[:size].reshape(shape) for name, buffer in self.buffers.items()}
        self.program.run(place, tile)
        score = tile["score"]
        if "value" not in tile:
            search.see(slice(0, 1), score, place)
            return
        everywhere, somewhere = self.limits.reached(tile["value"])
        if everywhere:
            search.see(slice(0, everywhere), score, place)
        masked = self.masked[:size].reshape(shape)
        bits = masked.view(np.int64)
        for number in range(everywhere, somewhere):
            np.copyto(bits, self.limits.missed(number, tile["value"]))
            np.bitwise_or(bits, score.view(np.int64), out=bits)
            search.see(slice(number, number + 1), masked, place)


def _goal(
    numbers: Numbers, metric: str, conditions: Sequence[Condition], target: Condition | None, *, minimize: bool
) -> _Goal:
    """The expressions of a choice."""
    known: dict[Any, Value] = {}

    def wide(name: str, array: Array) -> Value:
        if array.dtype.kind not in "iuf":
            return array
        return known.setdefault((name, array.shape), later(array, np.float64))

    score = numbers.value(metric, wide)
    score = apply(np.negative, score) if minimize else score
    holds: list[Value] = []
    for c in conditions:
        if c is target:
            continue
        found = limits_of(numbers, c)
        if found is not None:
            holds.append(apply(found.compare, found.step_time, found.values.reshape(())))
            continue
        value = numbers.value(c.name, wide)
        holds.append(OPERATORS[c.op](value, c.number))
        if c.op == "!=":  # NaN never holds
            holds.append(apply(np.equal, value, value))
    if holds:
        missed = apply(_missed, reduce(partial(apply, np.logical_and), holds), dtype=np.int64)
        score = apply(_nan_too, score, missed, dtype=np.float64)
    outputs, limits = {"score": score}, Limits(np.greater_equal, np.full(1, -np.inf))
    if target is not None:
        limits = limits_of(numbers, target) or Limits(np.greater_equal, numbers.arrays[str(target.number)][1])
        outputs["value"] = numbers.value(target.name, wide) if limits.step_time is None else limits.step_time
        limits = limits.from_easy_to_hard()
    buffers = {name: np.empty(TILE_POINTS, value.dtype) for name, value in outputs.items()}
    return _Goal(Program(outputs, {}), limits, buffers, np.empty(TILE_POINTS if target else 0))


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
        self._mask = np.empty(TILE_POINTS, np.bool_)

    def tiles(self) -> Iterator[Place]:
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
        yield from itertools.product(*ranges)

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
