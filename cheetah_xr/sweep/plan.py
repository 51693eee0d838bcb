"""What a sweep stores and how a block of it is made: all a worker needs beside the place to write to."""

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


@dataclass(frozen=True)
class Product:
    """One stored array."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]
    coords: Mapping[str, list[str] | list[float]]

    @property
    def nbytes(self) -> int:
        """Bytes before compression."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """Value of points that are not computed."""
        return np.nan if self.dtype.kind == "f" else -1 if self.dtype.kind == "i" and self.dtype.itemsize < 8 else 0


@dataclass(frozen=True)
class Recipe:
    """An engine, the variables that are stored as they are, and the reductions."""

    engine: Engine
    outputs: tuple[str, ...]
    reductions: tuple[Best | Histogram, ...]
    products: tuple[Product, ...]
    described: Mapping[str, str]
    beside: Mapping[str, tuple[tuple[str, ...], Array]]

    @property
    def whole_dims(self) -> tuple[str, ...]:
        """Dims a block holds whole, because something is reduced along them."""
        return tuple(dict.fromkeys(dim for r in self.reductions for dim in r.over))

    @property
    def nbytes(self) -> int:
        """Bytes of the result before compression."""
        return sum(product.nbytes for product in self.products)

    def make(self, selection: Selection) -> dict[str, Array]:
        """Arrays of a block."""
        values = self.engine.compute(selection)
        made = {name: values[name] for name in self.outputs}
        for reduction in self.reductions:
            if isinstance(reduction, Best):
                made |= self._chosen(reduction, values, selection)
            else:
                found = reduction.of(block_dataset(self.engine, values, selection))
                made |= {str(name): array.values for name, array in found.data_vars.items()}
        return {p.name: made[p.name].astype(p.dtype, copy=False) for p in self.products}

    def _chosen(self, reduction: Best, values: Mapping[str, Array], selection: Selection) -> dict[str, Array]:
        """The best points of a block, without the cost of labels."""
        grid = self.engine.grid
        whole = {dim: range(n)[selection.get(dim, slice(None))] for dim, n in grid.sizes.items()}
        arrays = {
            name: (dims, v[tuple(slice(whole[dim].start, whole[dim].stop) for dim in dims)])
            for name, (dims, v) in self.beside.items()
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
                label = f"best_{name}"
                text = axis_labels(self.engine, label)
                named, found = choice.pick(NUMBER + name if text else name)
                picked[label] = named, np.where(np.isnan(found), -1, found) if text else found
        order = {product.name: product.dims for product in self.products}
        return {name: v.transpose([dims.index(dim) for dim in order[name]]) for name, (dims, v) in picked.items()}


NUMBER = "number of "
"""What stands before the name of a text coordinate whose labels are given as their numbers."""


def numbers_beside(engine: Engine) -> dict[str, tuple[tuple[str, ...], Array]]:
    """What metrics read beside the variables: coordinates, and what follows from them."""
    ds = block_dataset(engine, {}, {})
    found = {name: (dims, np.asarray(v)) for name, (dims, v, _) in engine.grid.coords.items()}
    for name, (dims, v) in list(found.items()):
        found[NUMBER + name] = dims, np.arange(v.size).reshape(v.shape)
    for name in ("accepted", "sequence_tokens"):
        values = xr.DataArray(COMPUTED_INPUTS[name](ds))
        found[name] = tuple(map(str, values.dims)), values.values
    return found


def make_recipe(sweep: Sweep) -> Recipe:
    """Resolve a sweep.

    Raises
    ------
    SpecError
        Naming key, value and what is allowed.
    """
    reductions = sweep.reductions
    needed = stored_for([name for r in reductions for name in r.needs], clipped=sweep.clips)
    engine = prepare(sweep.axes(), list(dict.fromkeys([*sweep.stored, *needed])))
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
            f"{', '.join(twice)} would be stored twice, as an output and reduced: leave it out of one of them"
        )
    described = {"title": sweep.title, "question": sweep.question}
    return Recipe(engine, outputs, reductions, tuple(products), described, numbers_beside(engine))


def stored_product(engine: Engine, name: str) -> Product:
    """A variable stored as it is: flags int8, float64 without batch and seq_len, else float32."""
    dims = engine.dims_of(name)
    large = {BATCH, SEQ_LEN} & set(dims)
    dtype = np.int8 if VARIABLES[name].kind == "flag" else np.float32 if large else np.float64
    return Product(name, dims, _shape(engine, dims), np.dtype(dtype), attributes(name), {})


def _shape(engine: Engine, dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(engine.grid.sizes[dim] for dim in dims)


def reduced_products(engine: Engine, reductions: Sequence[Best | Histogram]) -> list[Product]:
    """What the reductions store, learned from reducing a miniature of the sweep."""
    if not reductions:
        return []
    found = []
    miniature = {dim: slice(0, min(size, 2)) for dim, size in engine.grid.sizes.items()}
    ds = block_dataset(engine, engine.compute(miniature), miniature)
    for name, values in (item for r in reductions for item in r.of(ds).data_vars.items()):
        dims = tuple(map(str, values.dims))
        new = {dim: values[dim].values.tolist() for dim in dims if dim not in engine.grid.sizes}
        shape = tuple(engine.grid.sizes.get(dim, values.sizes[dim]) for dim in dims)
        attrs = dict(values.attrs)
        labels = axis_labels(engine, str(name))
        if labels:
            numbers = np.arange(len(labels), dtype=np.int16)
            attrs |= {"flag_values": numbers, "flag_meanings": " ".join(labels), "comment": "-1 means none"}
        dtype = np.dtype(np.int16) if labels else values.dtype
        found.append(Product(str(name), dims, shape, dtype, attrs, new))
    return found


def axis_labels(engine: Engine, name: str) -> list[str]:
    """Labels a ``best_<axis>`` chooses among, when they are text."""
    coord = engine.grid.coords.get(name.removeprefix("best_"))
    values = np.asarray(coord[1]) if coord is not None and name.startswith("best_") else np.zeros(0)
    return [] if np.issubdtype(values.dtype, np.number) else [str(label) for label in values]


def block_dataset(engine: Engine, values: Mapping[str, Array], selection: Selection) -> xr.Dataset:
    """A block's arrays with their coordinates and attributes, as :func:`cheetah_xr.evaluate` would return them."""
    coords = {k: (dims, v, attrs) for k, (dims, v, attrs) in engine.grid.coords.items()}
    ds = xr.Dataset(coords=coords).isel({dim: s for dim, s in selection.items() if dim in engine.grid.sizes})
    for name, array in values.items():
        ds[name] = (engine.dims_of(name), array, attributes(name))
    return ds.assign_attrs(dataset_attributes(engine.grid))
