"""Axes resolved once: labelled inputs as arrays aligned to the dims of a sweep.

Every number the model uses is an array with one axis per dim of the sweep (length 1 where it does not vary) or, where
it never varies, a plain float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..specs import (
    COMPUTE_TYPES,
    DEGREES,
    Efficiency,
    Options,
    ParallelDegrees,
    Record,
    SpecError,
    load_efficiency,
    load_gpu,
    load_model,
    load_precision,
)
from . import dims as d
from .inputs.arguments import Axes
from .inputs.axes import TYPES, Labelled, check_phase, label, labelled_integers, labelled_numbers, labelled_records
from .inputs.efficiency_rules import peaks, resolved_efficiencies
from .inputs.posterior_axis import RESIDUAL_SCALE, residual_scale

Array = NDArray[Any]

GPU_COORDS = ("hbm_bandwidth", "peak_bf16", "link_bandwidth", "memory_bytes", "tdp", "price_per_hour")
MODEL_COORDS = ("n_parameters", "n_parameters_active")
RECORD_COORDS = (*GPU_COORDS, *MODEL_COORDS)
"""Numbers of the records that are coordinates too, with the labels of their axis."""

FIELD_UNITS = {
    **dict.fromkeys(("hbm_bandwidth", "link_bandwidth", "link_pairwise", "nic_bandwidth"), "B/s"),
    **{f"peak_{t}": "FLOP/s" for t in ("fp32", "tf32", *COMPUTE_TYPES)},
    **dict.fromkeys(("memory_bytes", "reserve_bytes", "used_at_start_bytes"), "B"),
    "tdp": "W",
    "price_per_hour": "USD/h",
    **{f: "s" for f in Efficiency.numeric_fields() if f.startswith(("latency", "launch", "tau"))},
}


@dataclass(frozen=True)
class Grid:
    """A sweep resolved: dims in canonical order, coordinates, and aligned inputs.

    `order` is the order arrays are laid out in: loops over models and phases first, then the axes from short to long.
    `roots` says which dims each input ("gpu", "batch", "options", ...) occupies.
    """

    dims: tuple[str, ...]
    order: tuple[str, ...]
    sizes: dict[str, int]
    coords: dict[str, Any]
    inputs: dict[str, Array | float]
    roots: dict[str, tuple[str, ...]]
    models: Labelled
    phases: Labelled
    records: dict[str, tuple[Record, ...]]
    options: Options

    @property
    def n_points(self) -> int:
        """Count the points of the grid."""
        return int(np.prod([self.sizes[x] for x in self.dims], dtype=object)) if self.dims else 1

    def dims_of(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Return the dims of a variable that depends on these inputs, in canonical order."""
        used = {dim for root in inputs for dim in self.roots.get(root, ())}
        return tuple(dim for dim in self.dims if dim in used)


def build(axes: Axes) -> Grid:
    """Resolve arguments into a grid.

    Raises
    ------
    SpecError
        Naming the argument, its value and what is allowed.
    """
    given: dict[str, Labelled] = {}
    for name, load in (
        (d.MODEL, load_model),
        (d.GPU, load_gpu),
        (d.PRECISION, load_precision),
        (d.EFFICIENCY, load_efficiency),
        (d.PHASE, check_phase),
    ):
        given[name] = labelled_records(name, getattr(axes, name), load)
    for name in (d.BATCH, d.SEQ_LEN, *d.PARALLEL):
        given[name] = labelled_integers(name, getattr(axes, name), least=1 if name in d.PARALLEL else None)
    numbers = labelled_numbers(axes, given)
    _check_dims(axes, given, numbers)
    user = [dim for item in (*given.values(), *numbers.values()) for dim in item.dims]
    named = {*d.LEADING, *d.TRAILING}
    order = d.canonical(tuple(dict.fromkeys(dim for dim in user if dim not in named)))
    sizes = _sizes({**given, **numbers})
    dims = tuple(dim for dim in order if dim in sizes)
    loops = {*given[d.MODEL].dims, *given[d.PHASE].dims}
    layout = tuple(sorted(dims, key=lambda dim: (dim not in loops, sizes[dim])))
    return _resolve(axes, given, numbers, dims, layout, sizes)


def _check_dims(axes: Axes, given: Mapping[str, Labelled], numbers: Mapping[str, Labelled]) -> None:
    """A DataArray's dim is its own, a new one, or an axis that is there and has the same labels."""
    taken = {*TYPES, *given, *RECORD_COORDS, *FIELD_UNITS, "n_gpus"}
    replaced = {key.rpartition(".")[2]: item for key, item in numbers.items() if item.dims and key[:6] != "scale:"}
    axis_of = {**given, **replaced}
    own = {name: item.dims for name, item in axis_of.items()}
    for name, item in {**given, **numbers}.items():
        for dim in item.dims:
            if dim in taken and dim != name and own.get(dim) != (dim,) and dim != name.rpartition(".")[2]:
                raise SpecError(f"{name}: dim {dim!r} is the name of something else; give the DataArray another dim")
    arrays = {n: getattr(axes, n) for n in given} | dict(axes.overrides) | dict(axes.scales)
    for name, value in arrays.items():
        for axis in map(str, value.dims) if isinstance(value, xr.DataArray) else ():
            if axis in axis_of and axis not in (name, name.rpartition(".")[2]) and axis in value.coords:
                labels = [label(r) if axis in d.RECORDS else r for r in axis_of[axis].values]
                if value.coords[axis].values.tolist() != labels:
                    raise SpecError(f"{name}: labels of dim {axis!r} differ from those of the axis")


def _sizes(items: Mapping[str, Labelled]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, item in items.items():
        shape = (len(item.values),) if isinstance(item.values, tuple) else np.shape(item.values)
        for dim, size in zip(item.dims, shape, strict=False):
            if sizes.setdefault(dim, size) != size:
                raise SpecError(f"{name}: dim {dim!r} has {size} values here and {sizes[dim]} elsewhere")
    return sizes


def _resolve(
    axes: Axes,
    given: Mapping[str, Labelled],
    numbers: Mapping[str, Labelled],
    dims: tuple[str, ...],
    order: tuple[str, ...],
    sizes: dict[str, int],
) -> Grid:
    def align(item: Labelled) -> Array | float:
        values = np.asarray(item.values, dtype=np.float64)
        if values.ndim == 0:
            return float(values)
        present = [dim for dim in order if dim in item.dims]
        moved = np.transpose(values, [item.dims.index(dim) for dim in present])
        return moved.reshape([sizes[dim] if dim in present else 1 for dim in order])

    inputs: dict[str, Array | float] = {n: align(given[n]) for n in (d.BATCH, d.SEQ_LEN, *d.PARALLEL)}
    for record in (d.GPU, d.PRECISION, d.EFFICIENCY):
        item = given[record]
        for name in TYPES[record].numeric_fields():
            column = [_nan(getattr(r, name)) for r in item.values]
            inputs[f"{record}.{name}"] = align(Labelled(item.dims, column if item.dims else column[0]))
    roots = {n: list(given[n].dims) for n in given} | {"options": []}
    for key, item in numbers.items():
        scaled, _, name = key.rpartition(":")
        inputs[name] = align(item) * inputs[name] if scaled else align(item)
        roots[name.partition(".")[0]] += item.dims
    precisions = given[d.PRECISION]
    inputs |= peaks(precisions, inputs, order) | resolved_efficiencies(precisions, inputs, order)
    return Grid(
        dims=dims,
        order=order,
        sizes=sizes,
        coords=_coords(axes, given, numbers, dims),
        inputs=inputs,
        roots={n: tuple(dict.fromkeys(v)) for n, v in roots.items()},
        models=given[d.MODEL],
        phases=given[d.PHASE],
        records={n: given[n].values for n in d.RECORDS},
        options=axes.options,
    )


def _nan(value: Any) -> float:
    return np.nan if value is None else float(value)


def _coords(
    axes: Axes, given: Mapping[str, Labelled], numbers: Mapping[str, Labelled], dims: tuple[str, ...]
) -> dict[str, Any]:
    """Coordinates: labels, numbers of the axes, and what a reader needs with them, with units."""
    coords: dict[str, Any] = {}
    for name in (*d.RECORDS, d.PHASE):
        item = given[name]
        labels = np.array([label(r) for r in item.values], dtype=np.dtypes.StringDType())
        coords[name] = (item.dims, labels if item.dims else labels.reshape(()), {"long_name": name})
    for name, units in ((d.BATCH, "sequences"), (d.SEQ_LEN, "tokens"), *((degree, "1") for degree in d.PARALLEL)):
        coords[name] = (given[name].dims, given[name].values, {"long_name": LONG_NAMES[name], "units": units})
    for source in (
        axes.batch,
        axes.seq_len,
        *(getattr(axes, degree) for degree in d.PARALLEL),
        *axes.overrides.values(),
        *axes.scales.values(),
    ):
        if isinstance(source, xr.DataArray):
            for key, values in source.coords.items():
                if key in dims and key not in coords:
                    coords[str(key)] = (values.dims, values.values, dict(values.attrs))
    errors = {RESIDUAL_SCALE: residual_scale(axes.errors, given[d.MODEL])} if axes.errors else {}
    for name, values in {**axes.coords, **errors}.items():
        coords[name] = (values.dims, values.values, dict(values.attrs))
    coords["n_gpus"] = _n_gpus(given)
    gpu = given[d.GPU]
    for name in GPU_COORDS:
        column = [_nan(getattr(r, name)) for r in gpu.values]
        coords[name] = (gpu.dims, column if gpu.dims else column[0], described(name))
    models = given[d.MODEL]
    for name in MODEL_COORDS:
        column = [float(getattr(m, name)) for m in models.values]
        coords[name] = (models.dims, column if models.dims else column[0], described(name))
    for key, item in numbers.items():
        scaled, _, path = key.rpartition(":")
        _, _, name = path.partition(".")
        if not scaled:
            coords[name] = (item.dims, item.values, {"units": FIELD_UNITS.get(name, "1"), "long_name": path})
            continue
        coords[f"{name}_scale"] = (item.dims, item.values, {"units": "1", "long_name": f"{path} over the catalogue's"})
        if name in coords:
            base = xr.DataArray(coords[name][1], dims=coords[name][0])
            product = base * xr.DataArray(item.values, dims=item.dims)
            coords[name] = (product.dims, product.values, coords[name][2])
    return coords


def described(name: str) -> dict[str, str]:
    """Return the unit and the label of a number of a record."""
    return {"units": FIELD_UNITS.get(name, "1"), "long_name": name.replace("_", " ")}


LONG_NAMES = {
    d.BATCH: "concurrent sequences in the instance",
    d.SEQ_LEN: "prompt tokens (prefill) or context tokens (decode)",
    **DEGREES,
}


def _n_gpus(given: Mapping[str, Labelled]) -> tuple[tuple[str, ...], Any, dict[str, str]]:
    degrees = {name: xr.Variable(given[name].dims, given[name].values) for name in d.PARALLEL}
    product = ParallelDegrees(**degrees).n_gpus
    return tuple(str(x) for x in product.dims), product.values, {"units": "1", "long_name": "GPUs of the instance"}
