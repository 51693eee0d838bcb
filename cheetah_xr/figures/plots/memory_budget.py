"""Draw [Qwen3-FLOPs], figures 11 to 19: what fills the memory of one accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...specs import Options
from ..shared.common import described, gpu_name, model_name
from ..shared.source_accounting import QWEN3_H100, RULE_CONTEXT, RULE_HIGH, RULE_LOW, assumed_on, ideal, with_cache
from ..shared.style import BOUND_BY, BOUND_NAMES, FAINT, INK, headline, new_figure, titled

REQUESTS = 4
"""Concurrent requests of two of the bars."""

PARTS = ("weights", "kv", "activations", "activations_range", "free")
OUTPUTS = ["weight_bytes", "kv_bytes_per_sequence", "max_batch"]


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return the bytes of every part of every bar."""
    whole = Options(memory_fraction=1.0)
    ds = ideal(with_cache(model), gpu, options=whole, seq_len=RULE_CONTEXT, outputs=OUTPUTS)
    count = rounded_parameter_count(float(ds["n_parameters"]))
    count_model = ideal({"name": "parameter-count", "n_parameters": count}, gpu, options=whole, outputs=OUTPUTS)
    memory, weights, one = (float(v) for v in (ds["memory_bytes"], ds["weight_bytes"], ds["kv_bytes_per_sequence"]))
    fit, name = int(ds["max_batch"]), model_name(str(ds["model"].values))
    bars = {
        "empty": (0, 0, 0, 0),
        f"weights, {count / 1e9:g}B x 2 bytes": (float(count_model["weight_bytes"]), 0, 0, 0),
        f"weights of {name}": (weights, 0, 0, 0),
        f"+ 1 request of {RULE_CONTEXT:,} tokens": (weights, one, 0, 0),
        f"+ {REQUESTS} requests": (weights, REQUESTS * one, 0, 0),
        f"+ {fit} requests: all that fit": (weights, fit * one, 0, 0),
        f"{REQUESTS} requests + activations": (
            weights,
            REQUESTS * one,
            RULE_LOW * weights,
            (RULE_HIGH - RULE_LOW) * weights,
        ),
    }
    used = np.array(list(bars.values()))
    free = np.maximum(memory - used[:, :3].sum(axis=1), 0)
    return described(
        {
            "bytes": (("bar", "part"), np.column_stack((used, free)), {"units": "B"}),
            "memory": ((), memory, {"units": "B"}),
            "bar": list(bars),
            "part": list(PARTS),
        },
        title=f"Weights take {weights / memory:.0%} of {gpu_name(str(ds['gpu'].values))}; "
        + (f"{fit} requests fit in the rest" if fit else "not one request fits"),
        shows=f"Memory of one accelerator from empty to full. The KV cache of one request is {one / 1e9:.2f} GB. "
        f"Activations follow the rule of thumb of {RULE_LOW:.0%} to {RULE_HIGH:.0%} of the weights (hatched).",
        assumptions=f"{assumed_on(ds)} All of {memory / 1e9:,.3g} GB may be used.",
    )


def rounded_parameter_count(parameters: float) -> float:
    """Round parameters as model names do: whole billions, below one billion tenths of it or whole millions."""
    if parameters >= 1e9:
        return parameters // 1e9 * 1e9
    return round(parameters / 1e8) * 1e8 if parameters >= 5e8 else round(parameters / 1e6) * 1e6


def draw(ds: xr.Dataset) -> Figure:
    """Draw one bar per state, from empty on top to full."""
    fig, ax = new_figure()
    headline(fig, ds.attrs["title"])
    memory = float(ds["memory"]) / 1e9
    ax.set_xlim(0, max(memory, ds["bytes"].isel(part=slice(0, 4)).sum("part").max().item() / 1e9) * 1.01)
    for row, bar in enumerate(ds["bar"].values):
        parts = {p: float(ds["bytes"].sel(bar=bar, part=p)) / 1e9 for p in PARTS}
        left = 0.0
        for part in PARTS[:3]:
            if parts[part]:
                ax.barh(row, parts[part], left=left, color=BOUND_BY[part], height=0.72)
                left += parts[part]
        spread = parts["activations_range"]
        if spread:
            ax.barh(
                row, spread, left=left, height=0.72, facecolor="none", edgecolor=BOUND_BY["activations"], hatch="////"
            )
        else:
            ax.barh(row, memory - left, left=left, height=0.72, facecolor="none", edgecolor=FAINT, linewidth=0.8)
        _labels(ax, row, parts)
    ax.axvline(memory, color=INK, linewidth=1.4)
    ax.set_yticks(range(ds.sizes["bar"]), ds["bar"].values.tolist())
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    titled(ax, "", f"memory (GB); the line is the {memory:,.3g} GB of the accelerator", "")
    names = {p: Patch(color=BOUND_BY[p], label=BOUND_NAMES[p]) for p in PARTS[:3]}
    hatched = Patch(facecolor="none", edgecolor=BOUND_BY["activations"], hatch="////", label="10 to 30 % of weights")
    fig.legend(handles=[*names.values(), hatched], loc="outside lower center", ncols=4)
    return fig


def _labels(ax: Axes, row: int, parts: dict[str, float]) -> None:
    """Label the weights inside their part where it is wide, the others in a column at the right."""
    lines, weights = [], parts["weights"]
    if weights > 0.3 * ax.get_xlim()[1]:
        ax.text(weights / 2, row, f"weights {weights:.2f}", color="white", ha="center", va="center")
    elif weights:
        lines.append(f"weights {weights:.2f}")
    if parts["kv"]:
        lines.append(f"KV {parts['kv']:.2f}")
    low, spread = parts["activations"], parts["activations_range"]
    lines.append(f"activations {low:.1f} to {low + spread:.1f}" if spread else f"free {parts['free']:.2f}")
    if len(lines) > 2:
        lines = [lines[0], ", ".join(lines[1:])]
    ax.text(1.01, row, "\n".join(lines), transform=ax.get_yaxis_transform(), va="center", color=INK, linespacing=1.0)
