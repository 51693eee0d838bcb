"""Seed 1, the four corner regimes of decode: what bounds a point of each, and the levers the post names."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ...analysis import flag_labels, regimes
from ...api import evaluate
from ..shared.common import assumed, described, drawable, gpu_name, instance, longest, model_name
from ..shared.style import BOUND_NAMES, tokens

CORNERS = {
    "low batch, short context": (1, 512),
    "high batch, short context": (512, 512),
    "low batch, long context": (8, 131072),
    "high batch, long context": (256, 131072),
}
"""A representative batch and context of each corner regime of the post; the context at most the model's longest."""

SCALE_OUT = "most efficient already; more GPUs for more speed"
LEVERS = {
    "weights": "fewer bytes per weight: FP8 or INT4 weights",
    "compute": SCALE_OUT,
    "communication": SCALE_OUT,
    "kv": "a smaller cache: GQA, MLA or compressed attention, a quantised cache, sparse attention",
    "does_not_fit": "more memory: several nodes, offloading the cache, separate prefill and long-context nodes",
}
"""The four levers of the post, by what bounds a point; it names none for anything else."""


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """One row per corner."""
    tp = instance(gpu)
    ds = at_corners(model, gpu, "bf16", tp)
    drawable(ds["max_batch"])
    bound = flag_labels(regimes(ds)).values.tolist()
    columns = {
        "corner": list(CORNERS),
        "batch": ds["batch"].values,
        "context": ds["seq_len"].values,
        "bound_by": [BOUND_NAMES[word] for word in bound],
        "max_batch": ds["max_batch"].where(np.isfinite(ds["max_batch"])).values.astype(float),
        "tokens_per_s_per_request": (1 / ds["step_time"]).values.astype(float),
        "lever": [LEVERS.get(word, "-") for word in bound],
    }
    return described(
        {name: ("row", values) for name, values in columns.items()},
        title=f"Four corners of {model_name(model)} decode on {tp} {gpu_name(gpu)}",
        shows="What bounds a point of each corner of the regime map, the largest batch that fits at its context, the "
        "speed of one request, and what the post says helps against that.",
        assumptions=assumed(ds.drop_vars(["batch", "seq_len"])),
    )


def at_corners(model: str, gpu: str, precision: str, tp: int) -> xr.Dataset:
    """The engine's result at every corner, on dim ``corner``."""
    batch, contexts = (list(values) for values in zip(*CORNERS.values(), strict=True))
    seq_len = [int(min(context, longest(model))) for context in contexts]
    where = {"batch": xr.DataArray(batch, dims="corner"), "seq_len": xr.DataArray(seq_len, dims="corner")}
    grid = evaluate(
        model, gpu, precision, batch=sorted(set(batch)), seq_len=sorted(set(seq_len)), tp=tp, efficiency="ideal"
    )
    return grid.sel(where)


def corners_said(model: str, gpu: str, precision: str, tp: int) -> str:
    """What bounds every corner, and the lever against it."""
    ds = at_corners(model, gpu, precision, tp)
    bound = flag_labels(regimes(ds)).values.tolist()
    return "; ".join(
        f"{corner} ({batch:,} x {tokens(length)}): {BOUND_NAMES[word]}"
        + (f" ({LEVERS[word]})" if word in LEVERS else "")
        for corner, batch, length, word in zip(CORNERS, ds["batch"].values, ds["seq_len"].values, bound, strict=True)
    )
