"""What is chosen from and what was chosen, on plain arrays: of a dataset in :func:`best`, of a block in a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.dims import PHASE
from ..engine.lazy import Value, nan_where
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
        needs = (*metric.needs, *metric.computed, *([PHASE] if metric.phase else []))
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
        for need in (*metric.needs, *metric.computed):
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
