"""Draw [Qwen3-FLOPs], figure 14: memory reserved for activations by a rule of thumb, and requests that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...specs import Options, load_gpu
from ..shared.common import assumed, described, gpu_name, model_name
from ..shared.source_accounting import QWEN3_H100, RULE_CONTEXT, RULE_HIGH, RULE_LOW, ideal, with_cache
from ..shared.style import BOUND_BY, INK, end_labels, gpu_colour, headline, new_figure, titled

FRACTIONS = [i / 100 for i in range(41)]
LARGER = ("h200-sxm", "mi300x")
"""Accelerators compared with the requested one."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return the requests that fit on every accelerator for every reserve, a fraction of the weights."""
    first = load_gpu(gpu)
    gpus = [first, *(name for name in LARGER if name != first.name)]
    weight_bytes = float(
        ideal(with_cache(model), first, options=Options(on_infeasible="ignore"), outputs=["weight_bytes"])[
            "weight_bytes"
        ]
    )
    fits, last = [], None
    for fraction in FRACTIONS:
        options = Options(memory_fraction=1.0, reserve_bytes=fraction * weight_bytes)
        last = ideal(model, gpus, options=options, seq_len=RULE_CONTEXT, outputs=["max_batch"])
        fits.append(last["max_batch"].values)
    requests = np.array(fits)
    at = {fraction: int(requests[FRACTIONS.index(fraction), 0]) for fraction in (0.0, RULE_LOW, RULE_HIGH)}
    assert last is not None
    return described(
        {
            "requests": (("reserve", "gpu"), requests, {"long_name": "requests that fit"}),
            "reserve": ("reserve", FRACTIONS, {"long_name": "memory reserved for activations over weight bytes"}),
            "gpu": last["gpu"].values,
        },
        title=f"Activations of {RULE_LOW:.0%} to {RULE_HIGH:.0%} of the weights: {at[0.0]} requests become "
        f"{at[RULE_LOW]} to {at[RULE_HIGH]}"
        if at[0.0]
        else f"Not one request fits on {gpu_name(first.name)}, with or without a reserve for activations",
        shows=f"Requests of {RULE_CONTEXT:,} tokens that fit next to the {weight_bytes / 1e9:.1f} GB of weights of "
        f"{model_name(str(last['model'].values))} when memory is reserved for activations, in per cent of those that "
        f"fit without a reserve. Shaded: the rule of thumb of {RULE_LOW:.0%} to {RULE_HIGH:.0%} of the weights.",
        assumptions=f"{assumed(last.drop_attrs())} All of the memory may be used: "
        + ", ".join(
            f"{gpu_name(str(name))} {size / 1e9:,.4g} GB"
            for name, size in zip(last["gpu"].values, last["memory_bytes"].values, strict=True)
        )
        + ".",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line per accelerator and the rule of thumb."""
    fig, ax = new_figure()
    headline(fig, ds.attrs["title"])
    ax.axvspan(100 * RULE_LOW, 100 * RULE_HIGH, color=BOUND_BY["activations"], alpha=0.25, linewidth=0)
    ax.text(50 * (RULE_LOW + RULE_HIGH), 103, "rule of thumb", ha="center", va="bottom", color=INK)
    reserve, lines = ds["reserve"].values * 100, []
    remaining = 100 * ds["requests"] / ds["requests"].isel(reserve=0).clip(1)
    edges = [int(np.argmin(np.abs(ds["reserve"].values - edge))) for edge in (RULE_LOW, RULE_HIGH)]
    for name in ds["gpu"].values:
        fit, colour = ds["requests"].sel(gpu=name).values, gpu_colour(str(name))
        left = remaining.sel(gpu=name).values
        ax.plot(reserve, left, color=colour)
        ax.plot(reserve[edges], left[edges], "o", color=colour, markersize=6)
        label = f"{gpu_name(str(name))}: {fit[0]:.0f} requests\nbecome {fit[edges[0]]:.0f} to {fit[edges[1]]:.0f}"
        lines.append((reserve[-1], left[-1], label, colour))
    ax.set_xlim(0, reserve[-1])
    ax.set_ylim(-4 if ds["requests"].isel(reserve=0).all() else -24, 112)  # space for a label at 0
    titled(ax, "", "reserved for activations (% of weight bytes)", "requests that still fit (%)")
    end_labels(ax, lines, gap=2.7)
    return fig
