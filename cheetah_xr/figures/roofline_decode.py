"""Seed 2, figure 10: decode on the roofline, and its intensity over the length of the context."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from .common import described, log_grid, model_name
from .rooflines import AXES, draw_roof, mark_ridge, points, roof
from .seeds import LAYERS_SMALL, SEED_2_H100, assumed_on, with_cache
from .style import BOUND_BY, FAINT, HEIGHT, INK, SERIES, headline, log_axis, new_figure, titled, tokens

NAMED = 1000
"""The seed's context."""

FAR = 10**8
"""Tokens; the slope of FLOPs over bytes there is the asymptote."""


def data(model: Any = "qwen3-32b", gpu: Any = SEED_2_H100) -> xr.Dataset:
    """Decode steps over context lengths, past what the model takes, and the roof."""
    record = with_cache(model)
    endless = record.model_copy(update={"max_seq_len": None})
    lengths = sorted({*log_grid(1, FAR, 97), NAMED, 2 * FAR})
    ds = points(endless, gpu, LAYERS_SMALL, "decode", lengths)
    moved = ds["flops"] / ds["arithmetic_intensity"]
    last = {"seq_len": slice(-2, None)}
    asymptote = ds["flops"].isel(last).diff("seq_len") / moved.isel(last).diff("seq_len")
    at = float(ds["arithmetic_intensity"].sel(seq_len=NAMED))
    limit, machine = float(asymptote[0]), roof(gpu)
    where = "never leaves the memory slope" if limit < float(machine["ridge"]) else "starts deep on the memory slope"
    return described(
        xr.merge(
            [ds[["arithmetic_intensity", "flops", "reached"]].reset_coords(drop=True), machine], combine_attrs="drop"
        ).assign(asymptote=((), limit), longest=((), float(getattr(record, "max_seq_len", None) or np.nan))),
        title=f"Decode of {model_name(record.name)} {where}",
        shows=f"One step of one sequence at a context of L tokens: {at:.2f} FLOP per byte at L = {NAMED:,}, and never "
        f"more than {limit:.2f}, the FLOPs over the bytes of one more cached token.",
        assumptions=f"{assumed_on(ds)} The curve goes past the longest context of the model.",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Left the roofline, right the intensity and its asymptote."""
    fig, (left, right) = new_figure(1, 2, width=10, height=HEIGHT)
    headline(fig, ds.attrs["title"])
    _roofline(left, ds)
    _intensity(right, ds)
    return fig


def _roofline(ax: Axes, ds: xr.Dataset) -> None:
    draw_roof(ax, ds)
    mark_ridge(ax, ds)
    inside = ds.sel(seq_len=ds["seq_len"] <= np.nan_to_num(float(ds["longest"]), nan=FAR))
    x, y = inside["arithmetic_intensity"].values, inside["reached"].values / 1e12
    ax.plot(x, y, color=SERIES[1], linewidth=7, alpha=0.6, solid_capstyle="round")
    at = ds.sel(seq_len=NAMED)
    share = float(at["reached"]) / float(ds["peak"])
    point = (float(at["arithmetic_intensity"]), float(at["reached"]) / 1e12)
    ax.plot(*point, "o", color=BOUND_BY["weights"], markersize=8)
    ax.annotate(
        f"L={NAMED:,}: {point[0]:.2f} FLOP/byte,\n{share:.1%} of the peak",
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
    limit, longest = float(ds["asymptote"]), float(ds["longest"])
    inside = x <= longest if longest == longest else x > 0
    ax.plot(x, y, color=SERIES[1], linestyle="--", linewidth=1.4)
    ax.plot(x[inside], y[inside], color=SERIES[1], linewidth=2.4)
    ax.axhline(limit, color=FAINT, linestyle=":")
    ax.annotate(f"asymptote {limit:.2f}", (x[0], limit), xytext=(6, 5), textcoords="offset points", color=INK)
    if longest == longest:
        end = (x[inside][-1], y[inside][-1])
        words = f"longest context,\n{tokens(longest)} tokens"
        ax.annotate(words, end, xytext=(-8, 8), textcoords="offset points", ha="right", color=INK)
        ax.plot(*end, "|", color=SERIES[1], markersize=14, markeredgewidth=2)
    named = float(shown["arithmetic_intensity"].sel(seq_len=NAMED))
    ax.plot([NAMED], [named], "o", color=BOUND_BY["weights"], markersize=8)
    ax.annotate(
        f"{named:.2f} at L={NAMED:,}",
        (NAMED, named),
        xytext=(0, 10),
        textcoords="offset points",
        ha="right",
    )
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, limit * 1.15)
    titled(ax, "", "context (cached tokens)", "arithmetic intensity (FLOP/byte)")
