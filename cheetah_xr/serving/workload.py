"""The workload that is served: concurrency and lengths of requests, checked against the other axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import xarray as xr

from ..engine import dims as d
from ..engine.grid import FIELD_UNITS, RECORD_COORDS, Grid, build
from ..engine.inputs.arguments import Axes, GpuLike, InstanceArguments, ModelLike, PrecisionLike
from ..engine.inputs.axes import TYPES, labelled_integers
from ..engine.inputs.gather import axes_of
from ..specs import SpecError

CACHED = "options.cached_tokens"
CHUNK = "chunk"
"""Dim of the chunks of one prompt, a forward pass each, summed before a result is shown."""

MEANINGS = {
    "concurrency": ("requests", "concurrent requests"),
    "isl": ("tokens", "prompt tokens, cached ones included"),
    "osl": ("tokens", "output tokens of a request"),
    "chunked_prefill_size": ("tokens", "most tokens of a prompt in one forward pass"),
    "prefill_workers": ("1", "instances that prefill"),
    "decode_workers": ("1", "instances that decode"),
    **{f"{role}_tp": ("1", f"tensor-parallel degree of a {role} worker") for role in ("prefill", "decode")},
    **{f"{role}_dp": ("1", f"data-parallel degree of a {role} worker") for role in ("prefill", "decode")},
    **{f"{role}_ep": ("1", f"expert-parallel degree of a {role} worker") for role in ("prefill", "decode")},
}
"""Unit and long name of the numbers that are not arguments of an evaluation."""

LEAST = {"osl": 2}
"""Least values above 1: the first output token comes from prefill, so decode needs a second."""

RESERVED = {*TYPES, *d.LEADING, *d.TRAILING, *RECORD_COORDS, *FIELD_UNITS, *MEANINGS, CHUNK, "n_gpus"}


@dataclass(frozen=True)
class Workload:
    """Numbers of a serving model by name, without coordinates, and the tokens of a prompt that are already cached."""

    given: Mapping[str, xr.DataArray]
    cached: xr.DataArray

    def __getitem__(self, name: str) -> xr.DataArray:
        return self.given[name]


def numbers(given: Mapping[str, Any], forbidden: tuple[str, ...] = ()) -> dict[str, xr.DataArray]:
    """Return whole numbers as given: a list on the dim of its name, a DataArray on its own dims with its labels.

    Dims in `forbidden` mean something else here.

    Raises
    ------
    SpecError
        Naming the argument, its value and what is allowed.
    """
    checked = {}
    for name, value in given.items():
        item = labelled_integers(name, value, LEAST.get(name, 1))
        coords = dict.fromkeys(item.dims, item.values)
        if isinstance(value, xr.DataArray):
            coords = {dim: value.coords[dim].values for dim in item.dims if dim in value.coords}
        check_names(name, item.dims, {*forbidden, d.BATCH, d.SEQ_LEN, d.PHASE, CHUNK, *MEANINGS} - {name, *given})
        units, long_name = MEANINGS[name]
        checked[name] = xr.DataArray(item.values, coords, item.dims, attrs={"units": units, "long_name": long_name})
    return checked


def check_names(name: str, dims: tuple[str, ...], taken: set[str]) -> None:
    """Reject dims that are the names of something else."""
    for dim in dims:
        if dim in taken:
            raise SpecError(f"{name}: dim {dim!r} is the name of something else; give the DataArray another dim")


def workload_of(given: Mapping[str, xr.DataArray], grid: Grid) -> Workload:
    """Check the dims of numbers against one another and against the other axes.

    Raises
    ------
    SpecError
        For a dim that is the name of something else, or has other sizes or labels elsewhere; for prompts that are
        cached whole.
    """
    labels: dict[str, Any] = {dim: grid.coords[dim][1] for dim in grid.dims if dim in grid.coords}
    sizes = {**grid.sizes}
    for name, values in given.items():
        for dim, size in values.sizes.items():
            axis = str(dim)
            check_names(name, (axis,), RESERVED - {*grid.sizes, *given})
            if sizes.setdefault(axis, size) != size:
                raise SpecError(f"{name}: dim {axis!r} has {size} values here and {sizes[axis]} elsewhere")
            if dim in values.coords:
                known = labels.setdefault(axis, values.coords[dim].values)
                if list(map(str, known)) != list(map(str, values.coords[dim].values)):
                    raise SpecError(f"{name}: labels of dim {axis!r} differ from those of the axis")
    cached = xr.DataArray(grid.options.cached_tokens)
    if "cached_tokens" in grid.coords:
        dims, tokens, _ = grid.coords["cached_tokens"]
        cached = xr.DataArray(tokens, dims=dims)
    bare = {name: values.drop_vars(list(values.coords)) for name, values in given.items()}
    if bool((cached >= bare["isl"]).any()):
        raise SpecError(
            f"options.cached_tokens: {int(cached.max())} of {int(bare['isl'].min())} prompt tokens (isl) are cached; "
            "at least one must be left"
        )
    return Workload(bare, cached.astype(np.int64))


def serving_axes(
    model: ModelLike, gpu: GpuLike, precision: PrecisionLike, **arguments: Unpack[InstanceArguments]
) -> tuple[Axes, Grid]:
    """Return the arguments of an evaluation with the options of a serving engine, and the grid without the workload.

    The expert-parallel all-to-all is exposed (`overlap_ep` 0) unless the caller says otherwise: there is one
    micro-batch.
    """
    axes = axes_of(model, gpu, precision, **arguments)
    if "overlap_ep" not in axes.options.model_fields_set:
        axes = replace(axes, options=axes.options.model_copy(update={"overlap_ep": 0.0}))
    grid = build(axes)
    # Specs are read once, not for every kind of forward pass.
    names = [name for name in d.RECORDS if not isinstance(getattr(axes, name), xr.DataArray)]
    records: dict[str, Any] = {n: list(grid.records[n]) if n in grid.dims else grid.records[n][0] for n in names}
    return replace(axes, **records), grid


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Reject a value that is not allowed."""
    if value not in allowed:
        raise SpecError(f"{name}: allowed are {' and '.join(allowed)}, got {value!r}")


def without_overrides(axes: Axes, *keys: str) -> Axes:
    """Return axes without some overrides and scales."""
    overrides = {k: v for k, v in axes.overrides.items() if k not in keys}
    scales = {k: v for k, v in axes.scales.items() if k not in keys}
    return replace(axes, overrides=overrides, scales=scales)
