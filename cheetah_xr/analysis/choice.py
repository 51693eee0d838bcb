"""Inputs and result of a search for the best point on plain arrays: of a dataset or of a block of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.dims import PHASE
from ..engine.lazy import Value, apply, nan_where
from .derive import DERIVED

Array = NDArray[Any]


@dataclass(frozen=True)
class NamedArrays:
    """Variables, coordinates and inputs of metrics by name, with their dims.

    `names` are all dims as results name them, `order` those in the order arrays are laid out in.
    """

    names: tuple[str, ...]
    order: tuple[str, ...]
    sizes: Mapping[str, int]
    by_name: Mapping[str, tuple[tuple[str, ...], Any]]

    def dims(self, name: str) -> set[str]:
        """Return the dims of a variable or metric."""
        if name in self.by_name:
            return set(self.by_name[name][0])
        metric = DERIVED[name]
        needs = (*metric.needs, *metric.computed, *([PHASE] if metric.phase else []))
        dims = {dim for need in needs for dim in self.dims(need)}
        return dims - {PHASE} if metric.phase else dims

    def aligned(self, name: str) -> Array:
        """Return an array with an axis for every dim."""
        dims, values = self.by_name[name]
        array = np.asarray(values).transpose([dims.index(dim) for dim in self.order if dim in dims])
        return array.reshape([self.sizes[dim] if dim in dims else 1 for dim in self.order])

    def placed(self, values: Array, dims: set[str]) -> tuple[list[str], Array]:
        """Return dims as results name them, and the values of an aligned array that has these."""
        left = [dim for dim in self.order if dim in dims]
        whole = np.broadcast_to(values, [self.sizes[dim] if dim in dims else 1 for dim in self.order])
        flat = whole.reshape([self.sizes[dim] for dim in left])
        named = [dim for dim in self.names if dim in dims]
        return named, flat.transpose([left.index(dim) for dim in named])

    def value(self, name: str, view: Callable[[str, Array], Value]) -> Value:
        """Return a variable or metric from a `view` of each of its inputs; NaN outside the phase of a metric."""
        if name in self.by_name:
            return view(name, self.aligned(name))
        metric, part = DERIVED[name], {}
        phases = self.by_name[PHASE][0] if metric.phase else ()
        for need in (*metric.needs, *metric.computed):
            array = self.aligned(need)
            if PHASE in phases and PHASE in self.by_name[need][0]:
                number = np.flatnonzero(np.asarray(self.by_name[PHASE][1]) == metric.phase)
                array = array.take(number[:1], axis=self.order.index(PHASE))
            part[need] = view(need, array)
        value: Value = metric.formula(part)
        if phases and PHASE not in phases:  # phases along another axis, such as that of layouts
            value = apply(
                np.add, value, nan_where(view(PHASE, self.aligned(PHASE) != metric.phase), np.dtype(np.float64))
            )
        return value


@dataclass(frozen=True)
class Choice:
    """Indices of the best point by dim searched, and whether one qualifies; arrays have an axis for every dim."""

    inputs: NamedArrays
    other_dims: frozenset[str]
    indices: Mapping[str, Array]
    qualifies: Array

    def pick(self, name: str) -> tuple[list[str], Array]:
        """Return dims and values of a variable or metric at the best point; NaN, -1 or "" where none qualifies."""
        values = np.asarray(self.inputs.value(name, self._picked))
        if values.dtype.kind in "iuf" and values.dtype != np.int8:
            values = np.where(self.qualifies, values, np.nan)
        else:
            missing: Any = np.int8(-1) if values.dtype == np.int8 else ""
            shape = np.broadcast_shapes(values.shape, self.qualifies.shape)
            values = np.array(np.broadcast_to(values, shape))
            values[~np.broadcast_to(self.qualifies, shape)] = missing
        return self.inputs.placed(values, (self.inputs.dims(name) - set(self.indices)) | self.other_dims)

    def _picked(self, name: str, array: Array) -> Array:
        order = self.inputs.order
        if all(n == 1 for dim, n in zip(order, array.shape, strict=True) if dim in self.indices):
            return array
        index = []
        for axis, (dim, n) in enumerate(zip(order, array.shape, strict=True)):
            along = np.arange(n).reshape([n if i == axis else 1 for i in range(len(order))])
            index.append(self.indices[dim] if dim in self.indices and n > 1 else along)
        return array[tuple(index)]
