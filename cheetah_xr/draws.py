"""A posterior as the efficiency of a sweep: a record, and the fields of it that differ from draw to draw."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from . import dims as d
from .axes import Axes, Labelled, check_number, labelled_records
from .specs import Efficiency, SpecError, load_model, to_record

ERROR = "error_scale"
"""Scale of ln(measured/predicted), a coordinate of what is predicted with a posterior."""

SCALES = ("error_scale_dense", "error_scale_experts")
"""The same in a posterior: of models without routed experts, and of models with them, whose load nobody publishes."""

BASE = "base"
"""Attribute of a posterior: the efficiency record whose fields no factor sets, as JSON."""


def with_draws(axes: Axes) -> Axes:
    """Axes with a posterior given as the efficiency taken apart; others as they are.

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
        if name not in SCALES:
            draws[f"{d.EFFICIENCY}.{name}"] = _drawn(posterior, name, base.name)
    beside = {d.DRAW: posterior[d.DRAW]} if d.DRAW in posterior.variables else {}
    if all(name in posterior.variables for name in SCALES):
        beside[ERROR] = _scale_of(posterior, labelled_records(d.MODEL, axes.model, load_model))
    return replace(axes, efficiency=base, draws=draws, beside=beside)


def _base(posterior: xr.Dataset) -> Efficiency:
    """The record behind the draws."""
    try:
        data: Any = json.loads(posterior.attrs[BASE])
    except (KeyError, TypeError, ValueError):
        raise SpecError(
            f"efficiency: a Dataset must be a posterior of load_posterior, with the attribute {BASE!r}"
        ) from None
    return to_record(Efficiency, data, f"efficiency: attribute {BASE!r}")


def _scale_of(posterior: xr.Dataset, models: Labelled) -> xr.DataArray:
    """Scale of the errors of every model, in every draw."""
    of_model = [posterior[SCALES[model.is_moe]] for model in models.values]
    dims = (*of_model[0].dims, *models.dims)
    values = np.stack([scale.values for scale in of_model], axis=-1) if models.dims else of_model[0].values
    return xr.DataArray(values, dims=dims, attrs={**of_model[0].attrs, "long_name": "scale of ln(measured/predicted)"})


def _drawn(posterior: xr.Dataset, name: str, label: str) -> xr.DataArray:
    """One field in every draw, numbers the record would accept."""
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
