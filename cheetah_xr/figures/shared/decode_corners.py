"""Evaluate the four corner regimes of decode in [CHEETAH]: what bounds each, and the lever against it."""

from __future__ import annotations

import xarray as xr

from ...analysis import flag_labels, regimes
from ...api import evaluate
from .common import max_context
from .style import BOUND_NAMES, tokens

CORNERS = {
    "low batch, short context": (1, 512),
    "high batch, short context": (512, 512),
    "low batch, long context": (8, 131072),
    "high batch, long context": (256, 131072),
}
"""A representative batch and context of each corner regime; the context is at most the model's maximum."""

SCALE_OUT = "already efficient; more GPUs for lower latency"
LEVERS = {
    "weights": "fewer bytes per weight: FP8 or INT4 weights",
    "compute": SCALE_OUT,
    "communication": SCALE_OUT,
    "kv": "a smaller KV cache: GQA, MLA or compressed attention, a quantised cache, sparse attention",
    "does_not_fit": "more memory: several nodes, KV-cache offloading, separate prefill and long-context nodes",
}
"""The four levers of [CHEETAH] by what bounds a point; it names none for other bounds."""


def at_corners(model: str, gpu: str, precision: str, tp: int) -> xr.Dataset:
    """Evaluate decode at every corner, on dim ``corner``."""
    batch, contexts = (list(values) for values in zip(*CORNERS.values(), strict=True))
    seq_len = [int(min(context, max_context(model))) for context in contexts]
    where = {"batch": xr.DataArray(batch, dims="corner"), "seq_len": xr.DataArray(seq_len, dims="corner")}
    grid = evaluate(
        model, gpu, precision, batch=sorted(set(batch)), seq_len=sorted(set(seq_len)), tp=tp, efficiency="ideal"
    )
    return grid.sel(where)


def describe_corners(model: str, gpu: str, precision: str, tp: int) -> str:
    """Describe what bounds every corner, and the lever against it."""
    ds = at_corners(model, gpu, precision, tp)
    bound = flag_labels(regimes(ds)).values.tolist()
    return "; ".join(
        f"{corner} ({batch:,} x {tokens(length)}): {BOUND_NAMES[cause]}"
        + (f" ({LEVERS[cause]})" if cause in LEVERS else "")
        for corner, batch, length, cause in zip(CORNERS, ds["batch"].values, ds["seq_len"].values, bound, strict=True)
    )
