"""Draw [CHEETAH], footnote 3: the fractions of figure 3 for three kinds of attention in one model."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...api import evaluate
from ...specs import Model, SpecError, load_model
from ..shared.common import assumed, described, drawable, instance, log_grid, max_context, model_name
from ..shared.request_time import prefill_fraction
from ..shared.style import SERIES, end_labels, log_axis, new_figure, titled, tokens

OUTPUT, BATCH = 512, 8
SAME = 1e-4
"""Fractions that differ by less count as equal."""
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": 0,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
"""Widths of the MLA variant: those of DeepSeek-V3, queries projected directly."""


def data(model: str = "llama-3.1-70b", gpu: str = "h200-sxm") -> xr.Dataset:
    """Return prefill fractions for the model with multi-head, grouped-query and latent attention."""
    versions = versions_of(load_model(model))
    where: dict[str, Any] = {"model": versions, "gpu": gpu, "tp": min(2, instance(gpu)), "efficiency": "ideal"}
    where["options"] = {"on_infeasible": "ignore"}
    fraction, ds = prefill_fraction(where, log_grid(512, min(65536, max_context(model) - OUTPUT), 30), [OUTPUT], BATCH)
    cache = evaluate(versions, gpu, batch=1, seq_len=1, outputs=["kv_bytes_per_sequence"])["kv_bytes_per_sequence"]
    return described(
        {
            "prefill_fraction": drawable(fraction).isel(output_tokens=0),
            "kv_bytes_per_token": cache.reset_coords(drop=True),
        },
        title=title_of(fraction.isel(output_tokens=0), cache),
        shows=f"{model_name(model)} with multi-head (MHA), grouped-query (GQA) and multi-head latent attention "
        "(MLA, widths of DeepSeek-V3): a smaller KV cache (labelled, per token) makes decode faster and hardly changes "
        f"prefill. {BATCH} concurrent requests of {OUTPUT} output tokens; memory capacity is ignored, so that all "
        "three run. Tensor parallelism splits KV heads but replicates the latent cache across TP ranks: at high "
        "degrees MLA loses its lead.",
        assumptions=f"{model_name(model)} with its attention replaced; {assumed(ds)}",
    )


def title_of(fraction: xr.DataArray, cache: xr.DataArray) -> str:
    """Describe whether a smaller KV cache raises the prefill fraction: at every length, at the longest, or not."""
    order = np.argsort(-cache.values)
    rises = np.diff(fraction.transpose("input_tokens", "model").values[:, order], axis=1) >= -SAME
    if rises.all():
        return "The smaller the KV cache, the larger the prefill fraction"
    if rises[-1].all():
        return "At long inputs, the smaller the KV cache, the larger the prefill fraction"
    return "A smaller KV cache does not always raise the prefill fraction"


def versions_of(model: Any) -> list[Model]:
    """Return the model with all three kinds of attention.

    Raises
    ------
    SpecError
        When it has no grouped-query attention to replace.
    """
    if not isinstance(model, Model) or not all(map(_plain, model.groups)):
        raise SpecError(
            f"figures: prefill-fraction-attention needs a model with full grouped-query attention in every layer, "
            f"not {model.name}"
        )
    fields = model.model_dump()
    latent = tuple({**group, "attention": "mla"} for group in fields["groups"])
    changes: dict[str, dict[str, Any]] = {
        "MHA": {"n_kv_heads": model.n_heads},
        "GQA": {},
        "MLA": {**LATENT, "groups": latent},
    }
    return [Model.model_validate({**fields, **change, "name": name}) for name, change in changes.items()]


def _plain(group: Any) -> bool:
    """Return whether the attention of a group can be replaced."""
    special = group.window or group.chunk or group.sinks or group.kv_shared or group.indexer != "none"
    return bool(group.attention == "gqa" and not special)


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line per kind of attention."""
    fig, ax = new_figure(height=4.2)
    x, labels = ds["input_tokens"].values, []
    for name, colour in zip(ds["model"].values, SERIES, strict=False):
        line = ds.sel(model=name)
        ax.plot(x, line["prefill_fraction"], color=colour)
        text = f"{name}: {float(line['kv_bytes_per_token']) / 1e3:,.0f} kB/token"
        labels.append((x[-1], float(line["prefill_fraction"][-1]), text, colour))
    log_axis(ax, "x", binary=True)
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, 1)
    titled(ax, ds.attrs["title"], "input tokens", "prefill (fraction of the requests' time)")
    end_labels(ax, labels)
    return fig
