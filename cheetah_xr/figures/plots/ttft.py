"""Draw [CHEETAH], "Be cautious with average TTFT numbers": equal prompts prefilled together or one after another."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...analysis import mean_ttft, ttft_distribution
from ...api import evaluate
from ..shared.common import assumed, described, drawable, instance
from ..shared.style import FAINT, SERIES, end_labels, headline, new_figure

PROMPT, MOST, SHOWN = 4096, 32, 16
SCHEDULES = {"together": "all at once", "in_turn": "one after another"}
FORMULAS = {"together": "B·t", "in_turn": "(B+1)/2·t"}
ADDS_UP = 0.98
"""Fraction of B*t from which one forward pass of B prompts counts as no faster than B passes."""


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return mean time to first token over the number of prompts, and that of every request.

    All at once is one forward pass over B prompts; ``linear`` is B times the time of one.
    """
    batch = np.arange(1, MOST + 1)
    ds = evaluate(
        model,
        gpu,
        batch=batch.tolist(),
        seq_len=PROMPT,
        phase="prefill",
        tp=instance(gpu),
        efficiency="ideal",
        outputs=["step_time"],
        options={"on_infeasible": "ignore"},
    )
    batched = drawable(ds["step_time"]).values.astype(float)
    one, linear = batched[0], mean_ttft(batched[0], batch, "together")
    means = [batched, mean_ttft(one, batch, "in_turn")]
    every = [np.full(SHOWN, batched[SHOWN - 1]), ttft_distribution(one, SHOWN, "in_turn").values]
    fraction, gain = float(batched[-1] / linear[-1]), float(means[1][-1] / means[0][-1])
    return described(
        xr.Dataset(
            {
                "prefill_time": one,
                "mean_ttft": (("schedule", "batch"), np.array(means), {"units": "s"}),
                "linear": ("batch", linear, {"units": "s"}),
                "ttft": (("schedule", "request"), np.array(every), {"units": "s"}),
            },
            coords={"schedule": list(SCHEDULES), "batch": batch, "request": np.arange(1, SHOWN + 1)},
        ),
        title=headline_of(fraction, gain),
        shows=f"Prompts of {PROMPT:,} input tokens that arrive together, t = {one * 1e3:,.3g} ms of prefill for one "
        f"alone. In one forward pass all {MOST} wait {fraction:.1%} of {MOST}*t, {why(fraction)}; one after another "
        f"the mean of B is (B + 1)/2*t and the last waits B*t. The mean in turn is {gain:.0%} of that in one forward "
        f"pass. Right: every request of {SHOWN}.",
        assumptions=assumed(ds.isel(batch=0)),
    )


def headline_of(fraction: float, gain: float) -> str:
    """Describe the largest batch: one forward pass over passes in turn, and the mean in turn over the mean at once."""
    if fraction >= ADDS_UP:  # the mean in turn is half of that, and half a prompt
        return "The same work, half the mean TTFT: look at the whole distribution"
    if gain < 1:
        return (
            f"At once {fraction:.0%} of the time, in turn {gain:.0%} of the mean TTFT: look at the whole distribution"
        )
    return f"All at once takes {fraction:.0%} of the time, and has the lower mean TTFT"


def why(fraction: float) -> str:
    """Explain why a forward pass takes that fraction of B*t."""
    return "as prefill is bound by compute" if fraction >= ADDS_UP else "as it reads the weights once for all"


def draw(ds: xr.Dataset) -> Figure:
    """Draw means on the left, every request on the right."""
    fig, (left, right) = new_figure(1, 2, height=3.9)
    labels, linear = [], float(ds["mean_ttft"][0, -1] / ds["linear"][-1]) >= ADDS_UP
    if not linear:
        left.plot(ds["batch"], ds["linear"], color=FAINT, linestyle=":", label="as much each as alone: B·t")
    for (name, label), colour in zip(SCHEDULES.items(), SERIES, strict=False):
        mean = ds["mean_ttft"].sel(schedule=name)
        formula = f": {FORMULAS[name]}" if linear or name == "in_turn" else ""
        left.plot(ds["batch"], mean, color=colour, label=label + formula)
        right.plot(ds["request"], ds["ttft"].sel(schedule=name), "o", color=colour, ms=5)
        own = ds["ttft"].sel(schedule=name)
        right.axhline(float(own.mean()), color=colour, linestyle=":", linewidth=1.2, zorder=0)
        labels.append((float(ds["request"][-1]), float(own.mean()), f"mean,\n{label}", colour))
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
