"""Seed 1, the four corner regimes of decode: what bounds a point of each, and the levers the post names."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ..analysis import flag_labels, regimes
from ..api import evaluate
from .common import assumed, described, gpu_name, instance, model_name
from .style import BOUND_NAMES

CORNERS = {
    "low batch, short context": (1, 512, "fewer bytes per weight: FP8 or INT4 weights"),
    "high batch, short context": (512, 512, "most efficient already; more GPUs for more speed"),
    "low batch, long context": (
        8, 131072, "a smaller cache: GQA, MLA or compressed attention, a quantised cache, sparse attention",
    ),
    "high batch, long context": (
        256, 131072, "more memory: several nodes, offloading the cache, separate prefill and long-context nodes",
    ),
}  # fmt: skip
"""A representative batch and context of each corner, and its levers."""


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """One row per corner."""
    tp = instance(gpu)
    batch, seq_len, levers = zip(*CORNERS.values(), strict=True)
    where = {"batch": xr.DataArray(list(batch), dims="corner"), "seq_len": xr.DataArray(list(seq_len), dims="corner")}
    grid = evaluate(model, gpu, batch=sorted(set(batch)), seq_len=sorted(set(seq_len)), tp=tp, efficiency="ideal")
    ds = grid.sel(where)
    columns = {
        "corner": list(CORNERS),
        "batch": list(batch),
        "context": list(seq_len),
        "bound_by": [BOUND_NAMES[str(word)] for word in flag_labels(regimes(ds)).values],
        "max_batch": ds["max_batch"].where(np.isfinite(ds["max_batch"])).values.astype(float),
        "tokens_per_s_per_request": (1 / ds["step_time"]).values.astype(float),
        "lever": list(levers),
    }
    return described(
        {name: ("row", values) for name, values in columns.items()},
        title=f"Four corners of {model_name(model)} decode on {tp} {gpu_name(gpu)}",
        shows="What bounds a point of each corner of the regime map, the largest batch that fits at its context, the "
        "speed of one request, and what helps there.",
        assumptions=assumed(grid),
    )
