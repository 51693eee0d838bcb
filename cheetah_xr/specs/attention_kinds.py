"""Attention kinds as records: the fields each needs and allows, what it rejects, and its parameters.

A new kind is one entry of :data:`ATTENTION_KINDS` here (and its name in :data:`Attention`), its work in a module of
``costmodel/``, and one entry of :data:`cheetah_xr.costmodel.attention_kinds.ATTENTION_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from .layers import LayerGroup

Attention = Literal["gqa", "mla", "compressed", "deltanet", "kda", "mamba2", "lightning", "none"]

Merged: TypeAlias = Any
"""A model with the numbers of a layer group in place of its own."""


@dataclass(frozen=True)
class AttentionFields:
    """Describe what the records say about one attention kind.

    Parameters
    ----------
    parameters
        Counts the parameters of the attention of one layer.
    needed
        Fields of the model without which the kind has no shape.
    allowed
        Fields of a layer group that only some kinds have.
    recurrent
        Whether a state of fixed size takes the place of the KV cache.
    heads_multiple_of
        Field of the model that has to divide `n_heads`.
    rejected
        Says what is wrong with a layer group of the kind, or with the model it belongs to; None if nothing is.
    """

    parameters: Callable[[Merged, LayerGroup], int]
    needed: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    recurrent: bool = False
    heads_multiple_of: str | None = None
    rejected: Callable[[LayerGroup], str | None] = lambda group: None
    rejected_model: Callable[[Merged, LayerGroup], str | None] = lambda m, group: None


def _gqa(m: Merged, group: LayerGroup) -> int:
    heads, kv_heads, v = m.n_heads, m.n_kv_heads, m.v_head_dim or m.head_dim
    keys = 0 if group.kv_shared else kv_heads * m.head_dim
    values = 0 if group.kv_shared or group.k_eq_v else kv_heads * v
    queries = heads * m.head_dim
    gate = heads * v if m.output_gate else 0
    matrices = m.hidden * (queries + keys + values + gate + heads * v)
    biases = (queries + keys + values if m.qkv_bias else 0) + (m.hidden if m.o_bias else 0)
    norms = {
        "none": 0,
        "head": m.head_dim * (1 if group.kv_shared else 2),
        "full": queries + keys,
    }[m.qk_norm]
    sinks = heads if group.sinks else 0
    return int(matrices + biases + norms + sinks) + _indexer(m, group, head_weights=False)


def _mla(m: Merged, group: LayerGroup) -> int:
    query_out = m.n_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    query = (m.hidden + query_out + 1) * m.q_lora_rank if m.q_lora_rank else m.hidden * query_out
    down = m.hidden * (m.kv_lora_rank + m.qk_rope_head_dim)
    up = m.kv_lora_rank * (m.n_heads * (m.qk_nope_head_dim + m.v_head_dim) + 1)
    gate = m.hidden * m.n_heads * m.v_head_dim if m.output_gate else 0
    output = m.n_heads * m.v_head_dim * m.hidden
    return int(query + down + up + gate + output) + _indexer(m, group, head_weights=True)


def _compressed(m: Merged, group: LayerGroup) -> int:
    d, wide = m.hidden, m.n_heads * m.head_dim
    query = d * m.q_lora_rank + m.q_lora_rank + m.q_lora_rank * wide
    key = d * m.head_dim + m.head_dim
    output = wide * m.o_lora_rank + m.o_groups * m.o_lora_rank * d
    series = 0 if group.compress is None else _compressor(m, m.head_dim, group)
    index = 0
    if group.indexer == "own":
        query_out = m.q_lora_rank * m.index_heads * m.index_dim
        index = query_out + d * m.index_heads + _compressor(m, m.index_dim, group)
    return int(query + key + output + m.n_heads + series + index)


def _compressor(m: Merged, width: int, group: LayerGroup) -> int:
    """Two overlapping series with an indexer, one without: values, gates, positions and a norm."""
    wide = width * (2 if group.indexer == "own" else 1)
    return int(2 * m.hidden * wide + group.compress * wide + width)  # type: ignore[operator]


def _indexer(m: Merged, group: LayerGroup, *, head_weights: bool) -> int:
    if group.indexer != "own":
        return 0
    d, query_in = m.hidden, m.q_lora_rank or m.hidden
    queries = query_in * m.index_heads * m.index_dim
    return int(queries + d * m.index_dim + (d * m.index_heads if head_weights else 0) + 2 * m.index_dim)


def _projected(m: Merged) -> int:
    """Queries, keys, values with their convolution, and the output projection of a recurrent mixer."""
    keys, values = m.linear_key_heads * m.linear_key_dim, m.linear_value_heads * m.linear_value_dim
    conv = (2 * keys + values) * (m.linear_conv + (1 if m.linear_conv_bias else 0))
    return int(m.hidden * (2 * keys + values) + values * m.hidden + conv)


def _deltanet(m: Merged, group: LayerGroup) -> int:
    d, heads = m.hidden, m.linear_value_heads
    return int(_projected(m) + d * heads * m.linear_value_dim + 2 * d * heads + 2 * heads + m.linear_value_dim)


def _mamba2(m: Merged, group: LayerGroup) -> int:
    d, heads, values = m.hidden, m.linear_value_heads, m.linear_value_heads * m.linear_value_dim
    return int(_projected(m) + d * values + d * heads + 3 * heads + values)


def _lightning(m: Merged, group: LayerGroup) -> int:
    values = m.linear_value_heads * m.linear_value_dim
    return int(_projected(m) + m.hidden * values + values)


def _kda(m: Merged, group: LayerGroup) -> int:
    d, heads, rank = m.hidden, m.linear_value_heads, m.linear_gate_rank
    keys, values = m.linear_key_heads * m.linear_key_dim, heads * m.linear_value_dim
    decay = (d + keys) * m.linear_key_dim
    gate = (d + values) * rank if rank else d * values
    return int(_projected(m) + decay + gate + d * heads + heads + keys + m.linear_value_dim)


def _reject_gqa(group: LayerGroup) -> str | None:
    if group.kv_shared and group.indexer == "own":
        return "kv_shared layers keep nothing: an indexer of their own has no keys to score"
    if group.indexer != "none" and (group.window or group.chunk):
        return "indexer and window or chunk do not go together"
    return None


def _reject_mla_model(m: Merged, group: LayerGroup) -> str | None:
    if group.indexer == "own" and not m.q_lora_rank:
        return "an indexer reads the query latent: q_lora_rank is missing"
    return None


def _reject_compressed(group: LayerGroup) -> str | None:
    if group.window is None:
        return "attention: compressed needs a window"
    if group.indexer == "own" and group.compress is None:
        return "an indexer of compressed attention chooses among compressed entries: compress is missing"
    if group.indexer == "shared":
        return "indexer: shared belongs to attention: gqa or mla; compressed layers choose for themselves"
    return None


def _recurrent_kind(parameters: Callable[[Merged, LayerGroup], int]) -> AttentionFields:
    heads = ("linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim", "linear_chunk")
    return AttentionFields(parameters, heads, recurrent=True)


ATTENTION_KINDS: dict[Attention, AttentionFields] = {
    "gqa": AttentionFields(
        _gqa,
        needed=("n_heads", "n_kv_heads", "head_dim"),
        allowed=("window", "chunk", "indexer", "sinks", "k_eq_v", "kv_shared"),
        heads_multiple_of="n_kv_heads",
        rejected=_reject_gqa,
    ),
    "mla": AttentionFields(
        _mla,
        needed=("n_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        allowed=("indexer",),
        rejected_model=_reject_mla_model,
    ),
    "compressed": AttentionFields(
        _compressed,
        needed=("n_heads", "head_dim", "q_lora_rank", "qk_rope_head_dim", "o_groups", "o_lora_rank"),
        allowed=("window", "compress", "indexer"),
        heads_multiple_of="o_groups",
        rejected=_reject_compressed,
    ),
    "deltanet": _recurrent_kind(_deltanet),
    "kda": _recurrent_kind(_kda),
    "mamba2": _recurrent_kind(_mamba2),
    "lightning": _recurrent_kind(_lightning),
    "none": AttentionFields(lambda m, group: 0),
}

KIND_FIELDS = ("window", "chunk", "compress", "indexer", "sinks", "k_eq_v", "kv_shared")
"""Fields of a layer group that only some kinds allow, in the order in which they are checked."""

RECURRENT = tuple(name for name, kind in ATTENTION_KINDS.items() if kind.recurrent)
"""Mixers that keep a state of fixed size instead of a cache."""
