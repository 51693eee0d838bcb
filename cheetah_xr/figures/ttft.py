"""Seed 1, "Be cautious with average TTFT numbers": equal prompts prefilled together or one after another."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ..analysis import mean_ttft, ttft_distribution
from ..api import evaluate
from .common import assumed, described, drawable, instance
from .style import SERIES, end_labels, headline, new_figure

PROMPT, MOST, SHOWN = 4096, 32, 16
SCHEDULES = {"together": "all at once", "in_turn": "one after another"}
FORMULAS = {"together": "B·t", "in_turn": "(B+1)/2·t"}


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Mean time to first token over the number of prompts, and every request's own."""
    ds = evaluate(
        model,
        gpu,
        batch=1,
        seq_len=PROMPT,
        phase="prefill",
        tp=instance(gpu),
        efficiency="ideal",
        outputs=["step_time"],
        options={"on_infeasible": "ignore"},
    )
    one, batch = float(drawable(ds["step_time"])), np.arange(1, MOST + 1)
    means = {name: mean_ttft(one, batch, name) for name in SCHEDULES}  # type: ignore[arg-type]
    every = {name: ttft_distribution(one, SHOWN, name).values for name in SCHEDULES}  # type: ignore[arg-type]
    return described(
        xr.Dataset(
            {
                "prefill_time": one,
                "mean_ttft": (("schedule", "batch"), np.array(list(means.values())), {"units": "s"}),
                "ttft": (("schedule", "request"), np.array(list(every.values())), {"units": "s"}),
            },
            coords={"schedule": list(SCHEDULES), "batch": batch, "request": np.arange(1, SHOWN + 1)},
        ),
        title="The same work, half the mean TTFT: look at the whole distribution",
        shows=f"Prompts of {PROMPT:,} input tokens that arrive together, t = {one * 1e3:.0f} ms of prefill "
        "each, which adds up as prefill is bound by compute. In one pass all B wait B*t; one after another the mean is "
        f"(B + 1)/2*t, though the last request waits as long as before. Right: every request of {SHOWN}.",
        assumptions=assumed(ds),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Means on the left, every request on the right."""
    fig, (left, right) = new_figure(1, 2, height=3.9)
    labels = []
    for (name, words), colour in zip(SCHEDULES.items(), SERIES, strict=False):
        mean = ds["mean_ttft"].sel(schedule=name)
        left.plot(ds["batch"], mean, color=colour, label=f"{words}: {FORMULAS[name]}")
        right.plot(ds["request"], ds["ttft"].sel(schedule=name), "o", color=colour, ms=5)
        own = ds["ttft"].sel(schedule=name)
        right.axhline(float(own.mean()), color=colour, linestyle=":", linewidth=1.2, zorder=0)
        labels.append((float(ds["request"][-1]), float(own.mean()), f"mean,\n{words}", colour))
    for ax, x, y in (
        (left, "prompts that arrive together, B", "mean time to first token (s)"),
        (right, "request, in order of service", "its time to first token (s)"),
    ):
        ax.set_xlabel(x)
        ax.set_ylabel(y)
        ax.set_ylim(0, (1.25 if ax is left else 1.06) * ax.dataLim.y1)
        ax.set_xlim(0)
    left.legend(loc="upper left", labelcolor="linecolor", handlelength=0, fontsize=9)
    end_labels(right, labels, gap=2.4)
    headline(fig, ds.attrs["title"])
    return fig
