"""The per-operation ledger as a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from .axes import Axes
from .dims import OPERATION
from .engine import case_of
from .grid import build
from .specs import Options, SpecError
from .status import CODES, lowest

_GPU = {
    "name": "any",
    "memory_gb": 1.0,
    "hbm_bandwidth": 1.0,
    **{f"peak_{t}": 1.0 for t in ("bf16", "fp16", "fp8", "fp4", "int8")},
    "link_bandwidth": 1.0,
    "link_domain": 1,
    "nic_bandwidth": 1.0,
}


def operations_of(
    model: Any,
    phase: str,
    seq_len: int,
    *,
    precision: Any = "bf16",
    batch: int = 1,
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    options: Options | None = None,
) -> xr.Dataset:
    """Ledger of one pass; see :func:`cheetah_xr.operations`."""
    chosen = (options or Options(small_ops="flops")).model_copy(update={"on_infeasible": "ignore"})
    grid = build(Axes(model, _GPU, precision, "ideal", phase, batch, seq_len, tp, dp, ep, chosen))
    if grid.dims:
        raise SpecError(f"operations: one pass at a time; {', '.join(grid.dims)} has more than one value")
    with np.errstate(all="ignore"):
        case = case_of(grid, 0, 0, {})
    code = int(lowest(list(case.conditions)))
    if code != 127:
        reason = next(name for name, value in CODES.items() if value == code)
        raise SpecError(f"operations: the pass is not valid: {reason}")
    layers = [(layer, op) for layer in (*case.work.layers, *case.work.outside) for op in layer.operations]
    columns: dict[str, Any] = {
        "flops": [op.flops * case.scales[op.scale] for _, op in layers],
        "bytes_weights": [op.weights + op.rows * case.scales[op.scale] for _, op in layers],
        "bytes_kv": [op.kv * case.scales[op.scale] for _, op in layers],
        "bytes_activations": [op.activations * case.scales[op.scale] for _, op in layers],
    }
    units = {name: "FLOP" if name == "flops" else "B" for name in columns}
    ds = xr.Dataset(
        {n: (OPERATION, np.array(v, dtype=np.float64), {"units": units[n]}) for n, v in columns.items()},
        coords={
            OPERATION: [op.name for _, op in layers],
            "kernel": (OPERATION, [op.kernel for _, op in layers]),
            "group": (OPERATION, [layer.label for layer, _ in layers]),
            "count": (OPERATION, np.array([layer.count for layer, _ in layers], dtype=np.int64)),
        },
    )
    return ds.assign_attrs(phase=phase, seq_len=seq_len, batch=batch)
