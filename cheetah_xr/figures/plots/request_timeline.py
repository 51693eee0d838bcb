"""Draw [Qwen3-FLOPs], figure 2: one prefill and repeated decode steps, to scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...analysis import request_latency
from ..shared.common import described, gpu_name, model_name
from ..shared.source_accounting import LAYERS, QWEN3_H100, assumed_on, ideal
from ..shared.style import BOUND_BY, INK, headline, new_figure, titled

PROMPT, OUTPUT, SHOWN = 1000, 200, 8
"""Input tokens, output tokens of the request, and output tokens of the close-up."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return the start and duration of every forward pass of one request."""
    steps = list(range(PROMPT + 1, PROMPT + OUTPUT))  # the context each decode step reads
    prefill = ideal(model, gpu, options=LAYERS, phase="prefill", seq_len=PROMPT, outputs=["ttft"])
    decode = ideal(model, gpu, options=LAYERS, seq_len=steps, outputs=["tpot"])
    ttft, tpot = float(prefill["ttft"]), decode["tpot"].values
    length = np.concatenate(([ttft], tpot))
    start = np.concatenate(([0.0], np.cumsum(length)[:-1]))
    latency, mean = float(request_latency(ttft, tpot, OUTPUT)), float(tpot.mean())
    return described(
        {
            "start": ("token", start, {"units": "s"}),
            "duration": ("token", length, {"units": "s"}),
            "token": ("token", np.arange(1, OUTPUT + 1), {"long_name": "output token of the forward pass"}),
            "ttft": ((), ttft, {"units": "s"}),
            "tpot": ((), mean, {"units": "s", "long_name": "mean time per output token after the first"}),
            "latency": ((), latency, {"units": "s"}),
        },
        title=f"One prefill, then a decode step for every token: {model_name(str(decode['model'].values))} on "
        f"{gpu_name(str(decode['gpu'].values))}",
        shows=f"{PROMPT:,} input and {OUTPUT} output tokens, one request, to scale. The prefill produces the first "
        f"output token after {ttft * 1e3:.1f} ms (TTFT), every decode step one more, {mean * 1e3:.1f} ms on average "
        f"(TPOT): latency = TTFT + TPOT x ({OUTPUT} - 1) = {latency:.2f} s.",
        assumptions=assumed_on(decode),
        prompt=PROMPT,
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw the first output tokens above, the whole request below."""
    fig, (near, whole) = new_figure(2, 1)
    headline(fig, ds.attrs["title"])
    first = ds.isel(token=slice(0, SHOWN))
    scale = 1e3
    _blocks(near, first, scale, top=2.0)
    ttft, tpot = float(ds["ttft"]) * scale, float(ds["tpot"]) * scale
    near.text(ttft / 2, 0, f"prefill\n{ds.attrs['prompt']:,} input tokens", ha="center", va="center", color="white")
    for token, start, length in zip(first["token"].values[1:], first["start"][1:], first["duration"][1:], strict=True):
        near.text(float(start + length / 2) * scale, 0, f"{token}", ha="center", va="center", color="white")
    _bracket(near, 0, ttft, f"TTFT {ttft:.1f} ms: output token 1", height=1.4)
    _bracket(near, ttft, ttft + tpot, f"TPOT {tpot:.1f} ms: one decode step, one output token")
    near.set_xlim(0, float(first["start"][-1] + first["duration"][-1]) * scale)
    titled(near, "", f"time (ms); numbers in blocks: output token, 2 to {SHOWN}", "")
    _blocks(whole, ds, 1, top=1.4)
    latency, ttft = float(ds["latency"]), float(ds["ttft"])
    whole.text(
        (latency + ttft) / 2, 0, f"{ds.sizes['token'] - 1} decode steps", ha="center", va="center", color="white"
    )
    _bracket(whole, 0, latency, f"whole request {latency:.2f} s, of which prefill {ttft / latency:.1%}")
    whole.set_xlim(0, latency)
    titled(whole, "", "time (s)", "")
    return fig


def _blocks(ax: Axes, ds: xr.Dataset, scale: float, top: float) -> None:
    """Draw forward passes as blocks: prefill in the colour of compute, decode in that of weights."""
    start, length = ds["start"].values * scale, ds["duration"].values * scale
    colours = [BOUND_BY["compute"], *[BOUND_BY["weights"]] * (len(start) - 1)]
    wide = length.mean() > 1  # blocks wide enough for an edge
    ax.barh(np.zeros_like(start), length, left=start, height=1, color=colours, edgecolor="white", linewidth=1.2 * wide)
    ax.set_ylim(-0.6, top)
    ax.yaxis.set_visible(False)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)


def _bracket(ax: Axes, low: float, high: float, label: str, height: float = 0.85) -> None:
    """Draw a span above the blocks, labelled at its left end."""
    ax.annotate(
        "", (high, 0.68), (low, 0.68), arrowprops={"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    )
    ax.text(low, height, f" {label}", color=INK, ha="left", va="bottom")
