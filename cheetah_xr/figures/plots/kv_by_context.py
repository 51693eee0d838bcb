"""Draw [Qwen3-FLOPs], figure 16: KV cache of one request by context length, several contexts side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...specs import Options
from ..shared.common import described, gpu_name, model_name
from ..shared.source_accounting import QWEN3_H100, assumed_on, ideal, with_cache
from ..shared.style import BOUND_BY, INK, headline, log_axis, new_figure, titled, tokens

CONTEXTS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]
OUTPUTS = ["weight_bytes", "kv_bytes_per_sequence", "max_batch"]


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return the KV-cache bytes of one request, the memory left by the weights, and the requests that fit."""
    record = with_cache(model)
    most = getattr(record, "max_seq_len", None) or CONTEXTS[-1]
    lengths = sorted({*(n for n in CONTEXTS if n <= most), min(most, CONTEXTS[-1])})
    ds = ideal(record, gpu, options=Options(memory_fraction=1.0), seq_len=lengths, outputs=OUTPUTS)
    left = float(ds["memory_bytes"] - ds["weight_bytes"])
    one, fit = ds["kv_bytes_per_sequence"], ds["max_batch"].values.astype(int)
    leave = f"leave {left / 1e9:.1f} GB" if left >= 0 else f"are {-left / 1e9:.1f} GB more than the memory"
    name, on = model_name(str(ds["model"].values)), gpu_name(str(ds["gpu"].values))
    return described(
        {
            "kv_bytes": ("seq_len", one.values, {"units": "B"}),
            "requests": ("seq_len", ds["max_batch"].values, {"long_name": "requests that fit next to the weights"}),
            "headroom": ((), left, {"units": "B"}),
            "seq_len": lengths,
        },
        title=f"KV cache of {name}: "
        + (
            f"{fit[0]} requests of {tokens(lengths[0])} tokens fit, or {fit[-1]} of {tokens(lengths[-1])}"
            if fit[0]
            else f"no request fits next to the weights on one {on}"
        ),
        shows=f"KV cache of one request by its cached tokens. The weights {leave} of {on}; the "
        "number in a bar is how many such requests fit.",
        assumptions=f"{assumed_on(ds)} All of the memory may be used.",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one bar per context, and the headroom."""
    fig, ax = new_figure()
    headline(fig, ds.attrs["title"])
    sizes, places = ds["kv_bytes"].values / 1e9, np.arange(ds.sizes["seq_len"])
    log_axis(ax, "y")
    ax.bar(places, sizes, width=0.86, color=BOUND_BY["kv"])
    for x, size, fit in zip(places, sizes, ds["requests"].values, strict=True):
        ax.annotate(
            f"{size:.2f} GB\n{fit:,.0f} fit",
            (x, size),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            color="white",
        )
    left = float(ds["headroom"]) / 1e9
    if left > 0:
        ax.axhline(left, color=BOUND_BY["weights"], linestyle="--", linewidth=1.6)
        label = f"{left:.1f} GB left by the weights"
        ax.annotate(
            label, (-0.43, left), xytext=(0, 4), textcoords="offset points", ha="left", color=BOUND_BY["weights"]
        )
    ax.set_xticks(places, [tokens(n) for n in ds["seq_len"].values], color=INK)
    ax.set_ylim(sizes.min() / 4, max(left, sizes.max()) * 2)
    ax.grid(visible=False, axis="x")
    titled(ax, "", "context of one request (cached tokens)", "KV cache (GB)")
    return fig
