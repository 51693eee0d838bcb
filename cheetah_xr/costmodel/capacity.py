"""Memory of one GPU: resident weights, KV-cache footprints, and how many sequences fit."""

from __future__ import annotations

from dataclasses import dataclass

from ..specs import AnyModel, LayerGroup, Model, Options, ParameterCountModel, Precision
from .attention_kinds import ATTENTION_KINDS
from .formulas import capacity
from .kv_cache import CacheFootprint, parameter_count_bytes_per_token
from .operations import ForwardPass, ForwardPassWork, Num


def weight_bytes(work: ForwardPassWork) -> Num:
    """Return the bytes of resident weights of one GPU."""
    return sum(layer.count * operation.resident_weights for layer in work.parts for operation in layer.operations)


def cache_footprints(
    model: AnyModel, precision: Precision, p: ForwardPass, groups: tuple[LayerGroup, ...] | None = None
) -> list[tuple[Num, CacheFootprint]]:
    """Return (layers, footprint of one of them) for every group of a model, or for some of its groups."""
    if isinstance(model, ParameterCountModel):
        width = parameter_count_bytes_per_token(model, precision, p)
        return [(1, CacheFootprint("KV cache", bytes_per_token=width))]
    return [
        (group.count, footprint)
        for group in (model.groups if groups is None else groups)
        for footprint in ATTENTION_KINDS[group.attention].cache(model.of(group), group, precision, p)
    ]


def cache_bytes(
    model: AnyModel, precision: Precision, p: ForwardPass, groups: tuple[LayerGroup, ...] | None = None
) -> Num:
    """Return the bytes of one sequence on one GPU, all layers of a model or of some of its groups."""
    total: Num = 0.0
    for count, footprint in cache_footprints(model, precision, p, groups):
        total = total + count * footprint.bytes_at(p.context)
    return total


def sequence_bytes(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> Num:
    """Return the bytes of one sequence on one GPU, in the caches of the model and of its drafter."""
    own = cache_bytes(model, precision, p)
    if isinstance(options.drafter, (Model, ParameterCountModel)):
        return own + cache_bytes(options.drafter, precision, p)
    if options.drafter == "mtp" and isinstance(model, Model) and model.mtp:
        return own + cache_bytes(model, precision, p, model.mtp)
    return own


@dataclass(frozen=True)
class Capacity:
    """Memory of one GPU, bytes; `sequences` is how many fit on one attention rank."""

    weights: Num
    per_sequence: Num
    budget: Num
    sequences: Num


def memory(
    model: AnyModel, precision: Precision, options: Options, p: ForwardPass, work: ForwardPassWork, device_memory: Num
) -> Capacity:
    """Return what the memory of one GPU holds, and how many sequences fit next to the weights."""
    weights, per_sequence = weight_bytes(work), sequence_bytes(model, precision, options, p)
    fraction, reserve, used = options.memory_fraction, options.reserve_bytes, options.used_at_start_bytes
    if options.memory_base == "total":
        budget = capacity.budget_total(device_memory, fraction, reserve)
    elif options.memory_base == "free_at_start":
        budget = capacity.budget_free_at_start(device_memory, fraction, reserve, used)
    else:
        budget = capacity.budget_free_after_load(device_memory, fraction, reserve, used, weights)
    sequences = capacity.sequences_that_fit(budget, weights, per_sequence)
    return Capacity(weights, per_sequence, budget, sequences)
