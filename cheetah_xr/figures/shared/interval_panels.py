"""Compute and draw the setups of [CHEETAH] figures 1 and 10 with credible intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from ...analysis import derive
from ...analysis.intervals import summarize
from ...calibration.posterior import load_posterior
from .common import described, log_grid
from .measurements import NEVER_PUBLISHED, assumptions, evaluated, measured_points, setups
from .style import FAINT, INK, gpu_colour, headline, log_axis, new_figure

PROBABILITY = 0.9
BATCHES = log_grid(1, 131072, 40)
COLUMNS = 4


def with_intervals(what: str, posterior: Any) -> xr.Dataset:
    """Return one metric of every setup over batch: its credible interval, its ideal value, and the published points."""
    samples, lines = load_posterior(posterior), []
    rows: list[Any] = list(setups().itertuples())
    for row in rows:
        runs = [batch for batch in BATCHES if batch >= row.dp]
        sampled, ideal = (derive(evaluated(row, runs, e, outputs=NEEDED), what) for e in (samples, "ideal"))
        values = {what: summarize(sampled[[what]], PROBABILITY)[what], "ideal": ideal[what]}
        line = xr.Dataset({name: array.reset_coords(drop=True) for name, array in values.items()})
        lines.append(line.reindex(batch=BATCHES).transpose("quantile", "batch"))
    ds = xr.concat(lines, "setup").assign_coords(setup=[r.setup for r in rows], gpu=("setup", [r.gpu for r in rows]))
    return ds.assign(measured_points()).assign_attrs(posterior=samples.attrs["name"])


NEEDED = ["step_time", "status"]


def data_of(what: str, of: str, figure: str, posterior: Any) -> xr.Dataset:
    """Return the data of a figure: `what` is the metric, `of` its subject, `figure` the one with the same setups."""
    ds = with_intervals(what, posterior)
    name = ds.attrs["posterior"]
    return described(
        ds,
        title=f"DeepSeek-V3 decode: output tokens/s of {of}, {PROBABILITY:.0%} credible interval and ideal",
        shows=f"The setups of figure {figure}. Shaded: the {PROBABILITY:.0%} credible interval of a measurement under "
        f"the posterior {name}, from the uncertainty of its efficiencies and its residuals; line: the median; dashes: "
        "ideal efficiencies. Lines end at the largest batch that fits. Markers are published measurements of several "
        "engines (filled: GPUs that only decode; open: GPUs that also prefill, which lines and intervals leave out). "
        + NEVER_PUBLISHED,
        assumptions=assumptions(f"efficiencies sampled from the posterior {name}"),
    )


def draw_intervals(ds: xr.Dataset, what: str, y: str) -> Figure:
    """Draw a panel for every setup on shared axes, and the legend in the panel left free."""
    rows = -(-(ds.sizes["setup"] + 1) // COLUMNS)
    fig, axes = new_figure(rows, COLUMNS, width=10.0, height=2.9 * rows, sharex=True, sharey=True)
    for ax, name in zip(axes.flat, ds["setup"].values, strict=False):
        _panel(ax, ds.sel(setup=name), what)
        points = ds.isel(point=np.flatnonzero(ds["measured_setup"].values == name))
        _points(ax, points, what, gpu_colour(str(ds["gpu"].sel(setup=name).values)))
    first = axes.flat[0]
    log_axis(first, "x")
    log_axis(first, "y")
    first.set_xlim(0.8, float(ds["batch"][-1]))
    for axis in (first.xaxis, first.yaxis):
        axis.set_major_locator(LogLocator(base=100 if axis is first.xaxis else 10, numticks=8))
    for ax in axes.flat[ds.sizes["setup"] :]:
        ax.axis("off")
    axes.flat[-1].legend(handles=_key(), loc="center", fontsize=9)
    fig.supylabel(y, fontsize=10)
    headline(fig, ds.attrs["title"])
    return fig


def _panel(ax: Axes, line: xr.Dataset, what: str) -> None:
    """Draw interval, median and ideal value of one setup."""
    colour = gpu_colour(str(line["gpu"].values))
    low, median, high = line[what].transpose("quantile", ...)
    ax.fill_between(line["batch"], low, high, color=colour, alpha=0.25, lw=0)
    ax.plot(line["batch"], median, color=colour)
    ax.plot(line["batch"], line["ideal"], color=INK, linestyle="--", linewidth=1.1)
    ax.set_xlabel("batch (sequences)")
    ax.tick_params(axis="x", labelbottom=True)  # the last row is not full
    ax.set_title(str(line["setup"].values).replace(", FP4, ", ", FP4,\n"), fontsize=9, color=colour)


def _points(ax: Axes, points: xr.Dataset, what: str, colour: str) -> None:
    """Draw the published measurements of one setup."""
    for kind, face in (("decode only", colour), ("with prefill", "white")):
        marks = points.isel(point=np.flatnonzero(points["measured_decode"].values == kind))
        y = marks[f"measured_{what}"]
        ax.plot(marks["measured_batch"], y, "o", ms=6, color=colour, mfc=face, mew=1.5, zorder=3)


def _key() -> list[Any]:
    """Return the legend of lines and markers."""
    mark: dict[str, Any] = {"marker": "o", "linestyle": "", "color": FAINT, "mew": 1.5}
    return [
        Line2D([], [], color=INK, linestyle="--", linewidth=1.1, label="ideal efficiencies"),
        Line2D([], [], color=FAINT, label="median"),
        Patch(color=FAINT, alpha=0.4, label=f"{PROBABILITY:.0%} credible interval"),
        Line2D([], [], **mark, label="measured, decode only"),
        Line2D([], [], **mark, mfc="white", label="measured, with prefill"),
    ]
