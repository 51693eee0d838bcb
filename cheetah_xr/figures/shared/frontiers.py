"""Compute and draw Pareto frontiers over all layouts, precisions and batches of some GPUs, one per accelerator."""

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
from .common import assumed, drawable, gpu_name, log_grid, max_context
from .style import FAINT, end_labels, gpu_colour, log_axis

GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72", "mi355x")
N_GPUS = 8
CONTEXT = 8192
MARKS = {1: "o", 8: "s", 64: "^", 512: "D"}
"""Batches marked along a frontier."""

BATCHES = sorted({*MARKS, *range(1, 16), *(8 * b for b in log_grid(1, 2048, 60))})
USER = "tps_per_user"
USER_LABEL = "interactivity (output tokens/s per user)"


PRECISIONS = ("bf16", "fp8", "fp8-kv8", "mxfp4", "mxfp4-kv8")
"""Precisions compared: 16, 8 and 4 bit weights, KV cache in 16 or 8 bit; FP4 is MX, which both vendors have."""


def with_published(precisions: Sequence[str], model: str) -> list[str]:
    """Return the precisions and that of the checkpoint, with an 8-bit KV cache too where the catalogue has it."""
    own = getattr(load_model(model), "default_precision", None)
    more = [name for name in (own, f"{own}-kv8") if name in list_precisions()]
    return list(dict.fromkeys((*precisions, *more)))


def frontiers(model: str, metric: str, *, minimize: Sequence[str] = (), keep: Sequence[str] = ()) -> xr.Dataset:
    """Return the frontier of tokens/s per user and a metric for every accelerator, on dim ``point``.

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
    splits, context = layouts(N_GPUS, model), int(min(CONTEXT, max_context(model)))
    grid = evaluate(
        model, list(GPUS), with_published(PRECISIONS, model), batch=BATCHES, seq_len=context,
        tp=splits.tp, dp=splits.dp, ep=splits.ep, outputs=[USER, metric, *keep],
    )  # fmt: skip
    front = pareto(grid, USER, metric, ["precision", "layout", "batch"], minimize=minimize, keep=keep)
    drawable(grid[USER])
    present = set(front["gpu"].values.tolist())
    searched = (
        f" Decode at {context:,} tokens of context on {N_GPUS} GPUs; best of the {grid.sizes['layout']} valid layouts, "
        f"the precisions {', '.join(grid['precision'].values)} (kv8: KV cache in 8 bit), and batches 1 to "
        f"{max(BATCHES):,}, the same on every GPU."
    )
    return front.assign_attrs(
        assumptions=assumed(grid.drop_vars(["tp", "dp", "ep"])) + searched,
        absent=", ".join(gpu_name(gpu) for gpu in GPUS if gpu not in present),
    )


def of_gpu(ds: xr.Dataset, gpu: str) -> xr.Dataset:
    """Select the frontier of one accelerator, by rising tokens/s per user."""
    return ds.isel(point=np.flatnonzero(ds["gpu"].values == gpu))


def gpus_of(ds: xr.Dataset) -> list[str]:
    """List the accelerators that have a frontier, in order."""
    return list(dict.fromkeys(ds["gpu"].values.tolist()))


def layout_label(point: xr.Dataset) -> str:
    """Return the layout of a point as text, such as tp4 dp2 ep8."""
    degrees = {name: int(point[name]) for name in ("tp", "dp", "ep")}
    return " ".join(f"{name}{n}" for name, n in degrees.items() if n > 1) or "tp1"


def describe_ends(ds: xr.Dataset, metric: str, units: str, form: str) -> str:
    """Describe the first and last point of every frontier."""
    lines = []
    for gpu in gpus_of(ds):
        front = of_gpu(ds, gpu)
        first, last = (
            f"{float(point[metric]):{form}} at {float(point[USER]):.0f} (batch {int(point['batch']):,}, "
            f"{layout_label(point)}, {point['precision'].item()})"
            for point in (front.isel(point=0), front.isel(point=-1))
        )
        lines.append(f"{gpu_name(gpu)} {first} to {last}")
    absent = f" In none of these precisions does it run on {ds.attrs['absent']}." if ds.attrs["absent"] else ""
    return f"Ends, {units} at output tokens/s per user: {'; '.join(lines)}.{absent}"


def draw_lines(ax: Axes, ds: xr.Dataset, metric: str) -> None:
    """Draw every frontier in its accelerator's colour, dashed where it covers another, with some batches marked."""
    before: list[Any] = []
    for gpu in gpus_of(ds):
        front = of_gpu(ds, gpu)
        x, y = front[USER].values, front[metric].values
        covers = any(np.allclose(np.interp(x, *line), y, rtol=0.02) for line in before)
        before.append((x, y))
        ax.plot(x, y, color=gpu_colour(gpu), linestyle=(0, (4, 4)) if covers else "-")
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


def name_lines(ax: Axes, ds: xr.Dataset, metric: str, label: Callable[[str], str], *, first: bool = False) -> None:
    """Label every frontier at its last point, or left of its first."""
    points = [(of_gpu(ds, gpu).isel(point=0 if first else -1), gpu) for gpu in gpus_of(ds)]
    named = [(float(p[USER]), float(p[metric]), label(gpu), gpu_colour(gpu)) for p, gpu in points]
    end_labels(ax, named, ha="right" if first else "left")
