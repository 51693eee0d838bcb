"""Draw [CHEETAH], figure 5: bytes of a decode step, weights against KV cache, over batch and context."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...api import breakdown, evaluate
from ...specs import load_model
from ..shared.common import (
    assumed,
    crossing,
    described,
    drawable,
    gpu_name,
    instance,
    log_grid,
    max_context,
    model_name,
)
from ..shared.style import BOUND_BY, FAINT, INK, end_labels, headline, log_axis, new_figure, titled, tokens

CONTEXTS = (512, 4096, 32768, 131072)
MLP = ("dense_mlp", "router", "shared_experts", "routed_experts")
ATTENTION = ("attn_proj", "attn_core", "indexer")


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return the bytes one GPU moves in a step, and the batches at which KV cache and weights are equal."""
    batch, tp = log_grid(1, 1024, 80), instance(gpu)
    contexts = [s for s in CONTEXTS if s <= max_context(model)]
    where: dict[str, Any] = {"model": model, "gpu": gpu, "tp": tp, "seq_len": contexts, "efficiency": "ideal"}
    ds = breakdown(**where, batch=batch, options={"on_infeasible": "ignore"})
    fits = evaluate(**where, batch=1, outputs=["max_batch"])["max_batch"]
    moved = ds["bytes"]
    weights = moved.sel(cause="weights")
    parts = {
        "mlp_weights": _of(weights, MLP),
        "attention_weights": _of(weights, ATTENTION),
        "other_weights": _of(weights, ("embedding", "lm_head")),
        "kv": moved.sel(cause="kv").sum("kernel"),
        "activations": moved.sel(cause="activations").sum("kernel"),
    }
    variables = {name: part.reset_coords(drop=True).assign_attrs(units="B") for name, part in parts.items()}
    total, kv = weights.sum("kernel", skipna=False), variables["kv"]
    drawable(total.where(kv > 0))
    crossover = [crossing(batch, kv.sel(seq_len=s) / total.sel(seq_len=s).values) for s in contexts]
    cost = "level off" if load_model(model).is_moe else "are a fixed cost"
    return described(
        {**variables, "max_batch": fits.reset_coords(drop=True), "crossover": ("seq_len", crossover)},
        title=f"{model_name(model)} decode: weights {cost}, the KV cache grows",
        shows=f"Bytes that one of {tp} {gpu_name(gpu)} reads and writes for one decode step. Weights are "
        "read once, whatever the batch (of experts: those that some token is routed to); KV-cache traffic "
        f"{grows(kv)}. Dots: the batch B at which KV cache and weights are equal. Faint where the batch does not fit "
        "in memory.",
        assumptions=assumed(ds),
    )  # fmt: skip


def grows(kv: xr.DataArray) -> str:
    """Describe how the bytes of the KV cache grow: with every token of every sequence, or slower."""
    each = kv / kv["batch"]
    if not _level(each, "batch"):
        return "grows with batch and context"
    per_token = each / (kv["seq_len"] + 1)  # one is written
    if _level(per_token, "seq_len"):
        return "is proportional to batch times context"
    return "is proportional to the batch and grows more slowly than the context"


def _level(values: xr.DataArray, dim: str) -> bool:
    return bool((abs(values / values.isel({dim: 0}) - 1) < 0.01).all())


def _of(values: xr.DataArray, kernels: tuple[str, ...]) -> xr.DataArray:
    """Sum over those of some kernels that are present."""
    return values.sel(kernel=[k for k in kernels if k in values["kernel"].values]).sum("kernel")


def draw(ds: xr.Dataset) -> Figure:
    """Draw level lines for weights, rising lines for the KV cache at each context."""
    fig, ax = new_figure(height=5.0)
    batch, labels, named = ds["batch"].values, [], list[float]()
    levels = {
        "MLP weights": (ds["mlp_weights"], BOUND_BY["weights"], "-"),
        "attention weights": (ds["attention_weights"], BOUND_BY["weights"], "--"),
        "LM head, embedding": (ds["other_weights"], BOUND_BY["weights"], ":"),
        "activations": (ds["activations"], FAINT, "-"),
    }
    for name, (values, colour, dashes) in levels.items():
        line = values.isel(seq_len=0).values / 1e9 if "seq_len" in values.dims else values.values / 1e9
        ax.plot(batch, line, color=colour, linestyle=dashes)
        labels.append((batch[-1], line[-1], name, colour))
    for i in range(ds.sizes["seq_len"]):
        one = ds.isel(seq_len=i)
        kv, fits = one["kv"].values / 1e9, batch <= float(one["max_batch"])
        ax.plot(batch, kv, color=BOUND_BY["kv"], alpha=0.3)
        ax.plot(batch[fits], kv[fits], color=BOUND_BY["kv"])
        labels.append((batch[-1], kv[-1], f"KV cache, {tokens(float(one['seq_len']))} context", BOUND_BY["kv"]))
        at = float(one["crossover"])
        if np.isfinite(at):
            ax.plot(at, np.interp(at, batch, kv), "o", color="white", mec=INK, ms=7, zorder=3)
            below = at < 2 or any(abs(np.log(at / other)) < 1 for other in named)  # no room above to the left
            right = below and at < batch[-1] / 3
            place: dict[str, Any] = {"ha": "left" if right else "right", "va": "top" if below else "bottom"}
            shift = (8 if right else -8, 0)
            ax.annotate(
                f"B={at:,.0f}", (at, np.interp(at, batch, kv)), shift, textcoords="offset points", color=INK, **place
            )
            named += [] if below else [at]
    log_axis(ax, "x", binary=True)
    log_axis(ax, "y")
    ax.set_xlim(batch[0], batch[-1])
    headline(fig, ds.attrs["title"])
    titled(ax, "", "batch (concurrent sequences)", "GB per GPU and decode step")
    end_labels(ax, labels)
    return fig
