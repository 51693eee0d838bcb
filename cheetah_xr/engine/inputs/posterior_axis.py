"""A posterior as the efficiency of a sweep: a record, and the fields of it that differ from sample to sample."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from ...specs import Efficiency, SpecError, to_record
from .. import dims as d
from .arguments import Axes
from .axes import Labelled, check_number

RESIDUAL_SCALE = "residual_scale"
"""Scale of ln(measured/predicted), a coordinate of what is predicted with a posterior."""

RESIDUAL_SCALE_PREFILL = "residual_scale_prefill"
RESIDUAL_SCALES = ("residual_scale_dense", "residual_scale_moe", RESIDUAL_SCALE_PREFILL)
"""Residual scales of a posterior: of forward passes of models without routed experts, of models with them, and of
prefill interference."""

BASE = "base"
"""Attribute of a posterior: the efficiency record whose fields are not fitted, as JSON."""


def with_draws(axes: Axes) -> Axes:
    """Take a posterior that is given as the efficiency apart; other axes are returned as they are.

    Raises
    ------
    SpecError
        For a posterior in a list, or a Dataset that is none.
    """
    posterior = axes.efficiency
    if isinstance(posterior, (list, tuple)) and any(isinstance(item, xr.Dataset) for item in posterior):
        raise SpecError("efficiency: a posterior has an axis of its own; it is given alone, not in a list")
    if not isinstance(posterior, xr.Dataset):
        return axes
    base = _base(posterior)
    draws: dict[str, xr.DataArray] = {}
    for name in map(str, posterior.data_vars):
        if name not in RESIDUAL_SCALES:
            draws[f"{d.EFFICIENCY}.{name}"] = _drawn(posterior, name, base.name)
    coords = {d.DRAW: posterior[d.DRAW]} if d.DRAW in posterior.variables else {}
    known = all(name in posterior.variables for name in RESIDUAL_SCALES)
    errors = {name: posterior[name] for name in RESIDUAL_SCALES} if known else {}
    return replace(axes, efficiency=base, draws=draws, coords=coords, errors=errors)


def _base(posterior: xr.Dataset) -> Efficiency:
    """Return the record behind the samples."""
    try:
        data: Any = json.loads(posterior.attrs[BASE])
    except (KeyError, TypeError, ValueError):
        raise SpecError(
            f"efficiency: a Dataset must be a posterior of load_posterior, with the attribute {BASE!r}"
        ) from None
    return to_record(Efficiency, data, f"efficiency: attribute {BASE!r}")


def residual_scale(scales: Mapping[str, xr.DataArray], models: Labelled) -> xr.DataArray:
    """Return the residual scale of every model's forward passes, in every sample."""
    dense, experts = (scales[name].drop_vars(list(scales[name].coords)) for name in RESIDUAL_SCALES[:2])
    routed = [model.is_moe for model in models.values]
    scale = experts.where(xr.DataArray(routed if models.dims else routed[0], dims=models.dims), dense)
    return scale.assign_attrs({**dense.attrs, "long_name": "scale of ln(measured/predicted)"})


def between(passes: Any, prompts: Any, fraction: Any) -> Any:
    """Return the log of the residual scale of a time, a fraction of which is prefill interference, from both logs."""
    return (1 - fraction) * passes + fraction * prompts


def _drawn(posterior: xr.Dataset, name: str, label: str) -> xr.DataArray:
    """Return one field in every sample: numbers the record would accept."""
    values, where = posterior[name], f"efficiency: posterior {label}: {name}"
    if name not in Efficiency.numeric_fields():
        raise SpecError(f"{where}: is no number of an efficiency record")
    if not set(values.dims) <= {d.DRAW} or values.size == 0:
        raise SpecError(f"{where}: expected numbers on the dim {d.DRAW!r}, got {dict(values.sizes)}")
    if values.dtype.kind not in "iuf":
        raise SpecError(f"{where}: expected numbers, got {values.dtype}")
    for number in np.unique(values.values):
        check_number(d.EFFICIENCY, name, float(number), where)
    return values
