"""A posterior as the efficiency of a sweep: a record, and the fields of it that differ from draw to draw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from ..specs import Efficiency, SpecError, to_record
from . import dims as d
from .arguments import Axes
from .axes import Labelled, check_number

RESIDUAL_SCALE = "residual_scale"
"""Scale of ln(measured/predicted), a coordinate of what is predicted with a posterior."""

RESIDUAL_SCALE_PREFILL = "residual_scale_prefill"
RESIDUAL_SCALES = ("residual_scale_dense", "residual_scale_moe", RESIDUAL_SCALE_PREFILL)
"""Scales in a posterior: of passes of models without routed experts, of models with them, and of what prompts add to
times that decoding has a part in."""

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
        if name not in RESIDUAL_SCALES:
            draws[f"{d.EFFICIENCY}.{name}"] = _drawn(posterior, name, base.name)
    beside = {d.DRAW: posterior[d.DRAW]} if d.DRAW in posterior.variables else {}
    known = all(name in posterior.variables for name in RESIDUAL_SCALES)
    errors = {name: posterior[name] for name in RESIDUAL_SCALES} if known else {}
    return replace(axes, efficiency=base, draws=draws, beside=beside, errors=errors)


def _base(posterior: xr.Dataset) -> Efficiency:
    """The record behind the draws."""
    try:
        data: Any = json.loads(posterior.attrs[BASE])
    except (KeyError, TypeError, ValueError):
        raise SpecError(
            f"efficiency: a Dataset must be a posterior of load_posterior, with the attribute {BASE!r}"
        ) from None
    return to_record(Efficiency, data, f"efficiency: attribute {BASE!r}")


def residual_scale(scales: Mapping[str, xr.DataArray], models: Labelled) -> xr.DataArray:
    """Scale of the errors of every model's passes, in every draw."""
    dense, experts = (scales[name].drop_vars(list(scales[name].coords)) for name in RESIDUAL_SCALES[:2])
    routed = [model.is_moe for model in models.values]
    found = experts.where(xr.DataArray(routed if models.dims else routed[0], dims=models.dims), dense)
    return found.assign_attrs({**dense.attrs, "long_name": "scale of ln(measured/predicted)"})


def between(passes: Any, prompts: Any, share: Any) -> Any:
    """Logarithm of the scale of a time of which prompts take a share beside decoding, from those of both."""
    return (1 - share) * passes + share * prompts


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
