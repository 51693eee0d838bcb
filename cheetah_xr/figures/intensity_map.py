"""Seed 1, figure 8: aggregate arithmetic intensity of decode against the balance of several accelerators."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ..api import evaluate
from ..specs import load_gpu
from .common import assumed, described, gpu_name, log_grid, model_name
from .style import INK, corners, gpu_colour, log_axis, new_figure, titled, tokens

GPUS = ("a100-sxm-80gb", "h200-sxm", "h100-sxm", "mi300x", "b200-sxm", "rtx-4090")


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm", tp: int = 8) -> xr.Dataset:
    """Intensity of every batch and context, the ridges, and the largest batch that fits."""
    ds = evaluate(
        model,
        gpu,
        batch=log_grid(1, 8192, 100),
        seq_len=log_grid(64, 131072, 80),
        tp=tp,
        efficiency="ideal",
        options={"on_infeasible": "ignore"},
        outputs=["arithmetic_intensity", "max_batch"],
    )
    cards = [load_gpu(name) for name in GPUS]
    kept = {"batch", "seq_len"}
    return described(
        {
            "arithmetic_intensity": ds["arithmetic_intensity"].drop_vars(set(ds.coords) - kept),
            "max_batch": ds["max_batch"].drop_vars(set(ds["max_batch"].coords) - kept),
            "ridge": ("gpu", [card.peak_bf16 / card.hbm_bandwidth for card in cards]),
        },
        title=f"{model_name(model)} decode is compute-bound only at large batches of short contexts",
        shows="FLOPs over HBM bytes of a whole decode step. Right of its line an accelerator is bound by compute (bf16 "
        f"peak over bandwidth); black: the largest batch that fits on {tp} {gpu_name(gpu)}. At long contexts the "
        "cache holds the intensity down at any batch.",
        assumptions=assumed(ds),
    ).assign_coords(gpu=np.array(GPUS, dtype=object))
