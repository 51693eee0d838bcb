"""Attention kinds: for each the functions that give its operations, its cache footprint and its layout rules.

The records' side of a kind is :data:`cheetah_xr.specs.attention_kinds.ATTENTION_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..specs import LayerGroup, Options, Precision
from ..specs.attention_kinds import Attention
from .attention import gqa, gqa_cache, gqa_rules
from .kv_cache import CacheFootprint
from .linear_attention import recurrent, recurrent_rules, state_cache
from .mla import mla, mla_cache, mla_rules
from .operations import Architecture, ForwardPass, LayoutRule, Operation
from .sparse_attention import compressed, compressed_cache, compressed_rules


@dataclass(frozen=True)
class AttentionKind:
    """Functions of one attention kind; each takes a model with the group's own widths.

    `operations` are those between the norm and the residual, `cache` what one layer keeps per sequence on one GPU,
    `rules` what the layer asks of the layout. After attention comes one all-reduce over tensor-parallel ranks.
    """

    operations: Callable[[Architecture, LayerGroup, Precision, Options, ForwardPass], list[Operation]]
    cache: Callable[[Architecture, LayerGroup, Precision, ForwardPass], list[CacheFootprint]]
    rules: Callable[[Architecture, LayerGroup, ForwardPass], list[LayoutRule]]


_RECURRENT = AttentionKind(recurrent, state_cache, recurrent_rules)

ATTENTION_KINDS: dict[Attention, AttentionKind] = {
    "gqa": AttentionKind(gqa, gqa_cache, gqa_rules),
    "mla": AttentionKind(mla, mla_cache, mla_rules),
    "compressed": AttentionKind(compressed, compressed_cache, compressed_rules),
    "deltanet": _RECURRENT,
    "kda": _RECURRENT,
    "mamba2": _RECURRENT,
    "lightning": _RECURRENT,
    "none": AttentionKind(lambda *_: [], lambda *_: [], lambda *_: []),
}
