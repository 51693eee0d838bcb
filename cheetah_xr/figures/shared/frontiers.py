"""Frontiers over all layouts, precisions and batches of some GPUs, one per accelerator: data, ends in words, lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from ...analysis import pareto
from ...api import evaluate, layouts
from ...specs import list_precisions, load_model
from .common import assumed, drawable, gpu_name, log_grid, longest
from .style import FAINT, end_labels, gpu_colour, log_axis

GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72", "mi355x")
N_GPUS = 8
CONTEXT = 8192
MARKS = {1: "o", 8: "s", 64: "^", 512: "D"}
"""Batches marked along a frontier."""

BATCHES = sorted({*MARKS, *range(1, 16), *(8 * b for b in log_grid(1, 2048, 60))})
USER = "tps_per_user"
USER_WORDS = "output tokens/s per user"


PRECISIONS = ("bf16", "fp8", "fp8-kv8", "mxfp4", "mxfp4-kv8")
"""Precisions to choose from: 16, 8 and 4 bit weights, cache in 16 or 8 bit; FP4 is MX, which both vendors have."""


def with_published(precisions: Sequence[str], model: str) -> list[str]:
    """Precisions, and that of the model's checkpoint, also with a cache in 8 bit where the catalogue has it."""
    own = getattr(load_model(model), "default_precision", None)
    more = [name for name in (own, f"{own}-kv8") if name in list_precisions()]
    return list(dict.fromkeys((*precisions, *more)))


def frontiers(model: str, metric: str, *, minimize: Sequence[str] = (), keep: Sequence[str] = ()) -> xr.Dataset:
    """The frontier of tokens/s per user and a metric for every accelerator, on dim ``point``.

    Parameters
    ----------
    model
        Catalogue name.
    metric
        A derived metric; more is better unless it is in `minimize`.
    minimize, keep
        As in :func:`cheetah_xr.analysis.pareto`.

    Returns
    -------
    xarray.Dataset
        USER, `metric` and `keep`, with every label of a point as a coordinate; attributes ``assumptions`` and
        ``absent``, the accelerators on which nothing runs.
    """
    found, context = layouts(N_GPUS, model), int(min(CONTEXT, longest(model)))
    grid = evaluate(
        model, list(GPUS), with_published(PRECISIONS, model), batch=BATCHES, seq_len=context,
        tp=found.tp, dp=found.dp, ep=found.ep, outputs=[USER, metric, *keep],
    )  # fmt: skip
    front = pareto(grid, USER, metric, ["precision", "layout", "batch"], minimize=minimize, keep=keep)
    drawable(grid[USER])
    there = set(front["gpu"].values.tolist())
    searched = (
        f" Decode at {context:,} tokens of context on {N_GPUS} GPUs; best of the {grid.sizes['layout']} valid layouts, "
        f"the precisions {', '.join(grid['precision'].values)} (kv8: cache in 8 bit), and batches 1 to "
        f"{max(BATCHES):,}, the same on every GPU."
    )
    return front.assign_attrs(
        assumptions=assumed(grid.drop_vars(["tp", "dp", "ep"])) + searched,
        absent=", ".join(gpu_name(gpu) for gpu in GPUS if gpu not in there),
    )


def of_gpu(ds: xr.Dataset, gpu: str) -> xr.Dataset:
    """The frontier of one accelerator, by rising tokens/s per user."""
    return ds.isel(point=np.flatnonzero(ds["gpu"].values == gpu))


def gpus_of(ds: xr.Dataset) -> list[str]:
    """Accelerators that have a frontier, in order."""
    return list(dict.fromkeys(ds["gpu"].values.tolist()))


def layout_words(point: xr.Dataset) -> str:
    """The layout of a point: tp4 dp2, with ep where there is one."""
    degrees = {name: int(point[name]) for name in ("tp", "dp", "ep")}
    return " ".join(f"{name}{n}" for name, n in degrees.items() if n > 1) or "tp1"


def ends(ds: xr.Dataset, metric: str, units: str, form: str) -> str:
    """First and last point of every frontier, in words."""
    said = []
    for gpu in gpus_of(ds):
        front = of_gpu(ds, gpu)
        first, last = (
            f"{float(point[metric]):{form}} at {float(point[USER]):.0f} (batch {int(point['batch']):,}, "
            f"{layout_words(point)}, {point['precision'].item()})"
            for point in (front.isel(point=0), front.isel(point=-1))
        )
        said.append(f"{gpu_name(gpu)} {first} to {last}")
    absent = f" In none of these precisions does it run on {ds.attrs['absent']}." if ds.attrs["absent"] else ""
    return f"Ends, {units} at {USER_WORDS}: {'; '.join(said)}.{absent}"


def draw_lines(ax: Axes, ds: xr.Dataset, metric: str) -> None:
    """Every frontier in its accelerator's colour, dashed over one it hides, with some batches marked."""
    before: list[Any] = []
    for gpu in gpus_of(ds):
        front = of_gpu(ds, gpu)
        x, y = front[USER].values, front[metric].values
        hides = any(np.allclose(np.interp(x, *line), y, rtol=0.02) for line in before)
        before.append((x, y))
        ax.plot(x, y, color=gpu_colour(gpu), linestyle=(0, (4, 4)) if hides else "-")
        for batch, mark in MARKS.items():
            here = front["batch"].values == batch
            ax.plot(x[here], y[here], mark, color=gpu_colour(gpu), markersize=5, markeredgecolor="white")
    for which in "xy":
        log_axis(ax, which)
        axis = ax.xaxis if which == "x" else ax.yaxis
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    marks = [Line2D([], [], linestyle="", marker=mark, color=FAINT) for mark in MARKS.values()]
    figure: Any = ax.figure
    figure.legend(marks, [f"batch {batch}" for batch in MARKS], loc="outside lower center", ncols=len(MARKS))


def name_lines(ax: Axes, ds: xr.Dataset, metric: str, words: Callable[[str], str], *, first: bool = False) -> None:
    """Name every frontier at its last point, or left of its first."""
    points = [(of_gpu(ds, gpu).isel(point=0 if first else -1), gpu) for gpu in gpus_of(ds)]
    named = [(float(p[USER]), float(p[metric]), words(gpu), gpu_colour(gpu)) for p, gpu in points]
    end_labels(ax, named, ha="right" if first else "left")
