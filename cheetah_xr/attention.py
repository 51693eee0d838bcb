"""Attention of one layer as operations: grouped-query and multi-head latent attention."""

from __future__ import annotations

from .ledger import Architecture, Operation, Pass, Scale
from .specs import LayerGroup, Options, Precision
from .terms import Num, small_ops
from .terms import attention as terms
from .terms.linear import gemm_activations, gemm_flops


def small_op(
    name: str, options: Options, b_act: Num, flops: Num, moves: Num, component: str, scale: Scale = "rank"
) -> list[Operation]:
    """An elementwise operation, counted as FLOPs or as traffic of `moves` elements, or not at all."""
    if options.small_ops == "none":
        return []
    amount = {"flops": flops} if options.small_ops == "flops" else {"activations": moves * b_act}
    return [Operation(name, "small_ops", component=component, scale=scale, **amount)]


def attention_operations(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass
) -> list[Operation]:
    """Operations of the attention block of one layer, norm and residual included."""
    b_act, d = precision.activation_bytes, m.hidden
    mixer = _gqa if group.attention == "gqa" else _mla
    return [
        *small_op(
            "attn_norm", options, b_act, small_ops.NORM_FLOPS * p.new * d, small_ops.NORM_MOVES * p.new * d, "attn"
        ),
        *mixer(m, group, precision, options, p),
        *small_op(
            "attn_residual",
            options,
            b_act,
            small_ops.RESIDUAL_FLOPS * p.new * d,
            small_ops.RESIDUAL_MOVES * p.new * d,
            "attn",
        ),
    ]


def kv_bytes_per_token(m: Architecture, group: LayerGroup, precision: Precision, p: Pass) -> Num:
    """Cache bytes of one token in one layer on one GPU: MLA's latent is copied on every tensor-parallel rank."""
    if group.attention == "mla":
        return (m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes
    return 2 * terms.local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim * precision.kv_bytes


def kv_bytes_per_sequence(m: Architecture, group: LayerGroup, precision: Precision, p: Pass) -> Num:
    """Cache bytes of one whole sequence in one layer on one GPU."""
    held = terms.tokens_held(p.context, window=group.window, chunk=group.chunk)
    return kv_bytes_per_token(m, group, precision, p) * held


def _visible(group: LayerGroup, options: Options, p: Pass) -> Num:
    if not p.decode and not options.causal:
        return terms.uncausal_pairs(p.new, p.cached, window=group.window, chunk=group.chunk)
    return terms.visible_pairs(p.new, p.before, window=group.window, chunk=group.chunk)


def _cache_traffic(m: Architecture, group: LayerGroup, precision: Precision, p: Pass) -> Num:
    """Cached tokens read once and new ones written, in bytes per sequence."""
    where = {"window": group.window, "chunk": group.chunk}
    read = (
        terms.cache_read_decode(p.seq_len, p.new, **where) if p.decode else terms.cache_read_prefill(p.cached, **where)
    )
    return (read + p.new) * kv_bytes_per_token(m, group, precision, p)


def _linear(name: str, precision: Precision, p: Pass, k: Num, n: Num, activations: Num) -> Operation:
    """A projection of the new tokens with the attention class's bytes."""
    weights = k * n * precision.attention_weight_bytes
    flops = gemm_flops(p.new, k, n)
    return Operation(name, "attn_proj", flops=flops, weights=weights, activations=activations, resident=weights)


def _gqa(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass) -> list[Operation]:
    counted = options.activation_traffic == "gemm"
    b_in, b_act = precision.attention_input_bytes * counted, precision.activation_bytes * counted
    d, heads = m.hidden, m.n_heads / p.tp
    q_width, kv_width = heads * m.head_dim, terms.local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim
    visible = _visible(group, options, p)
    core_flops = 2 * heads * m.head_dim * visible
    kv = _cache_traffic(m, group, precision, p) / 2
    new_kv = 0.0 if p.decode else p.new * kv_width * b_act
    rotated = p.new * (q_width + kv_width)
    scores = heads * visible
    b_small = precision.activation_bytes
    # Q, K and V are one GEMM: its input is read once.
    return [
        _linear("q_proj", precision, p, d, q_width, gemm_activations(p.new, d, q_width, b_in, b_act)),
        _linear("k_proj", precision, p, d, kv_width, p.new * kv_width * b_act),
        _linear("v_proj", precision, p, d, kv_width, p.new * kv_width * b_act),
        *small_op("rope", options, b_small, small_ops.ROPE_FLOPS * rotated, small_ops.ROPE_MOVES * rotated, "attn"),
        Operation("scores", "attn_core", flops=core_flops, kv=kv, activations=p.new * q_width * b_act + new_kv),
        *small_op("softmax", options, b_small, small_ops.SOFTMAX_FLOPS * scores, 0.0, "attn"),
        Operation("attn_values", "attn_core", flops=core_flops, kv=kv, activations=p.new * q_width * b_act + new_kv),
        _linear("o_proj", precision, p, q_width, d, gemm_activations(p.new, q_width, d, b_in, b_act)),
    ]


def _mla(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass) -> list[Operation]:
    counted = options.activation_traffic == "gemm"
    b_in, b_act = precision.attention_input_bytes * counted, precision.activation_bytes * counted
    d, heads, latent = m.hidden, m.n_heads / p.tp, m.kv_lora_rank
    q_width = heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    down_width, v_width = latent + m.qk_rope_head_dim, heads * m.v_head_dim
    rotated = p.new * m.qk_rope_head_dim * (heads + 1)
    b_small = precision.activation_bytes

    def projection(name: str, k: Num, n: Num) -> Operation:
        return _linear(name, precision, p, k, n, gemm_activations(p.new, k, n, b_in, b_act))

    query = (
        [projection("q_down", d, m.q_lora_rank), projection("q_up", m.q_lora_rank, q_width)]
        if _given(m.q_lora_rank)
        else [projection("q_proj", d, q_width)]
    )
    core = _mla_absorbed if p.decode and options.mla == "absorbed" else _mla_expanded
    up, scores, values = core(m, group, precision, options, p)
    return [
        *query,
        projection("kv_down", d, down_width),
        *up,
        *small_op("rope", options, b_small, small_ops.ROPE_FLOPS * rotated, small_ops.ROPE_MOVES * rotated, "attn"),
        scores,
        *small_op(
            "softmax", options, b_small, small_ops.SOFTMAX_FLOPS * heads * _visible(group, options, p), 0.0, "attn"
        ),
        values,
        projection("o_proj", v_width, d),
    ]


MlaCore = tuple[list[Operation], Operation, Operation]


def _given(rank: Num) -> bool:
    """Whether queries go through a latent (structure: a sweep over the rank keeps it above 0)."""
    return not (isinstance(rank, int) and rank == 0)


def _mla_absorbed(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass) -> MlaCore:
    """Decode: up-projections applied to queries and outputs, the core works on the latent itself."""
    counted = options.activation_traffic == "gemm"
    b_in, b_act = precision.attention_input_bytes * counted, precision.activation_bytes * counted
    heads, latent = m.n_heads / p.tp, m.kv_lora_rank
    rows = p.new * heads

    def absorbed(name: str, k: Num, n: Num) -> Operation:
        weights = heads * k * n * precision.attention_weight_bytes
        activations = gemm_activations(rows, k, n, b_in, b_act)
        return Operation(
            name,
            "attn_proj",
            flops=gemm_flops(rows, k, n),
            weights=weights,
            activations=activations,
            resident=weights,
        )

    pairs, kv = heads * _visible(group, options, p), _cache_traffic(m, group, precision, p)
    wide = latent + m.qk_rope_head_dim
    return (
        [absorbed("absorbed_k", m.qk_nope_head_dim, latent), absorbed("absorbed_v", latent, m.v_head_dim)],
        Operation("scores", "attn_core", flops=2 * wide * pairs, kv=kv, activations=rows * wide * b_act),
        Operation("attn_values", "attn_core", flops=2 * latent * pairs, activations=rows * latent * b_act),
    )


def _mla_expanded(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass) -> MlaCore:
    """Prefill, and decode on request: keys and values are rebuilt from the latent for every token attended to."""
    counted = options.activation_traffic == "gemm"
    b_in, b_act = precision.attention_input_bytes * counted, precision.activation_bytes * counted
    heads, latent = m.n_heads / p.tp, m.kv_lora_rank
    rebuilt = p.seq_len if p.decode else p.new + p.cached
    up_width = heads * (m.qk_nope_head_dim + m.v_head_dim)
    weights = latent * up_width * precision.attention_weight_bytes
    up = Operation(
        "kv_up",
        "attn_proj",
        flops=gemm_flops(rebuilt, latent, up_width),
        weights=weights,
        activations=gemm_activations(rebuilt, latent, up_width, b_in, b_act),
        resident=weights,
    )
    pairs, kv = heads * _visible(group, options, p), _cache_traffic(m, group, precision, p)
    moved = heads * (p.new + rebuilt) * b_act
    qk_dim = m.qk_nope_head_dim + m.qk_rope_head_dim
    return (
        [up],
        Operation("scores", "attn_core", flops=2 * qk_dim * pairs, kv=kv, activations=moved * qk_dim),
        Operation("attn_values", "attn_core", flops=2 * m.v_head_dim * pairs, activations=moved * m.v_head_dim),
    )
