"""What the memory of one GPU holds, item by item, with the rule behind each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Unpack

import pandas as pd

from ...costmodel.capacity import cache_footprints
from ...costmodel.kv_cache import CacheFootprint
from ...costmodel.operations import ForwardPass
from ...specs import AnyModel, Model, ParameterCountModel, Precision
from ..case import Case
from ..inputs.arguments import (
    Axes,
    GpuLike,
    InstanceArguments,
    IntsLike,
    ModelLike,
    PhaseLike,
    PrecisionLike,
    spelled_out,
)
from ..inputs.gather import axes_of
from ..one_point import one_point

WEIGHTS = {
    "attn_proj": "attention",
    "dense_mlp": "dense MLP",
    "router": "routers",
    "shared_experts": "shared experts",
    "routed_experts": "routed experts",
    "embedding": "embedding",
    "lm_head": "LM head",
}
"""Kernel -> what its weights are called."""


MEANT = {
    "vision_tower": "vision tower",
    "mtp_proj": "projection",
    "stream_mixing": "mixing of residual streams",
    "compressor": "compressors",
    "index_compressor": "compressors",
    "index_weights": "indexers",
    "index_q": "indexers",
    "index_k": "indexers",
    "latent_down": "latent projections",
    "latent_up": "latent projections",
}
"""Operations whose weights are named apart from those of their kernel."""


@dataclass(frozen=True)
class Item:
    """One thing in memory: bytes on one GPU (of one sequence, for caches) and the rule behind them."""

    kind: str
    what: str
    layers: int
    bytes: float
    rule: str


@spelled_out(InstanceArguments, after="phase")
def explain_memory(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    seq_len: IntsLike,
    batch: IntsLike = 1,
    phase: PhaseLike = "decode",
    **arguments: Unpack[InstanceArguments],
) -> pd.DataFrame:
    """List what the memory of one GPU holds at one point.

    Parameters
    ----------
    model, gpu, precision, seq_len, batch, phase, tp, dp, ep, efficiency, options, overrides, scales
        As for :func:`evaluate`, one value each.

    Returns
    -------
    pandas.DataFrame
        One row per item: ``kind`` (device, weights, sequence), ``what``, ``layers`` that keep it, ``bytes`` on one GPU
        (those of kind sequence are of one sequence) and the ``rule``.

    Raises
    ------
    SpecError
        For an argument that cannot be used, or with more than one value.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> kept = cx.explain_memory("qwen3-next-80b-a3b", "h200-sxm", tp=2, seq_len=8192).set_index("what")
    >>> kept.loc["recurrent state", "layers"].item()
    36
    """
    axes = axes_of(model, gpu, precision, batch=batch, seq_len=seq_len, phase=phase, **arguments)
    return pd.DataFrame([vars(item) for item in memory_of(axes)[1]])


def memory_of(axes: Axes) -> tuple[Case, list[Item]]:
    """List everything in the memory of one GPU; see :func:`explain_memory`."""
    grid, case = one_point(axes, "explain_memory")
    return case, [*_budget(case, float(grid.inputs["gpu.memory_bytes"])), *_weights(case), *_caches(case)]


def _budget(case: Case, memory: float) -> list[Item]:
    options = case.options
    base = {
        "total": "of all memory",
        "free_at_start": "of what is free before loading",
        "free_after_load": "of what the weights leave free",
    }[options.memory_base]
    items = [
        Item("device", "memory", 0, memory, "what the device reports, else its label"),
        Item(
            "device",
            "budget",
            0,
            float(case.capacity.budget),
            f"{float(options.memory_fraction):g} {base}, less reserve",
        ),
    ]
    if options.reserve_bytes:
        items.append(Item("device", "reserve", 0, float(options.reserve_bytes), "activations and workspaces; an input"))
    return items


def _weights(case: Case) -> list[Item]:
    sizes: dict[str, float] = {}
    for layer in case.work.parts:
        for op in layer.operations:
            what = WEIGHTS.get(op.kernel, op.kernel)
            what = MEANT.get(op.name, what)
            name = f"drafter: {what}" if layer.is_draft else what
            sizes[name] = sizes.get(name, 0.0) + float(layer.count * op.resident_weights)
    total = sum(sizes.values())
    return [
        *(Item("weights", name, 0, size, f"{size / total:.1%} of the weights") for name, size in sizes.items() if size),
        Item("weights", "all weights", 0, total, ""),
    ]


def _caches(case: Case) -> list[Item]:
    tokens = float(case.p.context)
    items = [
        Item("sequence", what, int(count), float(count * item.bytes_at(tokens)), rule(item, count))
        for what, count, item in sequence_items(case)
    ]
    total = float(case.capacity.per_sequence)
    fits = float(case.capacity.sequences)
    return [
        *items,
        Item("sequence", "one sequence", 0, total, f"{tokens:,.0f} tokens; {fits:,.0f} of them fit on a GPU"),
    ]


def sequence_items(case: Case) -> Iterator[tuple[str, int, CacheFootprint]]:
    """Yield the KV-cache footprint of one sequence, equal kinds of layers together: name, layers, rule."""
    yield from merged(case.model, case.precision, case.p)
    drafter = case.options.drafter
    if isinstance(drafter, (Model, ParameterCountModel)):
        parts = merged(drafter, case.precision, case.p)
    elif drafter == "mtp" and isinstance(case.model, Model):
        parts = merged(case.model.model_copy(update={"groups": case.model.mtp}), case.precision, case.p)
    else:
        return
    for what, count, item in parts:
        yield f"drafter: {what}", count, item


def merged(model: AnyModel, precision: Precision, p: ForwardPass) -> Iterator[tuple[str, int, CacheFootprint]]:
    """Yield one row for all layers with the same footprint, whatever their MLPs."""
    rows: dict[CacheFootprint, int] = {}
    for count, item in cache_footprints(model, precision, p):
        key = replace(item, fixed_bytes=float(item.fixed_bytes), bytes_per_token=float(item.bytes_per_token))
        rows[key] = rows.get(key, 0) + int(count)
    for item, count in rows.items():
        if item.fixed_bytes or item.bytes_per_token:
            yield item.what, count, item


def rule(item: CacheFootprint, layers: float) -> str:
    """Say how an item grows."""
    if item.fixed_bytes:
        return f"{size(float(layers * item.fixed_bytes))} whatever the length"
    text = f"{size(float(layers * item.bytes_per_token))} per token"
    if item.tokens_per_entry != 1.0:
        text = f"{size(float(layers * item.bytes_per_token))} for every {int(item.tokens_per_entry):,} tokens"
    return text if item.max_tokens is None else f"{text}, for the last {int(item.max_tokens):,} tokens at most"


def size(n: float) -> str:
    """Return bytes in decimal units as text."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(n) >= factor:
            return f"{n / factor:,.4g} {unit}"
    return f"{n:,.0f} B"
