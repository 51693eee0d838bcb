"""Seed 2, figure 14: memory set aside for activations, a rule of thumb, and the requests it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...specs import Options, load_gpu
from ..shared.common import assumed, described, gpu_name, model_name
from ..shared.seeds import SEED_2_H100, ideal, with_cache
from ..shared.style import BOUND_BY, INK, end_labels, gpu_colour, headline, new_figure, titled
from .memory_budget import CONTEXT, HIGH, LOW

SHARES = [i / 100 for i in range(41)]
BESIDE = ("h200-sxm", "mi300x")
"""Larger accelerators drawn beside the one asked for."""


def data(model: Any = "qwen3-32b", gpu: Any = SEED_2_H100) -> xr.Dataset:
    """Requests that fit on every accelerator for every share of the weights set aside."""
    first = load_gpu(gpu)
    gpus = [first, *(name for name in BESIDE if name != first.name)]
    held = float(
        ideal(with_cache(model), first, options=Options(on_infeasible="ignore"), outputs=["weight_bytes"])[
            "weight_bytes"
        ]
    )
    fits, last = [], None
    for share in SHARES:
        options = Options(memory_fraction=1.0, reserve_bytes=share * held)
        last = ideal(model, gpus, options=options, seq_len=CONTEXT, outputs=["max_batch"])
        fits.append(last["max_batch"].values)
    requests = np.array(fits)
    at = {share: int(requests[SHARES.index(share), 0]) for share in (0.0, LOW, HIGH)}
    assert last is not None
    return described(
        {
            "requests": (("share", "gpu"), requests, {"long_name": "requests that fit"}),
            "share": ("share", SHARES, {"long_name": "memory set aside over weight bytes"}),
            "gpu": last["gpu"].values,
        },
        title=f"Activations of {LOW:.0%} to {HIGH:.0%} of the weights: {at[0.0]} requests become {at[LOW]} to "
        f"{at[HIGH]}"
        if at[0.0]
        else f"Not one request fits on {gpu_name(first.name)}, with or without room for activations",
        shows=f"Requests of {CONTEXT:,} tokens that fit beside the {held / 1e9:.1f} GB of weights of "
        f"{model_name(str(last['model'].values))} when memory is set aside for activations, in per cent of those that "
        f"fit when none is. The band is the rule of thumb of {LOW:.0%} to {HIGH:.0%} of the weights.",
        assumptions=f"{assumed(last.drop_attrs())} All of the memory may be used: "
        + ", ".join(
            f"{gpu_name(str(name))} {size / 1e9:,.4g} GB"
            for name, size in zip(last["gpu"].values, last["memory_bytes"].values, strict=True)
        )
        + ".",
    )


def draw(ds: xr.Dataset) -> Figure:
    """One line per accelerator and the band."""
    fig, ax = new_figure()
    headline(fig, ds.attrs["title"])
    ax.axvspan(100 * LOW, 100 * HIGH, color=BOUND_BY["activations"], alpha=0.25, linewidth=0)
    ax.text(50 * (LOW + HIGH), 103, "rule of thumb", ha="center", va="bottom", color=INK)
    share, lines = ds["share"].values * 100, []
    kept = 100 * ds["requests"] / ds["requests"].isel(share=0).clip(1)
    edges = [int(np.argmin(np.abs(ds["share"].values - edge))) for edge in (LOW, HIGH)]
    for name in ds["gpu"].values:
        fit, colour = ds["requests"].sel(gpu=name).values, gpu_colour(str(name))
        left = kept.sel(gpu=name).values
        ax.plot(share, left, color=colour)
        ax.plot(share[edges], left[edges], "o", color=colour, markersize=6)
        words = f"{gpu_name(str(name))}: {fit[0]:.0f} requests\nbecome {fit[edges[0]]:.0f} to {fit[edges[1]]:.0f}"
        lines.append((share[-1], left[-1], words, colour))
    ax.set_xlim(0, share[-1])
    ax.set_ylim(-4 if ds["requests"].isel(share=0).all() else -24, 112)  # room for a name at 0
    titled(ax, "", "set aside for activations (% of weight bytes)", "requests that still fit (%)")
    end_labels(ax, lines, gap=2.7)
    return fig
