"""Seed 1, figure 3: share of a request's time in prefill and in decode, against input length."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...analysis import request_latency
from ...api import evaluate
from ..shared.common import assumed, crossing, described, drawable, instance, log_grid, longest, model_name
from ..shared.style import INK, PHASES, headline, log_axis, new_figure, tokens

ANSWERS = {"chat": 1024, "RAG": 128}
"""Output tokens of two kinds of requests: long answers, and short ones over retrieved text."""


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Share of prefill in the time of one request alone on the instance."""
    inputs = log_grid(128, min(65536, longest(model) - max(ANSWERS.values())), 40)
    where: dict[str, Any] = {"model": model, "gpu": gpu, "tp": instance(gpu), "efficiency": "ideal"}
    where["options"] = {"on_infeasible": "ignore"}
    share, ds = prefill_share(where, inputs, list(ANSWERS.values()))
    half = [crossing(inputs, share.sel(output_tokens=n), 0.5) for n in ANSWERS.values()]
    return described(
        {"prefill_share": drawable(share), "half": ("output_tokens", half), "kind": ("output_tokens", list(ANSWERS))},
        title=f"Long inputs move the time of a {model_name(model)} request into prefill",
        shows="Share of the end-to-end time of one request: ttft, then every output token at its own context length. "
        f"Chat-like answers have {ANSWERS['chat']:,} output tokens, RAG-like ones {ANSWERS['RAG']}.",
        assumptions=assumed(ds),
    )


def prefill_share(
    where: dict[str, Any], inputs: list[int], outputs: list[int], batch: int = 1
) -> tuple[xr.DataArray, xr.Dataset]:
    """Share of ttft in the latency of requests, on dims ``input_tokens`` and ``output_tokens``, and the prefill."""
    prefill = evaluate(**where, batch=batch, seq_len=inputs, phase="prefill", outputs=["step_time"])
    shares = []
    for output in outputs:
        contexts = np.add.outer(inputs, np.arange(1, output))
        wanted, at = np.unique(contexts, return_inverse=True)
        decode = evaluate(**where, batch=batch, seq_len=wanted.tolist(), outputs=["step_time"])["step_time"]
        tpot = decode.transpose(..., "seq_len").values[..., at.reshape(contexts.shape)]
        ttft = prefill["step_time"].transpose(..., "seq_len")
        shares.append(ttft / request_latency(ttft, tpot, output))
    found = xr.concat(shares, "output_tokens").assign_coords(output_tokens=outputs)
    kept = found.rename(seq_len="input_tokens").reset_coords(drop=True)
    return kept.assign_attrs(units="1", long_name="share of prefill in the time of a request"), prefill


def draw(ds: xr.Dataset) -> Figure:
    """One panel per kind of request, prefill above decode."""
    fig, axes = new_figure(1, ds.sizes["output_tokens"], height=4.0)
    for i, ax in enumerate(axes):
        _panel(ax, ds.isel(output_tokens=i), ds["input_tokens"].values)
    for ax in axes[1:]:
        ax.tick_params(axis="y", labelleft=False)
    axes[0].set_ylabel("share of the request's time")
    headline(fig, ds.attrs["title"])
    return fig


def _panel(ax: Axes, one: xr.Dataset, x: Any) -> None:
    """Stacked shares, and the input length at which both stages take the same time."""
    share = one["prefill_share"].values
    ax.fill_between(x, share, 0, color=PHASES["prefill"], alpha=0.85, linewidth=0)
    ax.fill_between(x, share, 1, color=PHASES["decode"], alpha=0.85, linewidth=0)
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
