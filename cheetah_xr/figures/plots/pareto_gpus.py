"""Draw per-GPU throughput over interactivity: the frontier of every accelerator, and the layouts on it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..shared.common import described, gpu_name, model_name
from ..shared.frontiers import (
    N_GPUS,
    USER,
    USER_LABEL,
    describe_ends,
    draw_lines,
    frontiers,
    gpus_of,
    layout_label,
    name_lines,
    of_gpu,
)
from ..shared.style import FAINT, INK, gpu_colour, headline, log_room, new_figure

METRIC = "throughput_per_gpu"
SMALL = 7.5
LETTER = 4.5
"""Points of a letter of the small font, rounded up."""


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Return the frontier of per-GPU throughput and interactivity for every accelerator."""
    ds = frontiers(model, METRIC)
    return described(
        ds,
        title=f"{model_name(model)} on {N_GPUS} GPUs: per-GPU throughput against interactivity",
        shows="The highest output tokens/s per GPU at every interactivity (output tokens/s per user), and below the "
        f"layout and precision that reach it. {describe_ends(ds, METRIC, 'output tokens/s per GPU', ',.0f')}",
        **{name: ds.attrs[name] for name in ("assumptions", "absent")},
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw frontiers above, and below a lane with the layouts on it for every accelerator."""
    fig, (top, lanes) = new_figure(2, height=6.2, sharex=True, height_ratios=(3, 1.8))
    draw_lines(top, ds, METRIC)
    headline(fig, ds.attrs["title"])
    top.set_ylabel("output tokens/s per GPU")
    factor = log_room(top, ds[USER].values.min(), ds[USER].values.max(), 58, 56)
    top.set_ylim(ds[METRIC].values.min() * 0.5, ds[METRIC].values.max() * 1.4)
    _draw_lanes(lanes, ds, factor)
    name_lines(top, ds, METRIC, gpu_name)
    return fig


def _draw_lanes(ax: Axes, ds: xr.Dataset, factor: float) -> None:
    """Draw the layout and precision of every frontier along tokens/s per user, and the batches at its ends.

    `factor` is the points of a factor of e; stretches too narrow for their label have none.
    """
    gpus = gpus_of(ds)
    for row, gpu in enumerate(gpus):
        front = of_gpu(ds, gpu)
        x, batch = front[USER].values, front["batch"].values
        layouts = [layout_label(front.isel(point=i)) for i in range(x.size)]
        labels = list(zip(layouts, front["precision"].values, strict=True))
        starts = [0, *(i for i in range(1, x.size) if labels[i] != labels[i - 1]), x.size]
        for first, after in pairwise(starts):
            left, right = x[first], x[min(after, x.size - 1)]
            ax.barh(row, right - left, 0.84, left, color=gpu_colour(gpu), alpha=0.3, edgecolor="white")
            if np.log(right / left) * factor > max(map(len, labels[first])) * LETTER:
                text = "\n".join(labels[first])
                ax.text(np.sqrt(left * right), row, text, fontsize=SMALL, ha="center", va="center", color=INK)
        _label(ax, x[0], row, f"batch {batch[0]:,}", "right")
        _label(ax, x[-1], row, f"batch {batch[-1]:,}", "left")
    absent = ds.attrs["absent"].split(", ") if ds.attrs["absent"] else []
    for row in range(len(gpus), len(gpus) + len(absent)):
        _label(ax, ds[USER].values.min(), row, "no layout runs", "left")
    ax.set_yticks(range(len(gpus) + len(absent)), [*map(gpu_name, gpus), *absent])
    ax.set_ylim(len(gpus) + len(absent) - 0.5, -0.5)
    ax.set_title("layout and precision on the frontier", fontsize=9, fontweight="normal")
    ax.grid(visible=False)
    ax.set_xlabel(USER_LABEL)


def _label(ax: Axes, x: float, y: float, text: str, ha: str) -> None:
    shift = (4 if ha == "left" else -4, 0)
    ax.annotate(text, (x, y), shift, textcoords="offset points", color=FAINT, fontsize=SMALL, ha=ha, va="center")
