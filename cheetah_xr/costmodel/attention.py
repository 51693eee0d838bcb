"""Grouped-query attention of one layer: its operations, its KV cache and its layout rules."""

from __future__ import annotations

from ..specs import LayerGroup, Options, Precision
from .formulas import attention
from .formulas.gemm import gemm_activations
from .kv_cache import CacheFootprint, index_keys
from .operations import Architecture, ForwardPass, LayoutRule, Num, Operation, kv_heads_rule
from .projections import gate, linear, projection, rope, softmax, widths
from .sparse_attention import indexer


def limits(m: Architecture, group: LayerGroup) -> dict[str, Num | None]:
    """Return what caps the keys of a query: window, chunk, or the choice of an indexer."""
    window = m.index_top_k if group.indexer != "none" else group.window
    return {"window": window, "chunk": group.chunk}


def visible(m: Architecture, group: LayerGroup, options: Options, p: ForwardPass) -> Num:
    """Return (query, key) pairs of one sequence."""
    if not p.decode and not options.causal:
        return attention.uncausal_pairs(p.new, p.cached, **limits(m, group))
    return attention.visible_pairs(p.new, p.before, **limits(m, group))


def tokens_read(m: Architecture, group: LayerGroup, p: ForwardPass) -> Num:
    """Return the cached tokens some new query attends to."""
    cached = p.seq_len if p.decode else p.cached
    if group.indexer != "none":
        return attention.tokens_in_cache(cached, window=p.new * m.index_top_k)
    where = {"window": group.window, "chunk": group.chunk}
    return (
        attention.cache_read_decode(cached, p.new, **where)
        if p.decode
        else attention.cache_read_prefill(cached, **where)
    )


def tokens_written(group: LayerGroup, p: ForwardPass) -> Num:
    """Return the new tokens written to the cache: none where a layer reads that of an earlier one."""
    return 0.0 if group.kv_shared else p.new


def value_width(m: Architecture) -> Num:
    """Return the width of one value head."""
    return m.head_dim if m.v_head_dim is None else m.v_head_dim


def gqa(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the operations of grouped-query attention between its norm and its residual."""
    b_in, b_act = widths(precision, options)
    d, heads, kv_heads, v_dim = m.hidden, m.n_heads / p.tp, attention.local_kv_heads(m.n_kv_heads, p.tp), value_width(m)
    q_width, k_width, v_width, o_width = heads * m.head_dim, kv_heads * m.head_dim, kv_heads * v_dim, heads * v_dim
    pairs = heads * visible(m, group, options, p)
    moved = tokens_read(m, group, p) + tokens_written(group, p)
    in_prefill = 0.0 if p.decode else p.new * b_act
    new_keys = 0.0 if group.kv_shared else k_width
    rotated = p.new * (q_width + new_keys) * m.rotary
    # Q, K, V and the gate are one GEMM: its input is read once, and it is launched once.
    fused_with_q = [
        ("k_proj", k_width, not group.kv_shared),
        ("v_proj", v_width, not (group.kv_shared or group.k_eq_v)),
    ]
    fused_with_q += [("gate_proj", o_width, m.output_gate)]
    return [
        *indexer(m, group, precision, options, p, query_width=d),
        linear("q_proj", precision, p, d, q_width, gemm_activations(p.new, d, q_width, b_in, b_act)),
        *(linear(name, precision, p, d, n, p.new * n * b_act, launches=0) for name, n, given in fused_with_q if given),
        *rope(options, precision, rotated),
        Operation(
            "scores",
            "attn_core",
            flops=2 * m.head_dim * pairs,
            kv=moved * k_width * precision.kv_bytes,
            activations=p.new * q_width * b_act + in_prefill * k_width,
        ),
        *softmax(options, precision, pairs),
        Operation(
            "attn_values",
            "attn_core",
            flops=2 * v_dim * pairs,
            kv=moved * v_width * precision.kv_bytes,
            activations=p.new * o_width * b_act + in_prefill * v_width,
            launches=0,
        ),
        *(gate(options, precision, p.new * o_width) if m.output_gate else []),
        projection("o_proj", precision, options, p, o_width, d),
    ]


def gqa_cache(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> list[CacheFootprint]:
    """Return the footprint of keys and values: of a window, a chunk, or every token; and of the index keys."""
    if group.kv_shared:
        return []
    width = attention.local_kv_heads(m.n_kv_heads, p.tp) * (m.head_dim + value_width(m)) * precision.kv_bytes
    if group.window is not None:
        return [CacheFootprint("window cache", bytes_per_token=width, max_tokens=group.window)]
    if group.chunk is not None:
        return [CacheFootprint("chunk cache", bytes_per_token=width, max_tokens=group.chunk)]
    return [CacheFootprint("KV cache", bytes_per_token=width), *index_keys(m, group, precision)]


def gqa_rules(m: Architecture, group: LayerGroup, p: ForwardPass) -> list[LayoutRule]:
    """Return the layout rules of grouped-query attention: tp divides the query heads and fits the KV heads."""
    return [LayoutRule("tp_heads", ("tp",), m.n_heads % p.tp != 0), kv_heads_rule(m.n_kv_heads, p)]
