"""Attention of one layer as operations: grouped-query and multi-head latent attention, dense or sparse."""

from __future__ import annotations

from dataclasses import replace

from ..specs import LayerGroup, Options, Precision
from .formulas import Num, attention, elementwise
from .formulas.gemm import gemm_activations, gemm_flops
from .operations import Architecture, ForwardPass, Operation, SequenceCount


def small_op(
    name: str,
    options: Options,
    b_act: Num,
    flops: Num,
    moves: Num,
    component: str,
    per: SequenceCount = "rank_micro_batch",
) -> list[Operation]:
    """An elementwise operation, counted as FLOPs or as traffic of `moves` elements, or not at all."""
    if options.small_ops == "none":
        return []
    amount = {"flops": flops} if options.small_ops == "flops" else {"activations": moves * b_act}
    return [Operation(name, "small_ops", launches=0, component=component, per=per, **amount)]


def rope(options: Options, precision: Precision, elements: Num) -> list[Operation]:
    """Rotary embedding of the new queries and keys."""
    flops, moves = elementwise.ROPE_FLOPS * elements, elementwise.ROPE_MOVES * elements
    return small_op("rope", options, precision.activation_bytes, flops, moves, "attn")


def softmax(options: Options, precision: Precision, scores: Num) -> list[Operation]:
    """Softmax over the scores; they never leave the chip."""
    return small_op("softmax", options, precision.activation_bytes, elementwise.SOFTMAX_FLOPS * scores, 0.0, "attn")


def gate(options: Options, precision: Precision, elements: Num) -> list[Operation]:
    """A gate on the output of attention or of a recurrent mixer."""
    flops, moves = elementwise.gating_flops(True) * elements, elementwise.gating_moves(True) * elements
    return small_op("output_gating", options, precision.activation_bytes, flops, moves, "attn")


def widths(precision: Precision, options: Options) -> tuple[Num, Num]:
    """Bytes of GEMM inputs and outputs of the attention class, 0 where activation traffic is not counted."""
    counted = options.activation_traffic == "gemm"
    return precision.attention_input_bytes * counted, precision.activation_bytes * counted


def linear(
    name: str, precision: Precision, p: ForwardPass, k: Num, n: Num, activations: Num, launches: int = 1
) -> Operation:
    """A projection of the new tokens with the attention class's bytes."""
    weights = k * n * precision.attention_weight_bytes
    return Operation(
        name,
        "attn_proj",
        flops=gemm_flops(p.new, k, n),
        weights=weights,
        activations=activations,
        resident_weights=weights,
        launches=launches,
    )


def projection(
    name: str, precision: Precision, options: Options, p: ForwardPass, k: Num, n: Num, launches: int = 1
) -> Operation:
    """A projection that reads its own input."""
    b_in, b_act = widths(precision, options)
    return linear(name, precision, p, k, n, gemm_activations(p.new, k, n, b_in, b_act), launches)


def limits(m: Architecture, group: LayerGroup) -> dict[str, Num]:
    """What caps the keys of a query: window, chunk, or the choice of an indexer."""
    window = m.index_top_k if group.indexer != "none" else group.window
    return {"window": window, "chunk": group.chunk}


def visible(m: Architecture, group: LayerGroup, options: Options, p: ForwardPass) -> Num:
    """(query, key) pairs of one sequence."""
    if not p.decode and not options.causal:
        return attention.uncausal_pairs(p.new, p.cached, **limits(m, group))
    return attention.visible_pairs(p.new, p.before, **limits(m, group))


def tokens_read(m: Architecture, group: LayerGroup, p: ForwardPass) -> Num:
    """Cached tokens some new query attends to."""
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
    """New tokens that go to the cache: none where it is an earlier layer's."""
    return 0.0 if group.kv_shared else p.new


def value_width(m: Architecture) -> Num:
    """Width of one value head."""
    return m.head_dim if m.v_head_dim is None else m.v_head_dim


def gqa(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Grouped-query attention between its norm and its residual."""
    b_in, b_act = widths(precision, options)
    d, heads, kv_heads, v_dim = m.hidden, m.n_heads / p.tp, attention.local_kv_heads(m.n_kv_heads, p.tp), value_width(m)
    q_width, k_width, v_width, o_width = heads * m.head_dim, kv_heads * m.head_dim, kv_heads * v_dim, heads * v_dim
    pairs = heads * visible(m, group, options, p)
    moved = tokens_read(m, group, p) + tokens_written(group, p)
    in_prefill = 0.0 if p.decode else p.new * b_act
    new_keys = 0.0 if group.kv_shared else k_width
    rotated = p.new * (q_width + new_keys) * m.rotary
    # Q, K, V and the gate are one GEMM: its input is read once, and it is launched once.
    beside_q = [("k_proj", k_width, not group.kv_shared), ("v_proj", v_width, not (group.kv_shared or group.k_eq_v))]
    beside_q += [("gate_proj", o_width, m.output_gate)]
    return [
        linear("q_proj", precision, p, d, q_width, gemm_activations(p.new, d, q_width, b_in, b_act)),
        *(linear(name, precision, p, d, n, p.new * n * b_act, launches=0) for name, n, given in beside_q if given),
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


def mla(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Multi-head latent attention between its norm and its residual."""
    d, heads, latent = m.hidden, m.n_heads / p.tp, m.kv_lora_rank
    q_width = heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    down_width, v_width = latent + m.qk_rope_head_dim, heads * m.v_head_dim

    def project(name: str, k: Num, n: Num, launches: int = 1) -> Operation:
        return projection(name, precision, options, p, k, n, launches)

    query = (
        [project("q_down", d, m.q_lora_rank), project("q_up", m.q_lora_rank, q_width)]
        if has_query_latent(m)
        else [project("q_proj", d, q_width)]
    )
    up, core = _mla_core(m, group, precision, options, p)
    return [
        *query,
        # Engines fuse the two steps down, which every rank does; whole heads of queries are split over ranks.
        project("kv_down", d, down_width, launches=0 if has_query_latent(m) else 1),
        *up,
        *([project("gate_proj", d, v_width)] if m.output_gate else []),
        *rope(options, precision, p.new * m.qk_rope_head_dim * (heads + 1) * m.rotary),
        *core,
        *softmax(options, precision, heads * visible(m, group, options, p)),
        *(gate(options, precision, p.new * v_width) if m.output_gate else []),
        project("o_proj", v_width, d),
    ]


MlaCore = tuple[list[Operation], list[Operation]]
"""Up-projections, and the operations of the attention core."""


def _mla_core(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> MlaCore:
    """The form the latent is used in.

    Sparse attention gathers latents per query, which only the absorbed form can read; a prefill no query of which sees
    more than it may keep has nothing to leave out, and takes the expanded form as engines do.
    """
    if group.indexer == "none":
        absorbed = p.decode and options.mla == "absorbed"
        return (_absorbed if absorbed else _expanded)(m, group, precision, options, p)
    sparse_up, sparse_core = _absorbed(m, group, precision, options, p)
    if p.decode:
        return sparse_up, sparse_core
    whole = 1.0 * (p.new + p.cached <= m.index_top_k)
    dense_up, dense_core = _expanded(m, group, precision, options, p)
    return (
        # Both forms hold the same weights.
        [*(scaled(op, 1 - whole) for op in sparse_up), *(scaled(op, whole, "dense_", 0.0) for op in dense_up)],
        [*(scaled(op, 1 - whole) for op in sparse_core), *(scaled(op, whole, "dense_") for op in dense_core)],
    )


def scaled(op: Operation, share: Num, prefix: str = "", resident_weights: Num | None = None) -> Operation:
    """An operation done in a share of the cases; what is held does not change."""
    held = op.resident_weights if resident_weights is None else resident_weights
    shared = ("flops", "weights", "kv", "activations", "launches")
    amounts: dict[str, Num] = {name: getattr(op, name) * share for name in shared}
    return replace(op, name=prefix + op.name, **amounts, resident_weights=held)


def has_query_latent(m: Architecture) -> bool:
    """Whether queries go through a latent (structure: a sweep over the rank keeps it above 0)."""
    return not (isinstance(m.q_lora_rank, int) and m.q_lora_rank == 0)


def _latent_traffic(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> Num:
    return (tokens_read(m, group, p) + p.new) * (m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes


def _absorbed(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> MlaCore:
    """Up-projections applied to queries and outputs, the core works on the latent itself."""
    b_in, b_act = widths(precision, options)
    heads, latent = m.n_heads / p.tp, m.kv_lora_rank
    rows = p.new * heads

    def absorb(name: str, k: Num, n: Num) -> Operation:
        weights = heads * k * n * precision.attention_weight_bytes
        activations = gemm_activations(rows, k, n, b_in, b_act)
        flops = gemm_flops(rows, k, n)
        return Operation(
            name, "attn_proj", flops=flops, weights=weights, activations=activations, resident_weights=weights
        )

    pairs, kv = heads * visible(m, group, options, p), _latent_traffic(m, group, precision, p)
    wide = latent + m.qk_rope_head_dim
    new_latents = 0.0 if p.decode else p.new * wide * b_act
    return (
        [absorb("absorbed_k", m.qk_nope_head_dim, latent), absorb("absorbed_v", latent, m.v_head_dim)],
        [
            Operation(
                "scores", "attn_core", flops=2 * wide * pairs, kv=kv, activations=rows * wide * b_act + new_latents
            ),
            Operation(
                "attn_values", "attn_core", flops=2 * latent * pairs, activations=rows * latent * b_act, launches=0
            ),
        ],
    )


def _expanded(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> MlaCore:
    """Prefill, and decode on request: keys and values are rebuilt from the latent for every token attended to."""
    b_in, b_act = widths(precision, options)
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
        resident_weights=weights,
    )
    pairs, kv = heads * visible(m, group, options, p), _latent_traffic(m, group, precision, p)
    moved = heads * (p.new + rebuilt) * b_act
    qk_dim = m.qk_nope_head_dim + m.qk_rope_head_dim
    return (
        [up],
        [
            Operation("scores", "attn_core", flops=2 * qk_dim * pairs, kv=kv, activations=moved * qk_dim),
            Operation(
                "attn_values",
                "attn_core",
                flops=2 * m.v_head_dim * pairs,
                activations=moved * m.v_head_dim,
                launches=0,
            ),
        ],
    )
