"""The operations of a forward pass as a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ...costmodel.operations import OUTSIDE, LayerWork
from ...specs import COMPUTE_TYPES, SpecError
from ..case import Case
from ..dims import OPERATION
from ..inputs.arguments import Axes
from ..one_point import one_point
from ..validity import CODES, NONE, lowest

ANY_GPU = {
    "name": "any",
    "memory_gb": 1.0,
    "hbm_bandwidth": 1e12,
    **{f"peak_{t}": 1e15 for t in COMPUTE_TYPES},
    "link_bandwidth": 1e11,
    "link_domain": 1,
    "nic_bandwidth": 1e10,
}
"""An accelerator that knows every number: work and validity do not depend on their values."""


def operations_of(axes: Axes) -> xr.Dataset:
    """List the operations of one forward pass; see :func:`cheetah_xr.operations`."""
    _, case = one_point(axes, "operations")
    code = int(np.asarray(lowest(list(case.conditions))))
    if code != NONE:
        reason = next(name for name, value in CODES.items() if value == code)
        raise SpecError(f"operations: the forward pass is not valid: {reason}")
    layers = [(layer, op) for layer in case.work.parts for op in layer.operations]
    columns: dict[str, Any] = {
        "flops": [op.flops * case.sequence_counts[op.per] for _, op in layers],
        "bytes_weights": [op.weights + op.rows * case.sequence_counts[op.per] for _, op in layers],
        "bytes_kv": [op.kv * case.sequence_counts[op.per] for _, op in layers],
        "bytes_activations": [op.activations * case.sequence_counts[op.per] for _, op in layers],
        "launches": [op.launches for _, op in layers],
    }
    units = dict.fromkeys(columns, "B") | {"flops": "FLOP", "launches": "1"}
    ds = xr.Dataset(
        {n: (OPERATION, np.array(v, dtype=np.float64), {"units": units[n]}) for n, v in columns.items()},
        coords={
            OPERATION: [op.name for _, op in layers],
            "kernel": (OPERATION, [op.kernel for _, op in layers]),
            "group": (OPERATION, [layer.label for layer, _ in layers]),
            "count": (OPERATION, np.array([_times(layer, case) for layer, _ in layers], dtype=np.int64)),
        },
    )
    return ds.assign_attrs(phase=axes.phase, seq_len=axes.seq_len, batch=axes.batch)


def _times(layer: LayerWork, case: Case) -> int:
    """Count how often a forward pass does the operations of a layer: its layers, for every micro-batch."""
    return int(layer.times * (1 if layer.part in OUTSIDE else case.options.micro_batches))
