"""Draw [CHEETAH], figure 9: batching in a mixture of experts and in a dense model."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ...api import breakdown, evaluate
from ...specs import load_gpu, load_model
from ..shared.common import assumed, crossing, described, drawable, gpu_name, log_grid, model_name
from ..shared.style import BOUND_BY, INK, SERIES, end_labels, headline, log_axis, new_figure

MOE, DENSE = "deepseek-v3", "llama-3.1-70b"
GPUS, CONTEXT = 64, 2048
OPTIONS = {"activation_traffic": "none", "on_infeasible": "ignore"}
FIXED = {"seq_len": CONTEXT, "efficiency": "ideal", "options": OPTIONS}
KINDS = {"moe": SERIES[1], "dense": SERIES[0]}


def data(model: str = "deepseek-v3", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return tokens per expert, distinct experts, intensity of the MLPs, and step times under expert parallelism.

    A dense `model` replaces the dense one.
    """
    pair = {True: MOE, False: DENSE} | {load_model(model).is_moe: model}
    moe: Any = load_model(pair[True])
    dense, card, batch = pair[False], load_gpu(gpu), log_grid(1, 65536, 120)
    dtype = "fp8" if card.peak_fp8 else "bf16"
    where: dict[str, Any] = {"gpu": gpu, "precision": dtype, "batch": batch, **FIXED}
    routed = breakdown(moe, **where).sel(kernel="routed_experts")
    mlp = breakdown(dense, **where).sel(kernel="dense_mlp")
    single = moe.model_copy(update={"n_experts": 1, "top_k": 1})
    one = breakdown(single, **{**where, "batch": 1}).sel(kernel="routed_experts")  # one token in one expert
    ridge = float(getattr(card, f"peak_{dtype}") / card.hbm_bandwidth)
    intensity = {kind: ds["flops"] / ds["bytes"].sum("cause") for kind, ds in (("moe", routed), ("dense", mlp))}
    spread: dict[str, Any] = {"dp": GPUS, "ep": gcd(GPUS, moe.n_experts)}
    times = _times(moe, {**where, **spread})
    variables = {
        "tokens_per_expert": drawable(routed["flops"]) / one["flops"] / moe.n_experts,
        "experts_read": routed["bytes"].sum("cause") / one["bytes"].sum("cause"),
        **{f"intensity_{kind}": values for kind, values in intensity.items()},
        **{f"time_{name}": values for name, values in times.items()},
    }
    crossovers = {kind: crossing(batch, values / ridge) for kind, values in intensity.items()}
    crossovers["communication"] = crossing(batch, times["communication"] / times["memory"])
    return described(
        {**{name: values.reset_coords(drop=True) for name, values in variables.items()}, "ridge": ridge}
        | {f"crossover_{name}": at for name, at in crossovers.items()},
        title=f"An expert sees a fraction of the batch: {model_name(moe.name)} and {model_name(dense)}",
        shows=f"Top: tokens that one of the {moe.n_experts} experts of {model_name(moe.name)} sees ({moe.top_k} per "
        "token, uniform routing), and distinct experts a layer reads. Bottom left: FLOPs per weight byte of the "
        f"experts and of the MLP of {model_name(dense)}; at a dot compute becomes the bound. All three with every "
        f"expert on one GPU. Bottom right: a step on {GPUS} {gpu_name(gpu)}, dp {GPUS}, ep {spread['ep']}, {CONTEXT:,} "
        "tokens of context, each resource on its own at its peak; it steps where the most loaded rank gets one more "
        "sequence.",
        assumptions=assumed(evaluate(moe, **where, outputs=["status"]).drop_vars(["tp", "dp", "ep"])),
    )


def _times(moe: Any, where: dict[str, Any]) -> dict[str, xr.DataArray]:
    """Return the seconds of one step by resource, each on its own at its peak rate."""
    ds = evaluate(moe, **where, outputs=["bytes_weights", "bytes_kv", "peak_compute_time"])
    return {
        "memory": (ds["bytes_weights"] + ds["bytes_kv"]) / ds["hbm_bandwidth"],
        "compute": ds["peak_compute_time"],
        "communication": breakdown(moe, **where)["time"].sel(kernel="collectives"),
    }


def draw(ds: xr.Dataset) -> Figure:
    """Draw four panels."""
    fig, ((tokens, experts), (intensity, times)) = new_figure(2, 2, height=6.4)
    batch = ds["batch"].values
    for ax, dense, moe in (
        (tokens, batch, ds["tokens_per_expert"].values),
        (experts, np.ones(batch.size), ds["experts_read"].values),
        (intensity, ds["intensity_dense"].values, ds["intensity_moe"].values),
    ):
        _lines(ax, batch, {"dense": (dense, KINDS["dense"]), "MoE": (moe, KINDS["moe"])})
    ridge = float(ds["ridge"])
    intensity.axhline(ridge, color=INK, linestyle=":", linewidth=1.2)
    intensity.text(1.3, ridge / 1.3, f"ridge {ridge:,.0f}", color=INK, va="top")
    for kind, side in (("dense", "left"), ("moe", "right")):
        _dot(intensity, float(ds[f"crossover_{kind}"]), ridge, side)
    seconds = {name: ds[f"time_{name}"].values * 1e3 for name in RESOURCES}
    _lines(times, batch, {name: (seconds[name], BOUND_BY[cause]) for name, cause in RESOURCES.items()})
    at = float(ds["crossover_communication"])
    _dot(times, at, np.interp(at, batch, seconds["memory"]), "left")
    for ax, label in zip((tokens, experts, intensity, times), PANELS, strict=True):
        ax.set(ylabel=label, xlabel="" if ax in (tokens, experts) else "batch (sequences)")
    headline(fig, ds.attrs["title"])
    return fig


RESOURCES = {"memory": "weights", "compute": "compute", "communication": "communication"}
PANELS = ("tokens per expert", "experts read per layer", "FLOP per weight byte of the MLP", "step time (ms)")


def _lines(ax: Axes, batch: Any, lines: dict[str, tuple[Any, str]]) -> None:
    """Draw lines on logarithmic axes, labelled at their ends."""
    for values, colour in lines.values():
        ax.plot(batch, values, color=colour)
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_xlim(batch[0], batch[-1])
    ax.xaxis.set_major_locator(LogLocator(base=100))
    end_labels(ax, [(batch[-1], values[-1], name, colour) for name, (values, colour) in lines.items()], offset=3)


def _dot(ax: Axes, x: float, y: Any, side: str) -> None:
    """Mark a crossover with its batch, below to the right or above to the left."""
    if np.isfinite(x):
        ax.plot(x, y, "o", color="white", mec=INK, ms=6, zorder=3)
        at, ha, va = ((6, -3), "left", "top") if side == "right" else ((-4, 4), "right", "bottom")
        ax.annotate(f"B={x:,.0f}", (x, y), at, textcoords="offset points", ha=ha, va=va, color=INK)
