"""Draw [CHEETAH], figure 2: every operation of the model on the roofline, in prefill and in decode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...api import operations
from ...specs import Options, load_gpu
from ..shared.common import described, gpu_name, model_name
from ..shared.style import INK, KERNEL_NAMES, PHASES, headline, log_axis, new_figure

FORWARD_PASSES = {
    "prefill, 8,192 tokens": ("prefill", 8192, 1),
    "prefill, 512 tokens": ("prefill", 512, 1),
    "decode, batch 64": ("decode", 2048, 64),
    "decode, batch 1": ("decode", 2048, 1),
}
"""Forward passes shown: phase, input length or context, batch."""
OPEN = ("prefill, 512 tokens", "decode, batch 64")

MARKERS = {
    "attn_proj": "o",
    "attn_core": "^",
    "indexer": "v",
    "dense_mlp": "s",
    "router": "P",
    "shared_experts": "h",
    "routed_experts": "p",
    "lm_head": "D",
}


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return the arithmetic intensity of every operation, and the FLOP/s attainable there."""
    table = pd.concat(_operations(model, name) for name in FORWARD_PASSES)
    card = load_gpu(gpu)
    table["attainable"] = np.minimum(card.peak_bf16, table.intensity * card.hbm_bandwidth)
    ridge = card.peak_bf16 / card.hbm_bandwidth
    ds = xr.Dataset({str(name): ("point", values.to_numpy()) for name, values in table.items()})
    return described(
        ds.assign(peak=card.peak_bf16, bandwidth=card.hbm_bandwidth, ridge=ridge),
        title=headline_of(table, ridge, gpu_name(gpu)),
        shows="A point is an operation of the model (equal ones fall on one point); above on the roofline, below by "
        f"forward pass. {sides(table, ridge)} Weights, inputs, outputs and KV cache are counted as bytes; decode has "
        "2,048 tokens of context.",
        assumptions=f"{model_name(model)} on one {gpu_name(gpu)}; bf16 precision; ideal efficiencies; default "
        "accounting.",
    )


def _operations(model: str, name: str) -> pd.DataFrame:
    """Return the operations of one forward pass that have FLOPs: equal names summed, the attention core as one."""
    phase, seq_len, batch = FORWARD_PASSES[name]
    ds = operations(model, phase, seq_len, batch=batch, options=Options())
    table = ds.to_dataframe().reset_index()
    table["operation"] = table["operation"].where(table["kernel"] != "attn_core", "attn_core")
    moved = ["bytes_weights", "bytes_kv", "bytes_activations"]
    table["bytes"] = table[moved].sum(axis=1) * table["count"]
    table["flops"] *= table["count"]
    summed = table.groupby(["operation", "kernel"], sort=False)[["flops", "bytes"]].sum().reset_index()
    summed = summed[summed.flops > 0]
    return summed.assign(intensity=summed.flops / summed.bytes, forward_pass=name)


def headline_of(table: pd.DataFrame, ridge: float, gpu: str) -> str:
    """Describe which phase reaches the roof; the LM head of a prefill, which works on one token, is left out."""
    right = table["intensity"] >= ridge
    long = right[(table["forward_pass"] == next(iter(FORWARD_PASSES))) & (table["kernel"] != "lm_head")]
    decode = right[table["forward_pass"].str.startswith("decode")]
    roof = f"the compute roof of one {gpu}"
    if not long.any():
        return f"Neither prefill nor decode reaches {roof}" if not decode.any() else f"Part of decode reaches {roof}"
    prefill = "Prefill" if long.all() else "Part of prefill"
    return f"{prefill} reaches {roof}, {'so does part of decode' if decode.any() else 'decode does not'}"


def sides(table: pd.DataFrame, ridge: float) -> str:
    """Describe the kernels of prefill left of the ridge and those of decode right of it."""
    right = table["intensity"] >= ridge
    parts = []
    for name, (phase, _, _) in FORWARD_PASSES.items():
        away = table[(table["forward_pass"] == name) & (right if phase == "decode" else ~right)]
        if len(away):
            kernels = ", ".join(KERNEL_NAMES[kernel] for kernel in dict.fromkeys(away["kernel"]))
            parts.append(f"{'right' if phase == 'decode' else 'left'} of the ridge in {name}: {kernels}")
    if not parts:
        return "Every operation of prefill is right of the ridge and every one of decode left of it."
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]} (in prefill the LM head works on the last token only)."


def draw(ds: xr.Dataset) -> Figure:
    """Draw the roofline above, one row per forward pass below."""
    fig, (above, below) = new_figure(2, 1, height=5.6)
    above.get_gridspec().set_height_ratios([2, 1])
    peak, bandwidth, ridge = (float(ds[name]) for name in ("peak", "bandwidth", "ridge"))
    x = np.geomspace(0.3, 2e4, 200)
    above.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color=INK, linewidth=1.2, zorder=1)
    names = list(FORWARD_PASSES)
    for i in range(ds.sizes["point"]):
        point = ds.isel(point=i)
        row = names.index(str(point["forward_pass"].values))
        marker = _marker(names[row], str(point["kernel"].values))
        above.plot(point["intensity"], point["attainable"] / 1e12, **marker)
        below.plot(point["intensity"], row, **marker)
    log_axis(above, "y")
    above.set_ylabel("attainable TFLOP/s")
    above.set_ylim(0.7, 3 * peak / 1e12)
    points: dict[str, Any] = {"textcoords": "offset points", "color": INK, "ha": "right"}
    above.annotate(f"compute roof {peak / 1e12:,.0f} TFLOP/s", (x[-1], peak / 1e12), (0, 6), **points)
    above.annotate(f"{bandwidth / 1e12:.2f} TB/s", (5, 5 * bandwidth / 1e12), (-8, 6), **points)
    _ridge(above, below, ridge)
    below.set_yticks(range(len(names)), names)
    for label, name in zip(below.get_yticklabels(), names, strict=True):
        label.set_color(PHASES[FORWARD_PASSES[name][0]])
    below.set_ylim(len(names) - 0.5, -0.5)
    below.set_xlabel("arithmetic intensity (FLOP per byte of HBM traffic)")
    headline(fig, ds.attrs["title"])
    present = [name for name in MARKERS if name in set(ds["kernel"].values)]
    shapes = [Line2D([], [], color=INK, linestyle="", marker=MARKERS[k], label=KERNEL_NAMES[k]) for k in present]
    fig.legend(handles=shapes, loc="outside lower center", ncols=min(len(present), 4))
    return fig


def _marker(name: str, kernel: str) -> dict[str, Any]:
    """Return the marker of an operation: its kernel is the shape, its phase the colour."""
    colour = PHASES[FORWARD_PASSES[name][0]]
    face = "white" if name in OPEN else colour
    return {"marker": MARKERS[kernel], "color": colour, "markerfacecolor": face, "ms": 7, "linestyle": ""}


def _ridge(above: Axes, below: Axes, ridge: float) -> None:
    """Draw the line that separates memory-bound from compute-bound operations."""
    for ax in (above, below):
        log_axis(ax, "x")
        ax.set_xlim(0.5, 2e4)
        ax.axvline(ridge, color=INK, linestyle=":", linewidth=1.2, zorder=0)
    above.tick_params(axis="x", labelbottom=False)
    bottom: dict[str, Any] = {"transform": above.get_xaxis_transform(), "color": INK, "va": "bottom"}
    above.text(ridge * 0.88, 0.03, "memory-bound", ha="right", **bottom)
    above.text(ridge * 1.14, 0.03, f"ridge {ridge:,.0f}: compute-bound", ha="left", **bottom)
