"""Draw [CHEETAH], figure 8: aggregate arithmetic intensity of decode against the balance of several accelerators."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ...api import evaluate
from ...specs import load_gpu
from ..shared.common import (
    assumed,
    crossing,
    described,
    drawable,
    gpu_name,
    instance,
    log_grid,
    max_context,
    model_name,
)
from ..shared.style import corners, end_labels, gpu_colour, headline, log_axis, new_figure, titled, tokens

GPUS = ("a100-sxm-80gb", "h200-sxm", "h100-sxm", "mi300x", "b200-sxm", "rtx-4090")


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return the intensity of every batch and context, the ridges, and the largest batch that fits."""
    tp = instance(gpu)
    ds = evaluate(
        model,
        gpu,
        batch=log_grid(1, 8192, 100),
        seq_len=log_grid(64, min(131072, max_context(model)), 80),
        tp=tp,
        efficiency="ideal",
        options={"on_infeasible": "ignore"},
        outputs=["arithmetic_intensity", "max_batch"],
    )
    cards = [load_gpu(name) for name in GPUS]
    ridges = [card.peak_bf16 / card.hbm_bandwidth for card in cards]
    title, at_longest = describe_bounds(ds["arithmetic_intensity"], ridges)
    return described(
        {
            "arithmetic_intensity": drawable(ds["arithmetic_intensity"]).reset_coords(drop=True),
            "max_batch": ds["max_batch"].reset_coords(drop=True),
            "ridge": ("gpu", ridges),
        },
        title=f"{model_name(model)} decode: {title}",
        shows="FLOPs over HBM bytes of a whole decode step. Right of its line an accelerator is bound by compute (bf16 "
        f"peak over bandwidth); black: the largest batch that fits on {tp} {gpu_name(gpu)}. {at_longest}",
        assumptions=assumed(ds),
    ).assign_coords(gpu=np.array(GPUS, dtype=object))


def describe_bounds(intensity: xr.DataArray, ridges: list[float]) -> tuple[str, str]:
    """Describe where the accelerators are bound by compute, for the title, and the longest context."""
    last = intensity.isel(seq_len=-1)
    length, most = tokens(float(last["seq_len"])), float(last.max())
    reached = [ridge for ridge in ridges if float(intensity.max()) >= ridge]
    beyond = sum(most >= ridge for ridge in ridges)
    if not reached:
        title = "bound by memory at any batch and context"
    elif beyond:
        title = "compute-bound at large batch, " + (
            "at any context" if beyond == len(ridges) else "on some GPUs at any context"
        )
    else:
        title = "compute-bound only at large batch, short context"
    if not beyond:
        return title, "At long contexts the KV cache keeps the intensity low at any batch."
    return title, f"At {length} tokens the intensity still reaches {most:,.0f}, the ridge of {beyond} of {len(ridges)}."


def draw(ds: xr.Dataset) -> Figure:
    """Draw the map of the intensity with a line per accelerator."""
    fig, ax = new_figure(height=5.2)
    batch, seq_len = ds["batch"].values, ds["seq_len"].values
    values = ds["arithmetic_intensity"].transpose("seq_len", "batch").values
    norm = LogNorm(1, 6 * values.max())
    mesh = ax.pcolormesh(corners(batch), corners(seq_len), values, cmap="Greys", norm=norm, rasterized=True)
    bar = fig.colorbar(mesh, ax=ax, location="bottom", label="arithmetic intensity (FLOP per byte)", aspect=40)
    bar.ax.set_xlim(1, values.max())
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    log_axis(ax, "x")
    log_axis(ax, "y", binary=True)
    ax.yaxis.set_major_formatter(lambda value, _: tokens(value))
    ax.set_xlim(batch[0], batch[-1])
    ax.set_ylim(seq_len[0], seq_len[-1])
    ax.grid(visible=False)
    headline(fig, ds.attrs["title"])
    titled(ax, "", "batch (concurrent sequences)", "context (tokens)")
    _capacity(ax, ds, batch[-1])
    labels = []
    for gpu, ridge in zip(ds["gpu"].values, ds["ridge"].values, strict=True):
        ax.contour(batch, seq_len, values, levels=[ridge], colors=[gpu_colour(gpu)], linewidths=2)
        end = crossing(seq_len, 1 / values[:, -1], 1 / ridge)
        if np.isfinite(end):
            labels.append((batch[-1], end, f"{gpu_name(gpu)}: {ridge:,.0f}", gpu_colour(gpu)))
    end_labels(ax, labels)
    return fig


def _capacity(ax: Axes, ds: xr.Dataset, right: float) -> None:
    """Draw the largest batch that fits, and label the region beyond."""
    most, seq_len = ds["max_batch"].values, ds["seq_len"].values
    ax.plot(most, seq_len, color="black", linewidth=2)
    at = int(0.85 * seq_len.size)
    if most[at] < right / 20:  # space for the text
        ax.text((max(most[at], 1) * right) ** 0.5, seq_len[at], "does not fit in memory", ha="center", va="center")
