"""Setups of figures 1 and 10 with credible intervals: data of both, and their drawing."""

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
from ..shared.common import described, log_grid
from ..shared.measurements import NEVER_PUBLISHED, evaluated, measured_points, setups
from ..shared.style import FAINT, INK, gpu_colour, headline, log_axis, new_figure
from .decode_tps import assumptions

PROBABILITY = 0.9
BATCHES = log_grid(1, 131072, 40)
COLUMNS = 4


def with_bands(what: str, posterior: Any) -> xr.Dataset:
    """One metric of every setup over batch: its band, the speed ceiling, and the published points."""
    draws, lines = load_posterior(posterior), []
    rows: list[Any] = list(setups().itertuples())
    for row in rows:
        runs = [batch for batch in BATCHES if batch >= row.dp]
        drawn, ideal = (derive(evaluated(row, runs, e, outputs=NEEDED), what) for e in (draws, "ideal"))
        found = {what: summarize(drawn[[what]], PROBABILITY)[what], "ceiling": ideal[what]}
        line = xr.Dataset({name: values.reset_coords(drop=True) for name, values in found.items()})
        lines.append(line.reindex(batch=BATCHES).transpose("band", "batch"))
    ds = xr.concat(lines, "setup").assign_coords(setup=[r.setup for r in rows], gpu=("setup", [r.gpu for r in rows]))
    return ds.assign(measured_points()).assign_attrs(posterior=draws.attrs["name"])


NEEDED = ["step_time", "status"]


def data_of(what: str, of: str, figure: str, posterior: Any) -> xr.Dataset:
    """Data of a figure: `what` is the metric, `of` whom it is about, `figure` the one with the same setups."""
    ds = with_bands(what, posterior)
    name = ds.attrs["posterior"]
    return described(
        ds,
        title=f"DeepSeek-V3 decode: what to expect of {of}, beside the speed ceiling",
        shows=f"The setups of figure {figure}. Shaded: where {PROBABILITY:.0%} of measurements are expected by the "
        f"posterior {name}, the uncertainty of its factors and its errors; line: the median; dashes: the speed ceiling "
        "(ideal efficiencies). Every line ends where the memory does. Markers are published measurements of several "
        "engines (filled: GPUs that only decode; open: GPUs that also prefill, which lines and bands leave out). "
        + NEVER_PUBLISHED,
        assumptions=assumptions(f"efficiencies drawn from the posterior {name}"),
    )


def draw_bands(ds: xr.Dataset, what: str, y: str) -> Figure:
    """A panel for every setup, all with the same axes; the key in the place that is left."""
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
    """Band, median and ceiling of one setup."""
    colour, bands = gpu_colour(str(line["gpu"].values)), line[what]
    ax.fill_between(line["batch"], bands.sel(band="low"), bands.sel(band="high"), color=colour, alpha=0.25, lw=0)
    ax.plot(line["batch"], bands.sel(band="median"), color=colour)
    ax.plot(line["batch"], line["ceiling"], color=INK, linestyle="--", linewidth=1.1)
    ax.set_xlabel("batch (sequences)")
    ax.tick_params(axis="x", labelbottom=True)  # the last row is not full
    ax.set_title(str(line["setup"].values).replace(", FP4, ", ", FP4,\n"), fontsize=9, color=colour)


def _points(ax: Axes, points: xr.Dataset, what: str, colour: str) -> None:
    """Published measurements of one setup."""
    for alone, face in (("alone", colour), ("with prefill", "white")):
        chosen = points.isel(point=np.flatnonzero(points["measured_decode"].values == alone))
        y = chosen[f"measured_{what}"]
        ax.plot(chosen["measured_batch"], y, "o", ms=6, color=colour, mfc=face, mew=1.5, zorder=3)


def _key() -> list[Any]:
    """What lines and markers mean."""
    mark: dict[str, Any] = {"marker": "o", "linestyle": "", "color": FAINT, "mew": 1.5}
    return [
        Line2D([], [], color=INK, linestyle="--", linewidth=1.1, label="speed ceiling"),
        Line2D([], [], color=FAINT, label="median"),
        Patch(color=FAINT, alpha=0.4, label=f"{PROBABILITY:.0%} interval"),
        Line2D([], [], **mark, label="measured, decode only"),
        Line2D([], [], **mark, mfc="white", label="measured, with prefill"),
    ]
