"""What a layout chooses: the kernels of routed experts whose tokens arrive by exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..costmodel.formulas import Num
from .dims import DP, EP

Inputs = Mapping[str, Any]

GROUPED = ("compute_routed_experts", "compute_routed_experts_grouped")
"""Efficiency, and what stands in for it where :func:`exchanged`."""


def exchanged(dp: Num, ep: Num) -> Num:
    """Whether tokens of other attention ranks arrive by exchange, those of an expert together."""
    return (np.asarray(dp) > 1) & (np.asarray(ep) > 1)


def experts(inputs: Inputs) -> dict[str, Any]:
    """Efficiencies of routed experts as every layout makes them."""
    field, special = (f"efficiency.{name}" for name in GROUPED)
    value = inputs[special]
    given = ~np.isnan(value)
    if not np.any(given):  # the number stays on the axes it has
        return {}
    chosen: Any = np.where(exchanged(inputs[DP], inputs[EP]) & given, value, inputs[field])
    return {field: chosen[()]}
