"""Draw the KV cache of one sequence over its length, for models with different kinds of attention."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ...api import evaluate
from ...specs import load_model
from ..shared.common import assumed, described, model_name
from ..shared.style import OTHERS, SERIES, end_labels, headline, log_axis, new_figure, titled, tokens

FAMILIES = {
    "llama-3.1-70b": "GQA",
    "gemma-3-27b": "sliding windows, GQA",
    "deepseek-v3.2": "sparse MLA",
    "deepseek-v3": "MLA",
    "minimax-m1": "lightning, GQA",
    "gpt-oss-120b": "sliding windows, GQA",
    "qwen3-next-80b-a3b": "DeltaNet, GQA",
    "kimi-linear-48b-a3b": "KDA, MLA",
    "deepseek-v4-flash": "compressed, sparse",
}
COLOURS = (*SERIES, OTHERS[0], OTHERS[4])
SHORTEST, LONGEST = 2**10, 2**20
GIB = 2**30


def data() -> xr.Dataset:
    """Return KV-cache bytes of one sequence on one GPU, beyond the maximum context of the models too."""
    lengths = [2**k * part // 4 for k in range(10, 20) for part in (4, 5, 6, 7)] + [LONGEST]
    names = list(FAMILIES)
    grid = evaluate(
        names, "h100-sxm", batch=1, seq_len=lengths, outputs=["kv_bytes_per_sequence"],
        overrides={"model.max_seq_len": LONGEST},
    )  # fmt: skip
    kv_bytes = grid["kv_bytes_per_sequence"].drop_vars("max_seq_len")
    max_context = xr.DataArray([load_model(name).max_seq_len for name in names], dims="model")
    family = xr.DataArray([FAMILIES[name] for name in names], dims="model")
    ratio = kv_bytes.sel(model="llama-3.1-70b") / kv_bytes.sel(model="deepseek-v4-flash")
    return described(
        {"kv_bytes_per_sequence": kv_bytes, "max_context": max_context, "family": family},
        title="KV-cache footprint of one sequence, by kind of attention",
        shows="KV cache of one sequence over its length. Windows and recurrent states stop growing, latents and "
        "compressed entries grow slowly; sparse attention reads fewer entries but stores all of them. Dots mark the "
        "maximum context of each model; dashed beyond. Models differ in size too: at 1M tokens the largest cache is "
        f"{float(ratio[-1]):.0f} times the smallest.",
        assumptions=assumed(grid.drop_vars(["gpu", "efficiency"])),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line for every model, labelled at its end."""
    fig, ax = new_figure(height=5.2)
    length, lines = ds["seq_len"].values, []
    for at, name in enumerate(ds["model"].values):
        colour = COLOURS[at]
        cache, most = ds["kv_bytes_per_sequence"].sel(model=name).values / GIB, float(ds["max_context"][at])
        last = int(np.flatnonzero(length <= most)[-1])
        ax.plot(length[: last + 1], cache[: last + 1], color=colour)
        ax.plot(length[last:], cache[last:], color=colour, linestyle=(0, (2, 2)), linewidth=1.2)
        ax.plot(length[last], cache[last], "o", color=colour, markersize=4)
        lines.append((length[-1], cache[-1], f"{model_name(name)} ({ds['family'].values[at]})", colour))
    log_axis(ax, "x", binary=True)
    ax.xaxis.set_major_locator(LogLocator(base=4))
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    log_axis(ax, "y")
    ax.set_xlim(SHORTEST, LONGEST)
    headline(fig, ds.attrs["title"])
    titled(ax, "", "length of the sequence (tokens)", "KV cache of one sequence (GiB)")
    end_labels(ax, lines)
    return fig
