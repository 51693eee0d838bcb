"""What a precision chooses: peaks, relative factors of compute types, efficiencies of four-bit experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costmodel.operations import WEIGHT_CLASS
from ..specs import GEMM_CLASSES
from .axes import Labelled

Inputs = Mapping[str, Any]

RELATIVE = ("attn_proj", "dense_mlp", "shared_experts", "routed_experts")
"""Kernels whose compute efficiency depends on the type they multiply in."""

FOUR_BIT = (
    ("launch_routed_experts", "launch_routed_experts_fp4", ("fp4", "fp8")),
    ("launch_routed_experts", "launch_routed_experts_w4", ("bf16", "fp16")),
    ("memory_routed_experts", "memory_routed_experts_w4", ("bf16", "fp16")),
)
"""Efficiency, what stands in for it when experts have four-bit weights, and the types they are then multiplied in."""


def peaks(precisions: Labelled, inputs: Inputs, order: tuple[str, ...]) -> dict[str, Any]:
    """Peak of every class of kernels under every precision: the one of its compute type."""
    found: dict[str, Any] = {"peak.small_ops": inputs["gpu.peak_bf16"]}
    for name in (*GEMM_CLASSES, "attn_core", "indexer"):
        columns = [inputs[f"gpu.peak_{getattr(p, f'{name}_compute')}"] for p in precisions.values]
        found[f"peak.{name}"] = _chosen(precisions, columns, order)
    return found


def efficiencies(precisions: Labelled, inputs: Inputs, order: tuple[str, ...]) -> dict[str, Any]:
    """Efficiencies as every precision makes them; peaks, and with them mfu, stay what they are."""
    relative = {"fp8": inputs["efficiency.compute_fp8"], "fp4": inputs["efficiency.compute_fp4"]}
    found: dict[str, Any] = {}
    for kernel in RELATIVE:
        types = [getattr(p, f"{WEIGHT_CLASS[kernel]}_compute") for p in precisions.values]
        factor = _chosen(precisions, [relative.get(t, 1.0) for t in types], order)
        found[f"efficiency.compute_{kernel}"] = inputs[f"efficiency.compute_{kernel}"] * factor
    four_bit = inputs["precision.experts_weight_bytes"] < 1
    for field, special, multiplied in FOUR_BIT:
        name, value = f"efficiency.{field}", inputs[f"efficiency.{special}"]
        given = ~np.isnan(value)
        if np.any(given):  # else the number stays on the axes it has
            fits = _chosen(precisions, [float(p.experts_compute in multiplied) for p in precisions.values], order)
            stands: Any = np.where((fits > 0) & four_bit & given, value, found.get(name, inputs[name]))
            found[name] = stands[()]
    return found


def _chosen(precisions: Labelled, columns: Sequence[NDArray[Any] | float], order: tuple[str, ...]) -> Any:
    """The column of every precision, each a number on axes of its own, along the dim of the precisions."""
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
