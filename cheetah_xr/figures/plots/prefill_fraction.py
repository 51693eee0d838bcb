"""Draw [CHEETAH], figure 3: time of a request in prefill and in decode over input length."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..shared.common import assumed, crossing, described, drawable, instance, log_grid, max_context, model_name
from ..shared.request_time import prefill_fraction
from ..shared.style import INK, PHASES, headline, log_axis, new_figure, tokens

OUTPUTS = {"chat": 1024, "RAG": 128}
"""Output tokens of two kinds of requests: long outputs, and short ones over retrieved text."""


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return prefill as a fraction of the time of a single request on the instance."""
    inputs = log_grid(128, min(65536, max_context(model) - max(OUTPUTS.values())), 40)
    where: dict[str, Any] = {"model": model, "gpu": gpu, "tp": instance(gpu), "efficiency": "ideal"}
    where["options"] = {"on_infeasible": "ignore"}
    fraction, ds = prefill_fraction(where, inputs, list(OUTPUTS.values()))
    half = [crossing(inputs, fraction.sel(output_tokens=n), 0.5) for n in OUTPUTS.values()]
    return described(
        {
            "prefill_fraction": drawable(fraction),
            "half": ("output_tokens", half),
            "kind": ("output_tokens", list(OUTPUTS)),
        },
        title=f"{model_name(model)}: at longer inputs prefill takes more of the time",
        shows="End-to-end time of one request: TTFT, then every output token at its own context length. Chat-like "
        f"requests have {OUTPUTS['chat']:,} output tokens, RAG-like ones {OUTPUTS['RAG']}.",
        assumptions=assumed(ds),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one panel per kind of request, prefill below decode."""
    fig, axes = new_figure(1, ds.sizes["output_tokens"], height=4.0)
    for i, ax in enumerate(axes):
        _panel(ax, ds.isel(output_tokens=i), ds["input_tokens"].values)
    for ax in axes[1:]:
        ax.tick_params(axis="y", labelleft=False)
    axes[0].set_ylabel("fraction of the request's time")
    headline(fig, ds.attrs["title"])
    return fig


def _panel(ax: Axes, one: xr.Dataset, x: Any) -> None:
    """Draw stacked fractions, and the input length at which both phases take the same time."""
    fraction = one["prefill_fraction"].values
    ax.fill_between(x, fraction, 0, color=PHASES["prefill"], alpha=0.85, linewidth=0)
    ax.fill_between(x, fraction, 1, color=PHASES["decode"], alpha=0.85, linewidth=0)
    ax.set_title(f"{one['kind'].values}-like: {int(one['output_tokens']):,} output tokens", fontweight="normal")
    ax.text(x[1], 0.9, "decode", color="white", fontweight="bold", va="center")
    ax.text(x[-2], 0.06, "prefill", color="white", fontweight="bold", ha="right", va="center")
    half = float(one["half"])
    if np.isfinite(half):
        ax.plot(half, 0.5, "o", color="white", mec=INK, ms=7)
        ax.annotate(f"equal at {half:,.0f} input tokens", (half, 0.5), (-9, 9), textcoords="offset points",
                    color="white", ha="right")  # fmt: skip
    log_axis(ax, "x", binary=True)
    ax.set_xticks([value for value in 128 * 4 ** np.arange(10) if x[0] <= value <= x[-1]])
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel("input tokens")
