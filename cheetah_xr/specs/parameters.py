"""Count parameters exactly: every matrix and vector of a model's checkpoint."""

from __future__ import annotations

from typing import Any

from .layers import RECURRENT, LayerGroup

Merged = Any
"""A model with the numbers of a layer group in place of its own."""


def layer_parameters(m: Merged, group: LayerGroup, experts: int) -> int:
    """Parameters of one layer of which a token meets, or memory holds, `experts` routed experts."""
    blocks = (group.attention != "none") + (group.mlp != "none")
    norms = blocks if m.norms_per_layer is None else m.norms_per_layer
    streams = m.residual_streams
    # Hyper-connections: a mixing matrix, its bias and three scales, before attention and before the MLP.
    mixing = blocks * ((2 + streams) * streams * (streams * m.hidden + 1) + 3) if streams > 1 else 0
    vectors = norms * m.hidden + group.extra_parameters
    return int(attention_parameters(m, group) + mlp_parameters(m, group, experts) + vectors + mixing)


def outside_parameters(m: Merged) -> int:
    """Embedding, LM head (once when tied), final norm and what stands beside them."""
    streams = m.residual_streams
    merging = streams * streams * m.hidden + streams + 1 if streams > 1 else 0
    embeddings = m.vocab * m.hidden * (1 if m.tie_embeddings else 2)
    return int(embeddings + m.hidden + merging + m.extra_parameters)


def mtp_parameters(m: Merged, layers: int) -> int:
    """Multi-token-prediction module: its layers, the projection of state and embedding, three norms."""
    streams = m.residual_streams
    merging = streams * streams * m.hidden + streams + 1 if streams > 1 else 0
    return int(layers + 2 * m.hidden * m.hidden + 3 * m.hidden + merging)


def attention_parameters(m: Merged, group: LayerGroup) -> int:
    """Parameters of the attention or mixer of one layer."""
    if group.attention in RECURRENT:
        return _recurrent(m, group)
    kinds = {"none": lambda *_: 0, "gqa": _gqa, "mla": _mla, "compressed": _compressed}
    own = _indexer(m, group) if group.indexer == "own" else 0
    return int(kinds[group.attention](m, group) + own)


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
    return int(matrices + biases + norms + (heads if group.sinks else 0))


def _mla(m: Merged, group: LayerGroup) -> int:
    query_out = m.n_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    query = (m.hidden + query_out + 1) * m.q_lora_rank if m.q_lora_rank else m.hidden * query_out
    down = m.hidden * (m.kv_lora_rank + m.qk_rope_head_dim)
    up = m.kv_lora_rank * (m.n_heads * (m.qk_nope_head_dim + m.v_head_dim) + 1)
    gate = m.hidden * m.n_heads * m.v_head_dim if m.output_gate else 0
    return int(query + down + up + gate + m.n_heads * m.v_head_dim * m.hidden)


def _compressed(m: Merged, group: LayerGroup) -> int:
    d, wide = m.hidden, m.n_heads * m.head_dim
    query = d * m.q_lora_rank + m.q_lora_rank + m.q_lora_rank * wide
    key = d * m.head_dim + m.head_dim
    output = wide * m.o_lora_rank + m.o_groups * m.o_lora_rank * d
    series = 0 if group.compress is None else _compressor(m, m.head_dim, group)
    return int(query + key + output + m.n_heads + series)


def _compressor(m: Merged, width: int, group: LayerGroup) -> int:
    """Two overlapping series with an indexer, one without: values, gates, positions and a norm."""
    wide = width * (2 if group.indexer == "own" else 1)
    return int(2 * m.hidden * wide + group.compress * wide + width)  # type: ignore[operator]


def _indexer(m: Merged, group: LayerGroup) -> int:
    d, query_in = m.hidden, m.q_lora_rank or m.hidden
    queries = query_in * m.index_heads * m.index_dim
    if group.attention == "compressed":
        return int(queries + d * m.index_heads + _compressor(m, m.index_dim, group))
    head_weights = d * m.index_heads if group.attention == "mla" else 0
    return int(queries + d * m.index_dim + head_weights + 2 * m.index_dim)


def _recurrent(m: Merged, group: LayerGroup) -> int:
    d, heads = m.hidden, m.linear_value_heads
    keys, values = m.linear_key_heads * m.linear_key_dim, heads * m.linear_value_dim
    conv = (2 * keys + values) * (m.linear_conv + (1 if m.linear_conv_bias else 0))
    projected = d * (2 * keys + values) + values * d + conv
    gate = d * values
    if group.attention == "deltanet":
        return int(projected + gate + 2 * d * heads + 2 * heads + m.linear_value_dim)
    if group.attention == "mamba2":
        return int(projected + gate + d * heads + 3 * heads + values)
    if group.attention == "lightning":
        return int(projected + gate + values)
    decay = (d + keys) * m.linear_key_dim
    rank = m.linear_gate_rank
    low_rank_gate = (d + values) * rank if rank else gate
    return int(projected + decay + low_rank_gate + d * heads + heads + keys + m.linear_value_dim)


def mlp_parameters(m: Merged, group: LayerGroup, experts: int) -> int:
    """Parameters of the MLP of one layer with `experts` routed experts counted."""
    dense = _mlp(m, m.hidden, m.intermediate) if group.mlp in ("dense", "moe+dense") else 0
    if not group.is_routed:
        return dense
    d, width = m.hidden, m.expert_hidden or m.hidden
    shared = _mlp(m, d, m.shared_intermediate) if m.shared_intermediate else 0
    latent = 2 * d * m.expert_hidden if m.expert_hidden else 0
    router = d * m.n_experts + (d if m.shared_gate else 0)
    bias = m.vocab * m.top_k if group.hash_routing else m.n_experts if m.router_bias else 0
    return int(dense + experts * _mlp(m, width, m.expert_intermediate) + shared + latent + router + bias)


def _mlp(m: Merged, hidden: int, intermediate: int) -> int:
    sides = 2 if m.gated else 1
    biases = sides * intermediate + hidden if m.mlp_bias else 0
    return int((sides + 1) * hidden * intermediate + biases)
