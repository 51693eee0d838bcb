"""The plan of a sweep: what it stores and how a block is computed; a worker needs this and a location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..analysis.choice import NamedArrays
from ..analysis.derive import COMPUTED_INPUTS
from ..api import stored_for
from ..engine.dims import BATCH, SEQ_LEN
from ..engine.evaluator import Engine, Selection, attributes, dataset_attributes, prepare
from ..engine.variables import VARIABLES
from ..specs import SpecError
from .config import Sweep
from .reductions import Best, Histogram

Array = NDArray[Any]

BEST = "best_"
"""Prefix of the stored variables that say where the best point is."""


@dataclass(frozen=True)
class StoredArray:
    """One stored array: name, dims, type and attributes, without values."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]
    coords: Mapping[str, list[str] | list[float]]

    @property
    def nbytes(self) -> int:
        """Count bytes before compression."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def fill_value(self) -> float:
        """Return the value of points that are not computed."""
        return np.nan if self.dtype.kind == "f" else -1 if self.dtype.kind == "i" and self.dtype.itemsize < 8 else 0


@dataclass(frozen=True)
class Plan:
    """An engine, the variables that are stored as they are, and the reductions."""

    engine: Engine
    outputs: tuple[str, ...]
    reductions: tuple[Best | Histogram, ...]
    products: tuple[StoredArray, ...]
    attrs: Mapping[str, str]
    metric_inputs: Mapping[str, tuple[tuple[str, ...], Array]]

    @property
    def whole_dims(self) -> tuple[str, ...]:
        """Return the dims that are never cut into blocks, because a reduction runs along them."""
        return tuple(dict.fromkeys(dim for r in self.reductions for dim in r.over))

    @property
    def nbytes(self) -> int:
        """Count the bytes of the store before compression."""
        return sum(product.nbytes for product in self.products)

    def compute_block(self, selection: Selection) -> dict[str, Array]:
        """Compute the stored arrays of a block."""
        values = self.engine.compute(selection)
        arrays = {name: values[name] for name in self.outputs}
        for reduction in self.reductions:
            if isinstance(reduction, Best):
                arrays |= self._best_points(reduction, values, selection)
            else:
                reduced = reduction.of(block_dataset(self.engine, values, selection))
                arrays |= {str(name): array.values for name, array in reduced.data_vars.items()}
        return {p.name: arrays[p.name].astype(p.dtype, copy=False) for p in self.products}

    def _best_points(self, reduction: Best, values: Mapping[str, Array], selection: Selection) -> dict[str, Array]:
        """Choose the best points of a block, without the cost of labels."""
        grid = self.engine.grid
        whole = {dim: range(n)[selection.get(dim, slice(None))] for dim, n in grid.sizes.items()}
        arrays = {
            name: (dims, v[tuple(slice(whole[dim].start, whole[dim].stop) for dim in dims)])
            for name, (dims, v) in self.metric_inputs.items()
        }
        arrays |= {name: (self.engine.dims_of(name), array) for name, array in values.items()}
        running = (
            COMPUTED_INPUTS["running"](block_dataset(self.engine, values, selection)) if grid.options.clips else None
        )
        arrays["running"] = arrays[BATCH] if running is None else (running.dims, running.values)
        numbers = NamedArrays(grid.dims, grid.order, {dim: len(r) for dim, r in whole.items()}, arrays)
        choice = reduction.choose(numbers)
        picked = {name: choice.pick(name) for name in (reduction.metric, *reduction.keep)}
        for name, (dims, _, _) in grid.coords.items():
            if set(dims) & set(reduction.over):
                chosen = best_name(name)
                dims, numbers_or_values = choice.pick(chosen)
                if text_labels(self.engine, chosen):
                    numbers_or_values = np.where(np.isnan(numbers_or_values), -1, numbers_or_values)
                picked[chosen] = dims, numbers_or_values
        order = {product.name: product.dims for product in self.products}
        return {name: v.transpose([dims.index(dim) for dim in order[name]]) for name, (dims, v) in picked.items()}


def best_name(coordinate: str) -> str:
    """Return the name of the stored variable that says where along `coordinate` the best point is."""
    return BEST + coordinate


def metric_inputs(engine: Engine) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Return what metrics read besides the variables: coordinates, and numbers computed from them.

    Under the name of :func:`best_name` stands what is stored of a coordinate: its numbers, or the index of its text.
    """
    ds = block_dataset(engine, {}, {})
    inputs = {name: (dims, np.asarray(v)) for name, (dims, v, _) in engine.grid.coords.items()}
    for name, (dims, v) in list(inputs.items()):
        is_text = bool(text_labels(engine, best_name(name)))
        inputs[best_name(name)] = dims, np.arange(v.size).reshape(v.shape) if is_text else v
    for name in ("accepted", "sequence_tokens"):
        values = xr.DataArray(COMPUTED_INPUTS[name](ds))
        inputs[name] = tuple(map(str, values.dims)), values.values
    return inputs


def make_plan(sweep: Sweep) -> Plan:
    """Resolve the records of a sweep and plan what it stores.

    Raises
    ------
    SpecError
        Naming key, value and what is allowed.
    """
    reductions, axes = sweep.reductions, sweep.axes()
    needed = stored_for([name for r in reductions for name in r.needs], clipped=axes.options.clips)
    engine = prepare(axes, list(dict.fromkeys([*sweep.stored, *needed])))
    for reduction in reductions:
        absent = [dim for dim in reduction.over if dim not in engine.grid.dims]
        if absent:
            raise SpecError(f"over: {', '.join(absent)} is not an axis; axes: {', '.join(engine.grid.dims) or 'none'}")
    outputs = tuple(sweep.stored)
    products = [stored_product(engine, name) for name in outputs]
    products += reduced_products(engine, reductions)
    names = [product.name for product in products]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(
            f"{', '.join(twice)} would be stored twice, as an output and by a reduction; remove it from one of them"
        )
    attrs = {"title": sweep.title, "question": sweep.question}
    return Plan(engine, outputs, reductions, tuple(products), attrs, metric_inputs(engine))


def stored_product(engine: Engine, name: str) -> StoredArray:
    """Describe a variable stored point by point: flags int8, float64 without batch and seq_len, else float32."""
    dims = engine.dims_of(name)
    large = {BATCH, SEQ_LEN} & set(dims)
    dtype = np.int8 if VARIABLES[name].kind == "flag" else np.float32 if large else np.float64
    return StoredArray(name, dims, _shape(engine, dims), np.dtype(dtype), attributes(name), {})


def _shape(engine: Engine, dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(engine.grid.sizes[dim] for dim in dims)


def reduced_products(engine: Engine, reductions: Sequence[Best | Histogram]) -> list[StoredArray]:
    """Describe what the reductions store, by reducing a miniature of the sweep."""
    if not reductions:
        return []
    products = []
    miniature = {dim: slice(0, min(size, 2)) for dim, size in engine.grid.sizes.items()}
    ds = block_dataset(engine, engine.compute(miniature), miniature)
    for name, values in (item for r in reductions for item in r.of(ds).data_vars.items()):
        dims = tuple(map(str, values.dims))
        new = {dim: values[dim].values.tolist() for dim in dims if dim not in engine.grid.sizes}
        shape = tuple(engine.grid.sizes.get(dim, values.sizes[dim]) for dim in dims)
        attrs = dict(values.attrs)
        labels = text_labels(engine, str(name))
        if labels:
            numbers = np.arange(len(labels), dtype=np.int16)
            attrs |= {"flag_values": numbers, "flag_meanings": " ".join(labels), "comment": "-1 means none"}
        dtype = np.dtype(np.int16) if labels else values.dtype
        products.append(StoredArray(str(name), dims, shape, dtype, attrs, new))
    return products


def text_labels(engine: Engine, name: str) -> list[str]:
    """Return the labels among which a ``best_<coordinate>`` chooses, when they are text."""
    coord = engine.grid.coords.get(name.removeprefix(BEST))
    values = np.asarray(coord[1]) if coord is not None and name.startswith(BEST) else np.zeros(0)
    return [] if np.issubdtype(values.dtype, np.number) else [str(label) for label in values.flat]


def block_dataset(engine: Engine, values: Mapping[str, Array], selection: Selection) -> xr.Dataset:
    """Label a block's arrays with coordinates and attributes, as :func:`cheetah_xr.evaluate` returns them."""
    coords = {k: (dims, v, attrs) for k, (dims, v, attrs) in engine.grid.coords.items()}
    ds = xr.Dataset(coords=coords).isel({dim: s for dim, s in selection.items() if dim in engine.grid.sizes})
    for name, array in values.items():
        ds[name] = (engine.dims_of(name), array, attributes(name))
    return ds.assign_attrs(dataset_attributes(engine.grid))
