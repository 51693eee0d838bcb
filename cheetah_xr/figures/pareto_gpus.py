"""Throughput of one GPU against speed for one user: the frontier of every accelerator, and the layouts that win on it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .common import described, gpu_name, model_name
from .frontiers import N_GPUS, USER, USER_WORDS, draw_lines, ends, frontiers, gpus_of, layout_words, name_lines, of_gpu
from .style import FAINT, INK, gpu_colour, new_figure

METRIC = "throughput_per_gpu"
SMALL = 7.5
NARROW = 0.29
"""Share of a factor of e below which a stretch of a lane is too narrow for words."""


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Frontier of output tokens/s of one GPU and output tokens/s per user, for every accelerator."""
    ds = frontiers(model, METRIC)
    return described(
        ds,
        title=f"{model_name(model)} on {N_GPUS} GPUs: throughput against speed for each user",
        shows="The best output tokens/s per GPU at every speed for the user, and below the layout and precision that "
        f"win there. {ends(ds, METRIC, 'output tokens/s per GPU', ',.0f')}",
        **{name: ds.attrs[name] for name in ("assumptions", "absent")},
    )


def draw(ds: xr.Dataset) -> Figure:
    """Frontiers above, a lane of winning layouts for every accelerator below."""
    fig, (top, lanes) = new_figure(2, height=6.2, sharex=True, height_ratios=(3, 1.8))
    draw_lines(top, ds, METRIC)
    top.set_title(ds.attrs["title"])
    top.set_ylabel("output tokens/s per GPU")
    top.set_xlim(ds[USER].values.min() * 0.6, ds[USER].values.max() * 1.6)
    top.set_ylim(ds[METRIC].values.min() * 0.6, ds[METRIC].values.max() * 1.4)
    _draw_lanes(lanes, ds)
    name_lines(top, ds, METRIC, gpu_name)
    return fig


def _draw_lanes(ax: Axes, ds: xr.Dataset) -> None:
    """For every accelerator the layout and precision of its frontier along tokens/s per user, and the end batches."""
    gpus = gpus_of(ds)
    for row, gpu in enumerate(gpus):
        front = of_gpu(ds, gpu)
        x, batch = front[USER].values, front["batch"].values
        words = [f"{layout_words(p)}\n{p.precision.item()}" for p in (front.isel(point=i) for i in range(x.size))]
        starts = [0, *(i for i in range(1, x.size) if words[i] != words[i - 1]), x.size]
        for first, after in pairwise(starts):
            left, right = x[first], x[min(after, x.size - 1)]
            ax.barh(row, right - left, 0.84, left, color=gpu_colour(gpu), alpha=0.3, edgecolor="white")
            if np.log(right / left) > NARROW:
                ax.text(np.sqrt(left * right), row, words[first], fontsize=SMALL, ha="center", va="center", color=INK)
        for at, side, shift in ((0, "right", -4), (-1, "left", 4)):
            ax.annotate(
                f"batch {batch[at]:,}", (x[at], row), (shift, 0), textcoords="offset points", color=FAINT,
                fontsize=SMALL, ha=side, va="center",
            )  # fmt: skip
    ax.set_yticks(range(len(gpus)), [gpu_name(gpu) for gpu in gpus])
    ax.invert_yaxis()
    ax.set_title("winning layout and precision", fontsize=9, fontweight="normal")
    ax.grid(visible=False)
    ax.set_xlabel(USER_WORDS)
