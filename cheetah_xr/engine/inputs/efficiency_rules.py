"""Efficiency fields that depend on precision and layout: which field is used for which kernel, and where.

The engine asks for the values of the fields (:func:`resolved_efficiencies`), a fit for their names
(:func:`fields_used`, :func:`relative_field`): both read the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costmodel.formulas import Num
from ...costmodel.operations import WEIGHT_CLASS
from ...specs import GEMM_CLASSES, Precision
from ..dims import DP, EP
from .axes import Labelled

Inputs = Mapping[str, Any]

RELATIVE_FIELDS = {"fp8": "compute_fp8", "fp4": "compute_fp4"}
"""Compute type -> the field that multiplies the compute efficiency of :data:`RELATIVE_KERNELS`."""

RELATIVE_KERNELS = ("attn_proj", "dense_mlp", "shared_experts", "routed_experts")
"""Kernels whose compute efficiency depends on the type they multiply in."""

GROUPED_EXPERTS = ("compute_routed_experts", "compute_routed_experts_grouped")
"""Field, and the one used in its place where :func:`grouped` and the record gives it."""


@dataclass(frozen=True)
class FourBitExperts:
    """A field, the one used in its place when experts have four-bit weights, and their compute types then."""

    field: str
    special: str
    compute_types: tuple[str, ...]

    def applies_to(self, precision: Precision) -> bool:
        """Return whether a precision multiplies experts in one of the compute types."""
        return precision.experts_compute in self.compute_types


FOUR_BIT_EXPERTS = (
    FourBitExperts("launch_routed_experts", "launch_routed_experts_fp4", ("fp4", "fp8")),
    FourBitExperts("launch_routed_experts", "launch_routed_experts_w4", ("bf16", "fp16")),
    FourBitExperts("memory_routed_experts", "memory_routed_experts_w4", ("bf16", "fp16")),
)


def grouped(dp: Num, ep: Num) -> Num:
    """Return whether experts receive tokens of other attention ranks by all-to-all, grouped by expert."""
    return (np.asarray(dp) > 1) & (np.asarray(ep) > 1)


def four_bit(weight_bytes: Num) -> Num:
    """Return whether the weights of experts have four bits: less than one byte."""
    return weight_bytes < 1


def relative_field(kernel: str, precision: Precision) -> str:
    """Return the field that multiplies a kernel's compute efficiency under a precision, "" if there is none."""
    if kernel not in RELATIVE_KERNELS:
        return ""
    return RELATIVE_FIELDS.get(getattr(precision, f"{WEIGHT_CLASS[kernel]}_compute"), "")


def fields_used(field: str, precision: Precision, dp: Num, ep: Num) -> list[tuple[str, Num]]:
    """List the fields used in place of a field, each with where it is used: a later one over an earlier one."""
    used: list[tuple[str, Num]] = []
    if field == GROUPED_EXPERTS[0]:
        used.append((GROUPED_EXPERTS[1], grouped(dp, ep)))
    used += [
        (rule.special, four_bit(precision.experts_weight_bytes))
        for rule in FOUR_BIT_EXPERTS
        if rule.field == field and rule.applies_to(precision)
    ]
    return used


def filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of fields, those that are not given taken from the field they are used in place of."""
    pairs = [GROUPED_EXPERTS, *((rule.field, rule.special) for rule in FOUR_BIT_EXPERTS)]
    missing = {special: values[field] for field, special in pairs if values.get(special) is None}
    return dict(values) | missing


def peaks(precisions: Labelled, inputs: Inputs, order: tuple[str, ...]) -> dict[str, Any]:
    """Return the peak of every class of kernels under every precision: the one of its compute type."""
    by_class: dict[str, Any] = {"peak.small_ops": inputs["gpu.peak_bf16"]}
    for name in (*GEMM_CLASSES, "attn_core", "indexer"):
        columns = [inputs[f"gpu.peak_{getattr(p, f'{name}_compute')}"] for p in precisions.values]
        by_class[f"peak.{name}"] = _by_precision(precisions, columns, order)
    return by_class


def resolved_efficiencies(precisions: Labelled, inputs: Inputs, order: tuple[str, ...]) -> dict[str, Any]:
    """Return the efficiency inputs that layout and precision change; peaks, and with them mfu, stay what they are."""
    resolved = _grouped_experts(inputs)
    inputs = {**inputs, **resolved}
    for kernel in RELATIVE_KERNELS:
        fields = [relative_field(kernel, p) for p in precisions.values]
        factor = _by_precision(precisions, [inputs[f"efficiency.{f}"] if f else 1.0 for f in fields], order)
        resolved[f"efficiency.compute_{kernel}"] = inputs[f"efficiency.compute_{kernel}"] * factor
    has_four_bits = four_bit(inputs["precision.experts_weight_bytes"])
    for rule in FOUR_BIT_EXPERTS:
        name, value = f"efficiency.{rule.field}", inputs[f"efficiency.{rule.special}"]
        given = ~np.isnan(value)
        if np.any(given):  # else the number stays on the axes it has
            applies = _by_precision(precisions, [float(rule.applies_to(p)) for p in precisions.values], order)
            special: Any = np.where((applies > 0) & has_four_bits & given, value, resolved.get(name, inputs[name]))
            resolved[name] = special[()]
    return resolved


def _grouped_experts(inputs: Inputs) -> dict[str, Any]:
    """Return the compute efficiency of routed experts in every layout."""
    field, special = (f"efficiency.{name}" for name in GROUPED_EXPERTS)
    value = inputs[special]
    given = ~np.isnan(value)
    if not np.any(given):  # the number stays on the axes it has
        return {}
    chosen: Any = np.where(grouped(inputs[DP], inputs[EP]) & given, value, inputs[field])
    return {field: chosen[()]}


def _by_precision(precisions: Labelled, columns: Sequence[NDArray[Any] | float], order: tuple[str, ...]) -> Any:
    """Return the column of every precision, each a number on axes of its own, along the dim of the precisions."""
    if not precisions.dims:
        return columns[0]
    axis = order.index(precisions.dims[0])
    full = [np.reshape(c, (1,) * len(order)) if np.ndim(c) == 0 else np.asarray(c) for c in columns]
    shared = np.broadcast_shapes(*(c.shape for c in full))
    if shared[axis] > 1:  # the precisions share their dim with the number: take each label's own value
        stacked = [np.take(np.broadcast_to(c, shared), [i], axis) for i, c in enumerate(full)]
    else:
        stacked = [np.broadcast_to(c, shared) for c in full]
    return np.concatenate(stacked, axis)
