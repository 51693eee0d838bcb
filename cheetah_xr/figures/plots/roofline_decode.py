"""Draw [Qwen3-FLOPs], figure 10: decode on the roofline, and its intensity over the length of the context."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..shared.common import described, drawable, log_grid, model_name
from ..shared.rooflines import AXES, draw_roof, mark_ridge, points, roof
from ..shared.source_accounting import LAYERS_SMALL, QWEN3_H100, assumed_on, with_cache
from ..shared.style import BOUND_BY, FAINT, HEIGHT, INK, SERIES, headline, log_axis, new_figure, titled, tokens

NAMED = 1000
"""Context of the worked example in [Qwen3-FLOPs]."""

MIDDLE = 10**6
"""Longer contexts are labelled on the left, where there is space."""

FAR = 10**8
"""Tokens; the slope of FLOPs over bytes there is the asymptote."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return decode steps over context lengths, beyond the maximum context too, and the roof."""
    record = with_cache(model)
    unlimited = record.model_copy(update={"max_seq_len": None})
    lengths = sorted({*log_grid(1, FAR, 97), NAMED, 2 * FAR})
    ds = points(unlimited, gpu, LAYERS_SMALL, "decode", lengths)
    moved = ds["flops"] / ds["arithmetic_intensity"]
    last = {"seq_len": slice(-2, None)}
    asymptote = ds["flops"].isel(last).diff("seq_len") / moved.isel(last).diff("seq_len")
    drawable(ds["arithmetic_intensity"])
    at, most = (float(v) for v in (ds["arithmetic_intensity"].sel(seq_len=NAMED), ds["arithmetic_intensity"].max()))
    slope, machine = float(asymptote[0]), roof(gpu)
    rising = slope >= most * (1 - 1e-9)  # false too where no more token is read, and the slope is 0 over 0
    limit, ridge = slope if rising else most, float(machine["ridge"])
    low = "is memory-bound at short contexts" if at < ridge else "is compute-bound"
    where = "is memory-bound at any context" if limit < ridge else low
    why = "the FLOPs over the bytes of one more cached token" if rising else "the most at any context"
    return described(
        xr.merge(
            [ds[["arithmetic_intensity", "flops", "reached"]].reset_coords(drop=True), machine], combine_attrs="drop"
        ).assign(asymptote=((), limit), max_context=((), float(getattr(record, "max_seq_len", None) or np.nan))),
        title=f"Decode of {model_name(record.name)} {where}",
        shows=f"One step of one sequence at a context of L tokens: {at:.2f} FLOP per byte at L = {NAMED:,}, and never "
        f"more than {limit:.2f}, {why}.",
        assumptions=f"{assumed_on(ds)} The curve continues beyond the maximum context.",
        limit="asymptote" if rising else "maximum",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw the roofline on the left, the intensity and its asymptote on the right."""
    fig, (left, right) = new_figure(1, 2, width=10, height=HEIGHT)
    headline(fig, ds.attrs["title"])
    _roofline(left, ds)
    _intensity(right, ds)
    return fig


def _roofline(ax: Axes, ds: xr.Dataset) -> None:
    draw_roof(ax, ds)
    mark_ridge(ax, ds)
    inside = ds.sel(seq_len=ds["seq_len"] <= np.nan_to_num(float(ds["max_context"]), nan=FAR))
    x, y = inside["arithmetic_intensity"].values, inside["reached"].values / 1e12
    ax.plot(x, y, color=SERIES[1], linewidth=7, alpha=0.6, solid_capstyle="round")
    at = ds.sel(seq_len=NAMED)
    fraction = float(at["reached"]) / float(ds["peak"])
    point = (float(at["arithmetic_intensity"]), float(at["reached"]) / 1e12)
    ax.plot(*point, "o", color=BOUND_BY["weights"], markersize=8)
    ax.annotate(
        f"L={NAMED:,}: {point[0]:.2f} FLOP/byte,\n{fraction:.1%} of the peak",
        point,
        xytext=(12, -6),
        textcoords="offset points",
        va="top",
        color=INK,
    )
    titled(ax, "", *AXES)


def _intensity(ax: Axes, ds: xr.Dataset) -> None:
    shown = ds.sel(seq_len=slice(None, FAR))
    x, y = shown["seq_len"].values, shown["arithmetic_intensity"].values
    log_axis(ax, "x")
    limit, most = float(ds["asymptote"]), float(ds["max_context"])
    named = float(shown["arithmetic_intensity"].sel(seq_len=NAMED))
    inside = x <= most if most == most else x > 0
    ax.plot(x, y, color=SERIES[1], linestyle="--", linewidth=1.4)
    ax.plot(x[inside], y[inside], color=SERIES[1], linewidth=2.4)
    ax.axhline(limit, color=FAINT, linestyle=":")
    ax.annotate(f"{ds.attrs['limit']} {limit:.2f}", (x[0], limit), xytext=(6, 5), textcoords="offset points", color=INK)
    if most == most:
        end = (x[inside][-1], y[inside][-1])
        label = f"maximum context,\n{tokens(most)} tokens"
        high = end[1] > 0.75 * limit  # then below the curve
        after, above = high and end[0] < MIDDLE, 24 if end[1] - named < 0.1 * limit else 8
        ax.annotate(
            label,
            end,
            xytext=(6 if after else -8, -8 if high else above),
            textcoords="offset points",
            ha="left" if after else "right",
            va="top" if high else "baseline",
            color=INK,
        )
        ax.plot(*end, "|", color=SERIES[1], markersize=14, markeredgewidth=2)
    low = named > 0.75 * limit  # below the curve, clear of the line at the limit
    ax.plot([NAMED], [named], "o", color=BOUND_BY["weights"], markersize=8)
    ax.annotate(
        f"{named:.2f} at L={NAMED:,}",
        (NAMED, named),
        xytext=(0, -10 if low else 10),
        textcoords="offset points",
        ha="right",
        va="top" if low else "baseline",
    )
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, limit * 1.15)
    titled(ax, "", "context (cached tokens)", "arithmetic intensity (FLOP/byte)")
