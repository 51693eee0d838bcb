"""Cache of one sequence over its length, for models whose attention is of different kinds."""

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
    """Cache bytes of one sequence on one GPU, also beyond the lengths the models are made for."""
    lengths = [2**k * part // 4 for k in range(10, 20) for part in (4, 5, 6, 7)] + [LONGEST]
    names = list(FAMILIES)
    grid = evaluate(
        names, "h100-sxm", batch=1, seq_len=lengths, outputs=["kv_bytes_per_sequence"],
        overrides={"model.max_seq_len": LONGEST},
    )  # fmt: skip
    held = grid["kv_bytes_per_sequence"].drop_vars("max_seq_len")
    longest = xr.DataArray([load_model(name).max_seq_len for name in names], dims="model")
    family = xr.DataArray([FAMILIES[name] for name in names], dims="model")
    ratio = held.sel(model="llama-3.1-70b") / held.sel(model="deepseek-v4-flash")
    return described(
        {"kv_bytes_per_sequence": held, "longest": longest, "family": family},
        title="What one sequence holds in memory, by kind of attention",
        shows="Cache of one sequence over its length. Windows and recurrent states stop growing, latents and "
        "compressed entries grow slowly; sparse attention reads less, but holds all it may choose from. Dots mark the "
        "longest context each model is made for; dashed beyond. Models differ in size too: at 1M tokens the largest "
        f"holds {float(ratio[-1]):.0f} times the smallest.",
        assumptions=assumed(grid.drop_vars(["gpu", "efficiency"])),
    )


def draw(ds: xr.Dataset) -> Figure:
    """One line for every model, named at its end."""
    fig, ax = new_figure(height=5.2)
    length, lines = ds["seq_len"].values, []
    for at, name in enumerate(ds["model"].values):
        colour = COLOURS[at]
        held, longest = ds["kv_bytes_per_sequence"].sel(model=name).values / GIB, float(ds["longest"][at])
        last = int(np.flatnonzero(length <= longest)[-1])
        ax.plot(length[: last + 1], held[: last + 1], color=colour)
        ax.plot(length[last:], held[last:], color=colour, linestyle=(0, (2, 2)), linewidth=1.2)
        ax.plot(length[last], held[last], "o", color=colour, markersize=4)
        lines.append((length[-1], held[-1], f"{model_name(name)} ({ds['family'].values[at]})", colour))
    log_axis(ax, "x", binary=True)
    ax.xaxis.set_major_locator(LogLocator(base=4))
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    log_axis(ax, "y")
    ax.set_xlim(SHORTEST, LONGEST)
    headline(fig, ds.attrs["title"])
    titled(ax, "", "length of the sequence (tokens)", "cache of one sequence (GiB)")
    end_labels(ax, lines)
    return fig
