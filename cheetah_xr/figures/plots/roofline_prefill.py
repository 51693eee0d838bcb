"""Draw [Qwen3-FLOPs], figure 9: prefill on the roofline, over input length."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ..shared.common import described, drawable, gpu_name, max_context, model_name
from ..shared.rooflines import AXES, draw_roof, mark_ridge, points, roof
from ..shared.source_accounting import LAYERS, QWEN3_H100, assumed_on
from ..shared.style import BOUND_BY, INK, new_figure, titled

PROMPTS = [1, 10, 100, 1000, 4000]
NAMED = 1000
"""Input tokens of the worked example in [Qwen3-FLOPs]."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return prompts of several lengths and the roof."""
    ds = points(model, gpu, LAYERS, "prefill", [length for length in PROMPTS if length <= max_context(model)])
    drawable(ds["arithmetic_intensity"])
    machine, named = roof(gpu), ds.sel(seq_len=NAMED)
    ridge = float(machine["ridge"])
    bound = np.where(ds["arithmetic_intensity"] >= ridge, "compute", "weights")
    intensity, fraction = float(named["arithmetic_intensity"]), float(named["reached"]) / float(machine["peak"])
    side = "right" if intensity >= ridge else "left"
    return described(
        xr.merge(
            [ds[["arithmetic_intensity", "flops", "reached"]].reset_coords(drop=True), machine], combine_attrs="drop"
        ).assign(bound=("seq_len", bound)),
        title=f"Prefill of {model_name(str(ds['model'].values))} {describe_side(ds['seq_len'].values, bound)}",
        shows=f"One prompt of T tokens: intensity grows with T. T = {NAMED:,} has {float(named['flops']) / 1e12:,.2f} "
        f"TFLOP and {intensity:,.1f} FLOP per byte, {side} of the ridge of the {gpu_name(str(ds['gpu'].values))} at "
        f"{ridge:,.1f}, and reaches {fraction:.0%} of the peak.",
        assumptions=assumed_on(ds),
    )


def describe_side(lengths: Any, bound: Any) -> str:
    """Describe whether prompts reach the ridge, and from which length on if beyond the worked example."""
    beyond = lengths[bound == "compute"]
    if not beyond.size:
        return f"stays left of the ridge up to {lengths[-1]:,} tokens"
    return "reaches the compute roof" + (f" only beyond {NAMED:,} tokens" if beyond[0] > NAMED else "")


def draw(ds: xr.Dataset) -> Figure:
    """Draw prompts as points under the roof."""
    fig, ax = new_figure()
    draw_roof(ax, ds)
    mark_ridge(ax, ds)
    for length in ds["seq_len"].values:
        at = ds.sel(seq_len=length)
        x, y = float(at["arithmetic_intensity"]), float(at["reached"]) / 1e12
        compute = str(at["bound"].values) == "compute"
        ax.plot([x], [y], "o", color=BOUND_BY["compute" if compute else "weights"], markersize=8, zorder=3)
        named = length == NAMED
        ax.annotate(
            f"T={length:,}\n{x:,.1f} FLOP/byte" if named else f"T={length:,}",
            (x, y),
            xytext=((0, 9) if named else (0, -10)) if compute else (-8, 4),
            textcoords="offset points",
            ha="center" if compute else "right",
            va=("bottom" if named else "top") if compute else "center",
            color=INK,
            fontweight="bold" if named else "normal",
        )
    titled(ax, ds.attrs["title"], *AXES)
    return fig
