"""Compute and draw rooflines: the FLOP/s attainable at every arithmetic intensity."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from ...api import evaluate
from .source_accounting import ideal
from .style import BOUND_BY, FAINT, INK, log_axis

LOW, HIGH = 0.1, 1e4
"""Ends of the intensity axis, FLOP/byte."""

AXES = ("arithmetic intensity (FLOP per byte of HBM)", "attainable compute (TFLOP/s, BF16)")


def roof(gpu: Any, low: float = LOW, high: float = HIGH) -> xr.Dataset:
    """Return attainable FLOP/s of a parameter-count model over bytes per weight: intensity is 2 FLOP over those bytes.

    The ridge is one of the points, so that the corner of the roof is sharp.
    """
    ridge = float(ideal("8b", gpu, outputs=["ridge"])["ridge"])
    intensity = np.unique(np.concatenate((np.geomspace(low, high, 101), [ridge])))
    widths = {"precision.dense_mlp_weight_bytes": (2 / intensity).tolist()}
    ds = ideal("8b", gpu, overrides=widths, outputs=["flops", "step_time", "arithmetic_intensity", "ridge"])
    return xr.Dataset(
        {
            "attainable": ("intensity", (ds["flops"] / ds["step_time"]).values, {"units": "FLOP/s"}),
            "ridge": ds["ridge"].reset_coords(drop=True),
            "peak": ds["peak_bf16"].reset_coords(drop=True),
            "bandwidth": ds["hbm_bandwidth"].reset_coords(drop=True),
        },
        coords={"intensity": ("intensity", ds["arithmetic_intensity"].values, {"units": "FLOP/B"})},
    )


def points(model: Any, gpu: Any, options: Any, phase: str, seq_len: list[int], batch: int = 1) -> xr.Dataset:
    """Return intensity, reached FLOP/s, FLOPs and bottleneck of forward passes over a list of lengths."""
    outputs = ["arithmetic_intensity", "flops", "step_time", "bottleneck"]
    ds = evaluate(
        model,
        gpu,
        batch=batch,
        seq_len=seq_len,
        phase=phase,
        efficiency="ideal",
        options=options,
        outputs=outputs,
        dtype="float64",
    )
    reached = (ds["flops"] / ds["step_time"]).assign_attrs(units="FLOP/s")
    return ds.assign(reached=reached)


def draw_roof(ax: Axes, ds: xr.Dataset, colour: str = INK, *, shade: bool = True) -> None:
    """Draw the roof, its two regimes shaded, and logarithmic axes."""
    ridge, x, y = float(ds["ridge"]), ds["intensity"].values, ds["attainable"].values / 1e12
    if shade:
        ax.fill_between(x, y, where=x <= ridge, color=BOUND_BY["weights"], alpha=0.10, linewidth=0)
        ax.fill_between(x, y, where=x >= ridge, color=BOUND_BY["compute"], alpha=0.10, linewidth=0)
    ax.plot(x, y, color=colour, linewidth=2.2)
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1] * 4)


def mark_ridge(ax: Axes, ds: xr.Dataset, *, named: bool = True) -> None:
    """Draw a dotted line down from the ridge, with its value at the foot."""
    ridge, peak = float(ds["ridge"]), float(ds["peak"]) / 1e12
    low = ax.get_ylim()[0]
    ax.plot([ridge, ridge], [low, peak], color=FAINT, linestyle=":", linewidth=1.2)
    ax.plot([ridge], [peak], "o", color=INK, markersize=6)
    if named:
        ax.annotate(f"ridge {ridge:,.1f}", (ridge, low), xytext=(5, 6), textcoords="offset points", color=INK)
