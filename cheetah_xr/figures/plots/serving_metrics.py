"""Draw [Qwen3-FLOPs], metrics: latency of a request from TTFT and TPOT, and goodput under a service-level objective."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ...analysis import request_latency, ttft_distribution
from ..shared.common import described, gpu_name, log_grid, model_name
from ..shared.source_accounting import LAYERS, QWEN3_H100, assumed_on, ideal
from ..shared.style import BOUND_BY, HEIGHT, INK, SERIES, end_labels, headline, log_axis, new_figure, plain, titled

PROMPTS, LONGEST = (250, 1000, 4000), 2000
RATE, MET = 100, 70
"""The example of [Qwen3-FLOPs]: requests per second, and those of them that meet the objective."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return latency over output tokens by input length, and the TTFT of the requests of one second."""
    outputs = log_grid(1, LONGEST, 60)
    prefill = ideal(model, gpu, options=LAYERS, phase="prefill", seq_len=list(PROMPTS), outputs=["ttft"])["ttft"]
    contexts = list(range(min(PROMPTS) + 1, max(PROMPTS) + LONGEST))
    steps = ideal(model, gpu, options=LAYERS, seq_len=contexts, outputs=["tpot"])["tpot"]
    latency = [
        [_latency(float(prefill.sel(seq_len=p)), steps.sel(seq_len=slice(p + 1, p + n - 1)).values, n) for n in outputs]
        for p in PROMPTS
    ]
    first = ttft_distribution(1 / RATE, RATE, "in_turn")
    objective = float(first[MET - 1])
    goodput = float((first <= objective).sum()) / float(first[-1])
    return described(
        {
            "latency": (("prompt", "output_tokens"), latency, {"units": "s"}),
            "ttft": ("prompt", prefill.values, {"units": "s"}),
            "first_token": ("request", first.values, {"units": "s"}),
            "objective": ((), objective, {"units": "s"}),
            "throughput": ((), float(RATE), {"units": "1/s"}),
            "goodput": ((), goodput, {"units": "1/s"}),
            "prompt": list(PROMPTS),
            "output_tokens": outputs,
            "request": first["request"].values,
        },
        title="Latency is TTFT + TPOT x (output tokens - 1); goodput counts only what meets the objective",
        shows=f"Left: {model_name(str(steps['model'].values))} on {gpu_name(str(steps['gpu'].values))}, one request. "
        f"Right: {RATE} equal requests of one second, served in turn; {MET} have their first token within "
        f"{objective:.1f} s, so the throughput is {RATE} requests/s and the goodput {goodput:.0f}.",
        assumptions=assumed_on(ideal(model, gpu, options=LAYERS)),
    )


def _latency(ttft: float, tpot: Any, output_tokens: int) -> float:
    """Return the latency of a request; one of a single output token is its prefill."""
    return float(request_latency(ttft, tpot if len(tpot) else 0.0, output_tokens))


def draw(ds: xr.Dataset) -> Figure:
    """Draw latency on the left, goodput on the right."""
    fig, (left, right) = new_figure(1, 2, width=10, height=HEIGHT)
    headline(fig, ds.attrs["title"])
    log_axis(left, "x")
    log_axis(left, "y")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    x, lines = ds["output_tokens"].values, []
    for prompt, colour in zip(ds["prompt"].values, SERIES, strict=False):
        at = ds.sel(prompt=prompt)
        left.plot(x, at["latency"], color=colour)
        ttft = float(at["ttft"])
        left.axhline(ttft, color=colour, linestyle=":", linewidth=1)
        lines.append((x[-1], ttft, f"TTFT {ttft * 1e3:,.0f} ms:\n{prompt:,} input tokens", colour))
    left.set_xlim(x[0], x[-1])
    titled(left, "", "output tokens", "latency of the request (s)")
    end_labels(left, lines, gap=2.6)
    _goodput(right, ds)
    return fig


def _goodput(ax: Axes, ds: xr.Dataset) -> None:
    first, objective = ds["first_token"].values, float(ds["objective"])
    met = first <= objective
    request = ds["request"].values
    ax.bar(request[met], first[met], width=1, color=BOUND_BY["weights"])
    ax.bar(request[~met], first[~met], width=1, color="#cccccc")
    ax.axhline(objective, color=INK, linestyle="--", linewidth=1.2)
    ax.annotate(f"objective {objective:.1f} s", (1, objective), xytext=(4, 4), textcoords="offset points", color=INK)
    edge = met.sum() + 0.5
    ax.text(edge / 2, 0.12, f"goodput {float(ds['goodput']):.0f}/s", color="white", ha="center", fontweight="bold")
    ax.text((edge + len(first)) / 2, 0.12, "too late", color=INK, ha="center")
    ax.set_xlim(0.5, len(first) + 0.5)
    ax.set_ylim(0, first.max() * 1.08)
    titled(ax, "", f"request, of {float(ds['throughput']):.0f} in one second", "time to first token (s)")
