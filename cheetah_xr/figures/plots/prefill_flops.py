"""Draw [CHEETAH], figure 4: prefill FLOPs by component over input length."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...api import breakdown
from ..shared.common import assumed, crossing, described, drawable, log_grid, model_name
from ..shared.source_accounting import with_cache
from ..shared.style import INK, SERIES, log_axis, new_figure, titled, tokens

PARTS = {
    "MLP": ("dense_mlp", "router", "shared_experts", "routed_experts"),
    "attention projections": ("attn_proj",),
    "attention core": ("attn_core", "indexer"),
    "LM head": ("lm_head",),
}
COLOURS = {"MLP": SERIES[0], "attention projections": SERIES[5], "attention core": SERIES[1], "LM head": SERIES[6]}
LONGEST = 2**20


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Return the FLOPs of one prompt by component, and the length at which the attention core exceeds linear layers."""
    ds = breakdown(
        model,
        "h100-sxm",  # FLOPs are the same on any accelerator
        batch=1,
        seq_len=log_grid(256, LONGEST, 120),
        phase="prefill",
        efficiency="ideal",
        overrides={"model.max_seq_len": LONGEST} if getattr(with_cache(model), "max_seq_len", None) else None,
        options={"on_infeasible": "ignore"},
    )
    kernels = ds["kernel"].values.tolist()
    flops = xr.concat(
        [
            ds["flops"].sel(kernel=[k for k in names if k in kernels]).sum("kernel", skipna=False)
            for names in PARTS.values()
        ],
        "part",
    ).assign_coords(part=list(PARTS))
    linear = flops.sel(part=["MLP", "attention projections"]).sum("part")
    over = flops.sel(part="attention core") / linear
    core = flops.sel(part="attention core")
    every = float(core[-1] / core[-2]) > 0.95 * float((core["seq_len"][-1] / core["seq_len"][-2]) ** 2)
    return described(
        {
            "flops": drawable(flops).reset_coords(drop=True).assign_attrs(units="FLOP"),
            "crossover": crossing(ds["seq_len"], over),
        },
        title=f"Prefill of {model_name(model)}: {describe_shift(over)}",
        shows="FLOPs of one prompt by component. Linear layers (attention projections and MLP) cost the same for every "
        f"token, the attention core more with every token {'before it' if every else 'that it reads, not all before'}. "
        "Lengths beyond the maximum context are extrapolated.",
        assumptions=assumed(ds.drop_vars(["gpu", "efficiency"])) + " FLOPs are the same on any accelerator.",
    )


def describe_shift(over: xr.DataArray) -> str:
    """Describe which part has most FLOPs, from the attention core over linear layers."""
    if bool((over < 1).all()):
        return f"linear layers at any length, attention core up to {float(over.max()):.0%} of them"
    return "linear layers first, attention at long prompts" if over[0] < 1 else "more in the attention core"


def draw(ds: xr.Dataset) -> Figure:
    """Draw stacked fractions with the crossover."""
    fig, ax = new_figure(height=4.2)
    fraction = (ds["flops"] / ds["flops"].sum("part")).transpose("part", "seq_len")
    x, parts = ds["seq_len"].values, [name for name in ds["part"].values if float(fraction.sel(part=name).max()) > 0.01]
    edges = np.cumsum(np.vstack([np.zeros(x.size), *(fraction.sel(part=name).values for name in parts)]), axis=0)
    for name, low, high in zip(parts, edges[:-1], edges[1:], strict=True):
        ax.fill_between(x, low, high, color=COLOURS[name], alpha=0.9, linewidth=0)
        at, side = (2, "left") if np.argmax(high - low) < x.size / 2 else (-3, "right")
        ax.text(x[at], (low + high)[at] / 2, name, color="white", fontweight="bold", ha=side, va="center")
    crossover = float(ds["crossover"])
    if np.isfinite(crossover):
        ax.axvline(crossover, color=INK, linestyle=":", linewidth=1.4)
        ax.annotate(
            f"core = projections + MLP\nat {crossover:,.0f} tokens",
            (crossover, 0.06), (-6, 0), textcoords="offset points", ha="right", color="white",
        )  # fmt: skip
    log_axis(ax, "x", binary=True)
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, 1)
    titled(ax, ds.attrs["title"], "input tokens", "fraction of prefill FLOPs")
    return fig
