"""The cost model on one page: which operations and collectives, in which order, for which layer groups.

Definitions, symbols and sources: docs/cost-model.md.
"""

from __future__ import annotations

from .attention import attention_operations, kv_bytes_per_sequence
from .ledger import (
    Architecture,
    Collective,
    LayerWork,
    Operation,
    Pass,
    PassWork,
    ring_gather,
    tp_all_reduce,
    wide_gathers,
)
from .mlp import dense_collectives, dense_operations, moe_collectives, moe_exchange, moe_operations
from .specs import AnyModel, LayerGroup, LumpedModel, Options, Precision
from .terms import Num, collectives
from .terms.attention import local_kv_heads
from .terms.linear import gemm_activations, gemm_flops


def pass_work(model: AnyModel, precision: Precision, options: Options, p: Pass) -> PassWork:
    """Work of one forward pass on one GPU.

    Parameters
    ----------
    model, precision, options
        Records whose numbers may be arrays that broadcast against one another.
    p
        The pass: phase, tokens, layout.

    Returns
    -------
    PassWork
        Layers first (`options.micro_batches` is not applied), then embedding and LM head.
    """
    if isinstance(model, LumpedModel):
        return PassWork((lumped_layer(model, precision, p),), (), model.n_layers)
    layers = tuple(layer_work(model, group, precision, options, p) for group in model.groups)
    return PassWork(layers, (embedding(model, precision, p), lm_head(model, precision, options, p)), model.n_layers)


def layer_work(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: Pass) -> LayerWork:
    """Work of one layer of a group."""
    attention = attention_operations(m, group, precision, options, p)
    after = tp_all_reduce("attn_all_reduce", p, p.new * m.hidden * precision.activation_bytes)
    label = f"{group.attention}+{group.mlp}"
    if group.mlp == "dense":
        operations = (*attention, *dense_operations(m, precision, options, p))
        rest = (after, *dense_collectives(m, precision, options, p))
        return LayerWork(group.count, operations, rest=rest, label=label)
    operations = (*attention, *moe_operations(m, precision, options, p))
    exchange = tuple(moe_exchange(m, precision, options, p))
    rest = (after, *moe_collectives(m, precision, options, p))
    return LayerWork(group.count, operations, exchange, rest, label)


def embedding(m: Architecture, precision: Precision, p: Pass) -> LayerWork:
    """Look-up of the new tokens; sharded by tp in memory."""
    width = precision.embedding_weight_bytes
    table = m.vocab * m.hidden * width / p.tp
    operation = Operation("embedding", "embedding", rows=p.new * m.hidden * width, resident=table, scale="whole")
    return LayerWork(1, (operation,), label="embedding")


def lm_head(m: Architecture, precision: Precision, options: Options, p: Pass) -> LayerWork:
    """Logits of every new token in decode, of the last one in prefill, gathered over the head's ranks."""
    counted = options.activation_traffic == "gemm"
    moved_in, moved_out = precision.lm_head_input_bytes * counted, precision.activation_bytes * counted
    width = p.tp if options.lm_head_tp is None else options.lm_head_tp
    tokens = p.new if p.decode else 1
    rows, columns = tokens * width / p.tp, m.vocab / width
    weights = columns * m.hidden * precision.lm_head_weight_bytes
    operation = Operation(
        "lm_head",
        "lm_head",
        flops=gemm_flops(rows, m.hidden, columns),
        weights=weights,
        activations=gemm_activations(rows, m.hidden, columns, moved_in, moved_out),
        resident=0.0 if m.tie_embeddings else weights,
        scale="whole",
    )
    logits = tokens * m.vocab * precision.activation_bytes
    g = collectives.members(width, p.domain)
    rest: list[Collective] = [ring_gather("logits_gather", "all_gather", width, g, logits, scale="whole")]
    if options.lm_head_tp is not None:
        b_in = precision.lm_head_input_bytes
        rest += wide_gathers("lm_head", p, width, tokens, m.hidden, b_in, precision.activation_bytes, scale="whole")
    return LayerWork(1, (operation,), rest=tuple(rest), label="lm_head")


def lumped_layer(m: LumpedModel, precision: Precision, p: Pass) -> LayerWork:
    """A lumped model is one kernel: all weights, the cache it is known to have, all-reduces if its width is known."""
    weights = m.n_parameters / p.tp * precision.dense_mlp_weight_bytes
    read = p.seq_len if p.decode else p.cached
    kernel = Operation(
        "parameters",
        "dense_mlp",
        flops=2 * p.new * m.n_parameters / p.tp,
        weights=weights,
        kv=(read + p.new) * lumped_kv_bytes_per_token(m, precision, p),
        resident=weights,
    )
    if m.hidden is None:
        return LayerWork(1, (kernel,), label="lumped")
    volume, times = p.new * m.hidden * precision.activation_bytes, 2.0 * m.n_layers
    return LayerWork(1, (kernel,), rest=(tp_all_reduce("all_reduces", p, volume, times),), label="lumped")


def lumped_kv_bytes_per_token(m: LumpedModel, precision: Precision, p: Pass) -> Num:
    """Cache bytes of one token on one GPU, 0 when the cache's shape is not known."""
    if m.n_kv_heads is None:
        return 0.0
    return 2 * m.n_layers * local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim * precision.kv_bytes


def weight_bytes(work: PassWork) -> Num:
    """Bytes of weights one GPU holds."""
    parts = (*work.layers, *work.outside)
    return sum(layer.count * operation.resident for layer in parts for operation in layer.operations)


def cache_bytes(model: AnyModel, precision: Precision, p: Pass) -> Num:
    """Cache bytes of one sequence on one GPU, all layers."""
    if isinstance(model, LumpedModel):
        return lumped_kv_bytes_per_token(model, precision, p) * p.context
    return sum(group.count * kv_bytes_per_sequence(model, group, precision, p) for group in model.groups)
