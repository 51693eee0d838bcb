"""Choosing along axes, on plain arrays and tile by tile: what :func:`best` does to a dataset and a sweep to a block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dims import PHASE
from ..engine import TILE_POINTS, pieces
from ..expressions import Program, Value, apply, later, nan_where
from .conditions import OPERATORS, Condition
from .derive import DERIVED

Array = NDArray[Any]


@dataclass(frozen=True)
class Numbers:
    """Variables, coordinates and what metrics are made of, by name with their dims.

    `names` are all dims as results name them, `order` those in the order arrays are laid out in.
    """

    names: tuple[str, ...]
    order: tuple[str, ...]
    sizes: Mapping[str, int]
    arrays: Mapping[str, tuple[tuple[str, ...], Any]]

    def dims(self, name: str) -> set[str]:
        """Dims of a variable or metric."""
        if name in self.arrays:
            return set(self.arrays[name][0])
        metric = DERIVED[name]
        needs = (*metric.needs, *metric.also, *([PHASE] if metric.phase else []))
        dims = {dim for need in needs for dim in self.dims(need)}
        return dims - {PHASE} if metric.phase else dims

    def aligned(self, name: str) -> Array:
        """An array with an axis for every dim."""
        dims, values = self.arrays[name]
        array = np.asarray(values).transpose([dims.index(dim) for dim in self.order if dim in dims])
        return array.reshape([self.sizes[dim] if dim in dims else 1 for dim in self.order])

    def placed(self, values: Array, dims: set[str]) -> tuple[list[str], Array]:
        """Dims as results name them, and an aligned array that has these."""
        left = [dim for dim in self.order if dim in dims]
        whole = np.broadcast_to(values, [self.sizes[dim] if dim in dims else 1 for dim in self.order])
        flat = whole.reshape([self.sizes[dim] for dim in left])
        named = [dim for dim in self.names if dim in dims]
        return named, flat.transpose([left.index(dim) for dim in named])

    def value(self, name: str, view: Callable[[str, Array], Value]) -> Value:
        """A variable or metric, `view` of every array it is made of; of its own phase only, if it has one."""
        if name in self.arrays:
            return view(name, self.aligned(name))
        metric, part = DERIVED[name], {}
        phases = self.arrays[PHASE][0] if metric.phase else ()
        for need in (*metric.needs, *metric.also):
            array = self.aligned(need)
            if PHASE in phases and PHASE in self.arrays[need][0]:
                number = np.flatnonzero(np.asarray(self.arrays[PHASE][1]) == metric.phase)
                array = array.take(number[:1], axis=self.order.index(PHASE))
            part[need] = view(need, array)
        value = metric.formula(part)
        if phases and PHASE not in phases:  # phases along another axis, such as that of layouts
            value = value + nan_where(view(PHASE, self.aligned(PHASE) != metric.phase), np.dtype(np.float64))
        return value


@dataclass(frozen=True)
class Choice:
    """Where the best point is, by dim chosen along, and whether there is one; with an axis for every dim."""

    numbers: Numbers
    rest: frozenset[str]
    at: Mapping[str, Array]
    found: Array

    def pick(self, name: str) -> tuple[list[str], Array]:
        """Dims and values of a variable or metric at the chosen point; NaN, -1 in flags or "" where there is none."""
        values = np.asarray(self.numbers.value(name, self._picked))
        if values.dtype.kind in "iuf" and values.dtype != np.int8:
            values = np.where(self.found, values, np.nan)
        else:
            missing: Any = np.int8(-1) if values.dtype == np.int8 else ""
            shape = np.broadcast_shapes(values.shape, self.found.shape)
            values, found = np.array(np.broadcast_to(values, shape)), np.broadcast_to(self.found, shape)
            values[~found] = missing
        return self.numbers.placed(values, (self.numbers.dims(name) - set(self.at)) | self.rest)

    def _picked(self, name: str, array: Array) -> Array:
        order = self.numbers.order
        if all(n == 1 for dim, n in zip(order, array.shape, strict=True) if dim in self.at):
            return array
        index = []
        for axis, (dim, n) in enumerate(zip(order, array.shape, strict=True)):
            along = np.arange(n).reshape([n if i == axis else 1 for i in range(len(order))])
            index.append(self.at[dim] if dim in self.at and n > 1 else along)
        return array[tuple(index)]


def choose(
    numbers: Numbers, metric: str, over: Sequence[str], conditions: Sequence[Condition], *, minimize: bool
) -> Choice:
    """Find the best point along `over`, on all dims that metric and conditions have; the first of equal ones."""
    used = {dim for name in (metric, *(name for c in conditions for name in c.names)) for dim in numbers.dims(name)}
    order, sizes = numbers.order, numbers.sizes
    program = _score(numbers, metric, conditions, minimize=minimize)
    axes = tuple(i for i, dim in enumerate(order) if dim in over)
    n, rank = _ranks(numbers, over)
    rest = [sizes[dim] if dim in used and dim not in over else 1 for dim in order]
    best, first = np.full(rest, -np.inf), np.zeros(rest, dtype=rank.dtype)
    block = {dim: slice(0, sizes[dim] if dim in used else 1) for dim in order}
    memory = np.empty(TILE_POINTS // 2), np.empty(TILE_POINTS // 2, dtype=np.bool_)
    for piece in pieces(block, order, TILE_POINTS // 2, ()):
        place = tuple(piece[dim] for dim in order)
        shape = [s.stop - s.start for s in place]
        score, fails = (m[: math.prod(shape)].reshape(shape) for m in memory)
        program.run(place, {"score": score, "fails": fails})
        if fails.all():
            continue
        np.copyto(score, np.nan, where=fails)
        here = np.fmax.reduce(score, axis=axes, keepdims=True, initial=-np.inf)
        kept = tuple(slice(None) if i in axes else s for i, s in enumerate(place))
        if not (here >= best[kept]).any():
            continue
        ranks = rank[tuple(s if i in axes and order[i] in used else slice(None) for i, s in enumerate(place))]
        there = np.multiply(np.equal(score, here, out=fails), ranks).max(axis=axes, keepdims=True)
        better = (here > best[kept]) | ((here == best[kept]) & (there > first[kept]))
        np.copyto(best[kept], here, where=better)
        np.copyto(first[kept], there, where=better)
    # Flat, because NumPy 2.4.6 gets arrays of more than 8192 elements wrong whose last axis is of length 1.
    indices = np.unravel_index((n - np.maximum(first, 1)).reshape(-1), [sizes[dim] for dim in over])
    at = {dim: index.reshape(rest) for dim, index in zip(over, indices, strict=True)}
    return Choice(numbers, frozenset(used - set(over)), at, np.isfinite(best) & (first > 0))


def _ranks(numbers: Numbers, over: Sequence[str]) -> tuple[int, Array]:
    """Points along `over`, and of each how many follow, itself included: the largest of equal ones is the first."""
    shape = [numbers.sizes[dim] for dim in over]
    n = math.prod(shape)
    ranks = np.arange(n, 0, -1, dtype=np.int32 if n < 2**31 else np.int64).reshape(shape)
    present = [dim for dim in numbers.order if dim in over]
    moved = ranks.transpose([list(over).index(dim) for dim in present])
    return n, moved.reshape([numbers.sizes[dim] if dim in over else 1 for dim in numbers.order])


def _score(numbers: Numbers, metric: str, conditions: Sequence[Condition], *, minimize: bool) -> Program:
    """What is to be as large as possible, and where some condition fails: NaN never holds."""
    known: dict[Any, Value] = {}

    def wide(name: str, array: Array) -> Value:
        if array.dtype.kind not in "iuf":
            return array
        key = name, array.shape
        return known.setdefault(key, later(array, np.float64))

    score = numbers.value(metric, wide)
    fails: list[Value] = []
    for c in conditions:
        value = numbers.value(c.name, wide)
        limit = numbers.value(c.number, wide) if isinstance(c.number, str) else c.number
        fails.append(apply(np.logical_not, OPERATORS[c.op](value, limit)))
        if c.op == "!=":
            fails.append(apply(np.isnan, value))
    failed = reduce(partial(apply, np.logical_or), fails) if fails else np.bool_(False)
    return Program({"score": apply(np.negative, score) if minimize else score, "fails": failed}, {})
