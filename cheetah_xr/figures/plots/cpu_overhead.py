"""Draw [CHEETAH], overheads: CPU overhead as a fraction of a decode step, small models against large."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from ...api import evaluate
from ...specs import load_efficiency
from ..shared.common import assumed, described, drawable, gpu_name, log_grid, model_name
from ..shared.style import FAINT, SERIES, end_labels, log_axis, new_figure, titled

MODELS = ("qwen3-0.6b", "qwen3-1.7b", "llama-3.1-8b", "qwen3-32b")
CONTEXT = 1024
HEAVY, LIGHT = 0.25, 0.05
"""Fractions of a step above which overhead counts as large, and below which as small."""


def data(gpu: str = "h100-sxm") -> xr.Dataset:
    """Return CPU overhead as a fraction of the step time."""
    ds = evaluate(
        list(MODELS),
        gpu,
        batch=log_grid(1, 1024, 60),
        seq_len=CONTEXT,
        efficiency="kernels",
        outputs=["step_time", "time_overhead"],
    )
    fraction = (ds["time_overhead"] / ds["step_time"]).reset_coords(drop=True)
    first, costs = drawable(fraction).isel(batch=0), load_efficiency("kernels")
    absent = ", ".join(model_name(name) for name in MODELS if bool(first.sel(model=name).isnull()))
    return described(
        {"overhead_fraction": fraction.assign_attrs(units="1")},
        title=headline_of(first),
        shows=f"CPU overhead (kernel launches and scheduling) in a decode step on one {gpu_name(gpu)}, {CONTEXT:,} "
        f"tokens of context: {costs.tau_layer * 1e6:.1f} us for a layer and {costs.tau_global * 1e3:.2f} ms for a "
        "step, whatever the model. Lines end at the largest batch that fits."
        + (f" {absent}: too large for it." if absent else ""),
        absent=absent,
        assumptions=f"{', '.join(map(model_name, MODELS))}; {assumed(ds)}",
    )


def headline_of(first: xr.DataArray) -> str:
    """Describe the overhead in a step of one sequence, for the smallest and the largest model that fits."""
    present = first.dropna("model")
    (small, low), (large, high) = ((str(present["model"].values[i]), float(present[i])) for i in (0, -1))
    if low > HEAVY and high < LIGHT:
        return "CPU overhead takes a large fraction of a step only for small models"
    return f"CPU overhead: {low:.0%} of a step of {model_name(small)}, {high:.0%} of {model_name(large)}"


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line per model."""
    fig, ax = new_figure(height=4.2)
    labels, top = [], float(ds["overhead_fraction"].max())
    for i, colour in zip(range(ds.sizes["model"]), SERIES, strict=False):
        line = ds["overhead_fraction"].isel(model=i)
        if bool(line.isnull().all()):
            continue
        ax.plot(ds["batch"], line, color=colour)
        labels.append((1.0, float(line[0]) + 0.03 * top, model_name(str(ds["model"].values[i])), colour))
    log_axis(ax, "x", binary=True)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlim(1, float(ds["batch"][-1]))
    ax.set_ylim(0, 1.15 * top)
    titled(ax, ds.attrs["title"], "batch (concurrent sequences)", "CPU overhead (fraction of a decode step)")
    end_labels(ax, labels)
    if ds.attrs["absent"]:
        ax.text(
            0.99, 0.97, f"too large: {ds.attrs['absent']}", transform=ax.transAxes, color=FAINT, ha="right", va="top"
        )
    return fig
