"""Draw [CHEETAH], figure 6: throughput, inter-token latency and weight bytes per token over batch."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ...api import evaluate
from ..shared.common import assumed, described, drawable, gpu_name, instance, log_grid, max_context, model_name
from ..shared.style import SERIES, end_labels, headline, log_axis, new_figure, tokens

CONTEXTS = (512, 4096, 32768)
PANELS = {
    "throughput": "output tokens/s\nof the instance",
    "itl": "inter-token\nlatency (ms)",
    "weight_bytes_per_token": "weight GB read\nper output token",
}


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return throughput, inter-token latency and weight bytes per token over batch, for several contexts."""
    tp = instance(gpu)
    ds = evaluate(
        model,
        gpu,
        batch=log_grid(1, 2048, 80),
        seq_len=[s for s in CONTEXTS if s <= max_context(model)],
        tp=tp,
        efficiency="ideal",
        options={"on_infeasible": "ignore"},
        outputs=["throughput", "tpot", "bytes_weights", "max_batch"],
    )
    weights = ds["bytes_weights"] * tp / ds["batch"]
    variables = {
        "throughput": drawable(ds["throughput"]),
        "itl": (ds["tpot"] * 1e3).assign_attrs(units="ms"),
        "weight_bytes_per_token": (weights / 1e9).assign_attrs(units="GB"),
        "max_batch": ds["max_batch"],
    }
    return described(
        {name: values.reset_coords(drop=True) for name, values in variables.items()},
        title=f"{model_name(model)} decode: a larger batch raises throughput and latency",
        shows=f"One instance of {tp} {gpu_name(gpu)}, by context length; faint where the batch does not fit. "
        "Weights are read once per step for the whole batch, so their bytes per token fall as 1/batch (of experts "
        "once all are in use); the KV cache of every sequence is read too, so throughput levels off and latency rises, "
        "sooner at long contexts.",
        assumptions=assumed(ds),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw three panels over one batch axis."""
    fig, axes = new_figure(3, 1, height=6.4)
    for ax, (name, label) in zip(axes, PANELS.items(), strict=True):
        labels = []
        for i, colour in zip(range(ds.sizes["seq_len"]), SERIES, strict=False):
            one = ds.isel(seq_len=i)
            if name == "weight_bytes_per_token":
                ax.plot(one["batch"], one[name], color=SERIES[-1])
                continue
            ax.plot(one["batch"], one[name], color=colour, alpha=0.3)
            ax.plot(one["batch"], one[name].where(one["batch"] <= one["max_batch"]), color=colour)
            end = (float(one["batch"][-1]), float(one[name][-1]))
            labels.append((*end, f"{tokens(float(one['seq_len']))} context", colour))
        log_axis(ax, "x", binary=True)
        log_axis(ax, "y")
        ax.set_xlim(1, float(ds["batch"][-1]))
        ax.set_ylabel(label)
        ax.tick_params(axis="x", labelbottom=ax is axes[-1])
        if name == "throughput":
            end_labels(ax, labels)
        low, high = ax.get_ylim()
        if name != "weight_bytes_per_token" and high < 1000 * low:
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[-1].set_xlabel("batch (concurrent sequences)")
    fig.align_ylabels()
    headline(fig, ds.attrs["title"])
    return fig
