"""Seed 1, figure 2: every operation of the model on the roofline, in prefill and in decode."""

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

PASSES = {
    "prefill, 8,192 tokens": ("prefill", 8192, 1),
    "prefill, 512 tokens": ("prefill", 512, 1),
    "decode, batch 64": ("decode", 2048, 64),
    "decode, batch 1": ("decode", 2048, 1),
}
"""Passes shown: phase, prompt or context, batch."""
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
    """Arithmetic intensity of every operation, and what the accelerator can reach there."""
    table = pd.concat(_ledger(model, name) for name in PASSES)
    card = load_gpu(gpu)
    table["attainable"] = np.minimum(card.peak_bf16, table.intensity * card.hbm_bandwidth)
    ridge = card.peak_bf16 / card.hbm_bandwidth
    ds = xr.Dataset({str(name): ("point", values.to_numpy()) for name, values in table.items()})
    return described(
        ds.assign(peak=card.peak_bf16, bandwidth=card.hbm_bandwidth, ridge=ridge),
        title=headline_of(table, ridge, gpu_name(gpu)),
        shows="A point is an operation of the model (equal ones share a point); above on the roofline, below by pass. "
        f"{sides(table, ridge)} Weights, inputs, outputs and cache are counted as bytes; decode has 2,048 tokens of "
        "context.",
        assumptions=f"{model_name(model)} on one {gpu_name(gpu)}; bf16 precision; ideal efficiencies; default "
        "accounting.",
    )


def _ledger(model: str, name: str) -> pd.DataFrame:
    """Operations of one pass that compute: equal names in several layers added up, the attention core as a whole."""
    phase, seq_len, batch = PASSES[name]
    ledger = operations(model, phase, seq_len, batch=batch, options=Options())
    table = ledger.to_dataframe().reset_index()
    table["operation"] = table["operation"].where(table["kernel"] != "attn_core", "attn_core")
    moved = ["bytes_weights", "bytes_kv", "bytes_activations"]
    table["bytes"] = table[moved].sum(axis=1) * table["count"]
    table["flops"] *= table["count"]
    found = table.groupby(["operation", "kernel"], sort=False)[["flops", "bytes"]].sum().reset_index()
    found = found[found.flops > 0]
    return found.assign(intensity=found.flops / found.bytes, **{"pass": name})


def headline_of(table: pd.DataFrame, ridge: float, gpu: str) -> str:
    """How far the operations of each phase reach; the LM head of a prefill, which works on one token, apart."""
    found = table["intensity"] >= ridge
    long = found[(table["pass"] == next(iter(PASSES))) & (table["kernel"] != "lm_head")]
    decode = found[table["pass"].str.startswith("decode")]
    roof = f"the compute roof of one {gpu}"
    if not long.any():
        return f"Neither prefill nor decode reaches {roof}" if not decode.any() else f"Part of decode reaches {roof}"
    prefill = "Prefill" if long.all() else "Part of prefill"
    return f"{prefill} reaches {roof}, {'so does part of decode' if decode.any() else 'decode does not'}"


def sides(table: pd.DataFrame, ridge: float) -> str:
    """The operations of prefill left of the ridge and those of decode right of it, by kernel."""
    right = table["intensity"] >= ridge
    said = []
    for name, (phase, _, _) in PASSES.items():
        away = table[(table["pass"] == name) & (right if phase == "decode" else ~right)]
        if len(away):
            kernels = ", ".join(KERNEL_NAMES[kernel] for kernel in dict.fromkeys(away["kernel"]))
            said.append(f"{'right' if phase == 'decode' else 'left'} of the ridge in {name}: {kernels}")
    if not said:
        return "Every operation of prefill is right of the ridge and every one of decode left of it."
    words = "; ".join(said)
    return f"{words[:1].upper()}{words[1:]} (in prefill the LM head works on the last token only)."


def draw(ds: xr.Dataset) -> Figure:
    """Roofline above, one row per pass below."""
    fig, (above, below) = new_figure(2, 1, height=5.6)
    above.get_gridspec().set_height_ratios([2, 1])
    peak, bandwidth, ridge = (float(ds[name]) for name in ("peak", "bandwidth", "ridge"))
    x = np.geomspace(0.3, 2e4, 200)
    above.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color=INK, linewidth=1.2, zorder=1)
    names = list(PASSES)
    for i in range(ds.sizes["point"]):
        point = ds.isel(point=i)
        row = names.index(str(point["pass"].values))
        look = _look(names[row], str(point["kernel"].values))
        above.plot(point["intensity"], point["attainable"] / 1e12, **look)
        below.plot(point["intensity"], row, **look)
    log_axis(above, "y")
    above.set_ylabel("attainable TFLOP/s")
    above.set_ylim(0.7, 3 * peak / 1e12)
    points: dict[str, Any] = {"textcoords": "offset points", "color": INK, "ha": "right"}
    above.annotate(f"compute roof {peak / 1e12:,.0f} TFLOP/s", (x[-1], peak / 1e12), (0, 6), **points)
    above.annotate(f"{bandwidth / 1e12:.2f} TB/s", (5, 5 * bandwidth / 1e12), (-8, 6), **points)
    _ridge(above, below, ridge)
    below.set_yticks(range(len(names)), names)
    for label, name in zip(below.get_yticklabels(), names, strict=True):
        label.set_color(PHASES[PASSES[name][0]])
    below.set_ylim(len(names) - 0.5, -0.5)
    below.set_xlabel("arithmetic intensity (FLOP per byte of HBM traffic)")
    headline(fig, ds.attrs["title"])
    there = [name for name in MARKERS if name in set(ds["kernel"].values)]
    shapes = [Line2D([], [], color=INK, linestyle="", marker=MARKERS[k], label=KERNEL_NAMES[k]) for k in there]
    fig.legend(handles=shapes, loc="outside lower center", ncols=min(len(there), 4))
    return fig


def _look(name: str, kernel: str) -> dict[str, Any]:
    """Marker of an operation: the shape is its kernel, the colour its phase; one pass of each phase is open."""
    colour = PHASES[PASSES[name][0]]
    face = "white" if name in OPEN else colour
    return {"marker": MARKERS[kernel], "color": colour, "markerfacecolor": face, "ms": 7, "linestyle": ""}


def _ridge(above: Axes, below: Axes, ridge: float) -> None:
    """The line that separates memory-bound from compute-bound operations."""
    for ax in (above, below):
        log_axis(ax, "x")
        ax.set_xlim(0.5, 2e4)
        ax.axvline(ridge, color=INK, linestyle=":", linewidth=1.2, zorder=0)
    above.tick_params(axis="x", labelbottom=False)
    bottom: dict[str, Any] = {"transform": above.get_xaxis_transform(), "color": INK, "va": "bottom"}
    above.text(ridge * 0.88, 0.03, "memory-bound", ha="right", **bottom)
    above.text(ridge * 1.14, 0.03, f"ridge {ridge:,.0f}: compute-bound", ha="left", **bottom)
