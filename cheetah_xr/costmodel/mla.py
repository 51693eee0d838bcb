"""Multi-head latent attention of one layer: its operations, its latent cache and its layout rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..specs import LayerGroup, Options, Precision
from .attention import tokens_read, visible
from .formulas.gemm import gemm_activations, gemm_flops
from .kv_cache import CacheFootprint, index_keys
from .operations import Architecture, ForwardPass, LayoutRule, Num, Operation
from .projections import gate, projection, rope, softmax, widths
from .sparse_attention import indexer


def mla(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the operations of multi-head latent attention between its norm and its residual."""
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
        *indexer(m, group, precision, options, p, query_width=m.q_lora_rank, head_weights=True),
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
    """Return up-projections and core in the form the latent is used in.

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


def scaled(op: Operation, fraction: Num, prefix: str = "", resident_weights: Num | None = None) -> Operation:
    """Return an operation done in a fraction of the cases; its resident weights stay."""
    kept = op.resident_weights if resident_weights is None else resident_weights
    shared = ("flops", "weights", "kv", "activations", "launches")
    amounts: dict[str, Any] = {name: getattr(op, name) * fraction for name in shared}
    return replace(op, name=prefix + op.name, **amounts, resident_weights=kept)


def has_query_latent(m: Architecture) -> bool:
    """Return whether queries go through a latent (structure: a sweep over the rank keeps it above 0)."""
    return not (isinstance(m.q_lora_rank, int) and m.q_lora_rank == 0)


def _latent_traffic(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> Num:
    return (tokens_read(m, group, p) + p.new) * (m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes


def _absorbed(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> MlaCore:
    """Return the absorbed form: up-projections of queries and outputs, a core on the latent itself."""
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
    """Return the expanded form: keys and values are rebuilt from the latent for every token attended to."""
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


def mla_cache(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> list[CacheFootprint]:
    """Return the footprint of the latents, replicated across tensor-parallel ranks, and of the index keys."""
    width = (m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes
    return [CacheFootprint("latent cache", bytes_per_token=width), *index_keys(m, group, precision)]


def mla_rules(m: Architecture, group: LayerGroup, p: ForwardPass) -> list[LayoutRule]:
    """Return the layout rule of latent attention: tp divides the query heads."""
    return [LayoutRule("tp_heads", ("tp",), m.n_heads % p.tp != 0)]
