"""The cost model on one page: which operations and collectives, in which order, for which layer groups.

Definitions, symbols and sources: docs/explanation/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..specs import AnyModel, LayerGroup, Options, ParameterCountModel, Precision
from .attention_kinds import ATTENTION_KINDS
from .formulas import collectives, elementwise
from .formulas.gemm import gemm_activations, gemm_flops
from .kv_cache import parameter_count_bytes_per_token
from .mlp import dense_collectives, dense_gathers, dense_operations, dense_rules
from .moe import expert_all_to_all, moe_collectives, moe_operations, moe_rules
from .operations import (
    Architecture,
    Collective,
    ForwardPass,
    ForwardPassWork,
    LayerWork,
    LayoutRule,
    Operation,
    kv_heads_rule,
    module_tp_gathers,
    replicated,
    ring_gather,
    tp_all_reduce,
)
from .projections import small_op

DENSE = ("dense", "moe+dense")
"""MLPs with a dense part."""

NO_WORK = ("count", "sinks", "hash_routing", "norms_per_layer", "extra_parameters")
"""Fields of a layer group that change no operation."""


def model_work(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> ForwardPassWork:
    """Work of one forward pass of one model on one GPU.

    Parameters
    ----------
    model, precision, options
        Records whose numbers may be arrays that broadcast against one another.
    p
        The forward pass: phase, tokens, layout.

    Returns
    -------
    ForwardPassWork
        Layers first (`options.micro_batches` is not applied), then embedding and LM head.
    """
    if isinstance(model, ParameterCountModel):
        return ForwardPassWork((parameter_count_layer(model, precision, p),), (), model.n_layers)
    layers = tuple(layer_work(model.of(group), group, precision, options, p) for group in alike(model.groups))
    outside = (embedding(model, precision, p), lm_head(model, precision, options, p))
    return ForwardPassWork(layers, outside, model.n_layers)


def alike(groups: tuple[LayerGroup, ...]) -> list[LayerGroup]:
    """Return the groups that do the same work, counted together: those that differ in parameters without work only."""
    merged: dict[tuple[object, ...], LayerGroup] = {}
    for group in groups:
        fields = {name: getattr(group, name) for name in type(group).model_fields if name not in NO_WORK}
        # Arrays in place of numbers are the same when they are the same object.
        key = tuple((name, v if isinstance(v, Hashable) else id(v)) for name, v in fields.items())
        same = merged.get(key)
        merged[key] = group if same is None else same.model_copy(update={"count": same.count + group.count})
    return list(merged.values())


def layer_work(m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass) -> LayerWork:
    """Work of one layer of a group; `m` has the group's own widths."""
    operations: list[Operation] = []
    other_collectives: list[Collective] = []
    alone = not (m.parallel_blocks and group.attention != "none" and group.mlp != "none")
    if group.attention != "none":
        body = ATTENTION_KINDS[group.attention].operations(m, group, precision, options, p)
        operations += block("attn", body, m, precision, options, p, residual=alone)
        if alone:
            other_collectives.append(tp_all_reduce("attn_all_reduce", p, p.new * m.hidden * precision.activation_bytes))
    if group.mlp != "none":
        body = mlp_operations(m, group, precision, options, p)
        operations += block("mlp", body, m, precision, options, p, norm=alone)
    expert_collectives = tuple(expert_all_to_all(m, precision, options, p)) if group.is_routed else ()
    other_collectives += mlp_collectives(m, group, precision, options, p)
    return LayerWork(group.count, tuple(operations), expert_collectives, tuple(other_collectives), group.label)


def mlp_operations(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass
) -> list[Operation]:
    """Return the operations of an MLP between its norm and its residual: dense, routed, or both side by side."""
    dense = dense_operations(m, precision, options, p) if group.mlp in DENSE else []
    return [*dense, *moe_operations(m, precision, options, p)] if group.is_routed else dense


def mlp_collectives(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass
) -> list[Collective]:
    """Return the collectives of an MLP other than the all-to-all among experts."""
    if not group.is_routed:
        return [] if group.mlp == "none" else dense_collectives(m, precision, options, p)
    dense_too = group.mlp == "moe+dense"
    layer_collectives = moe_collectives(m, precision, options, p, dense_too=dense_too)
    if dense_too:
        layer_collectives += dense_gathers(m, precision, options, p)
    return layer_collectives


def group_rules(m: Architecture, group: LayerGroup, options: Options, p: ForwardPass) -> list[LayoutRule]:
    """Return what attention and dense MLP of one group ask of the layout; `m` has the group's own widths."""
    rules = ATTENTION_KINDS[group.attention].rules(m, group, p)
    return [*rules, *dense_rules(m, options, p)] if group.mlp in DENSE else rules


def layout_rules(model: AnyModel, options: Options, p: ForwardPass) -> list[LayoutRule]:
    """Return what a model, or a draft model, asks of the layout."""
    if isinstance(model, ParameterCountModel):
        return [] if model.n_kv_heads is None else [kv_heads_rule(model.n_kv_heads, p)]
    rules = [rule for group in model.groups for rule in group_rules(model.of(group), group, options, p)]
    return [*rules, *moe_rules(model, options, p)] if model.is_moe else rules


def block(
    component: str,
    body: list[Operation],
    m: Architecture,
    precision: Precision,
    options: Options,
    p: ForwardPass,
    *,
    norm: bool = True,
    residual: bool = True,
) -> list[Operation]:
    """Return attention or MLP with the norm before it, the residual after it and the mixing of residual streams."""
    b_act, elements, streams = precision.activation_bytes, p.new * m.hidden, m.residual_streams
    operations: list[Operation] = []
    if has_streams(m):
        mixed = 1.0 * (streams > 1)  # on an axis, one stream is none
        k, n = streams * m.hidden * mixed, (2 + streams) * streams * mixed
        operations.append(replicated("stream_mixing", "router", p, k, n, precision, options, component, launches=mixed))
    if norm:
        flops, moves = elementwise.NORM_FLOPS * elements, elementwise.NORM_MOVES * elements
        operations += small_op(f"{component}_norm", options, b_act, flops, moves, component)
    operations += body
    if residual:
        added = elements * streams
        flops, moves = elementwise.RESIDUAL_FLOPS * added, elementwise.RESIDUAL_MOVES * added
        operations += small_op(f"{component}_residual", options, b_act, flops, moves, component)
    return operations


def has_streams(m: Architecture) -> bool:
    """Return whether there are parallel residual streams (structure)."""
    return not (isinstance(m.residual_streams, int) and m.residual_streams == 1)


def embedding(m: Architecture, precision: Precision, p: ForwardPass) -> LayerWork:
    """Return the look-up of the new tokens in a table sharded by tp, and the weights of a vision tower."""
    width = precision.embedding_weight_bytes
    table = m.vocab * m.hidden * width / p.tp
    rows = p.new * m.hidden * width
    operations = [Operation("embedding", "embedding", rows=rows, resident_weights=table, launches=0, per="rank_batch")]
    if not (isinstance(m.vision_parameters, int) and m.vision_parameters == 0):
        tower = m.vision_parameters * width / p.tp
        operations.append(Operation("vision_tower", "embedding", resident_weights=tower, launches=0, per="rank_batch"))
    return LayerWork(1, tuple(operations), label="embedding", part="embedding")


def lm_head(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> LayerWork:
    """Return the logits of every new token in decode, of the last one in prefill, gathered over the head's ranks."""
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
        resident_weights=0.0 if m.tie_embeddings else weights,
        launches=0,
        per="rank_batch",
    )
    logits = tokens * m.vocab * precision.activation_bytes
    g = collectives.members(width, p.domain)
    other_collectives: list[Collective] = [
        ring_gather("logits_gather", "all_gather", width, g, logits, per="rank_batch")
    ]
    if options.lm_head_tp is not None:
        b_in = precision.lm_head_input_bytes
        other_collectives += module_tp_gathers(
            "lm_head", p, width, tokens, m.hidden, b_in, precision.activation_bytes, per="rank_batch"
        )
    return LayerWork(1, (operation,), other_collectives=tuple(other_collectives), label="lm_head", part="lm_head")


def parameter_count_layer(m: ParameterCountModel, precision: Precision, p: ForwardPass) -> LayerWork:
    """Count a parameter-count model as one kernel: all weights, its cache and its all-reduces where they are known."""
    weights = m.n_parameters / p.tp * precision.dense_mlp_weight_bytes
    read = p.seq_len if p.decode else p.cached
    kernel = Operation(
        "parameters",
        "dense_mlp",
        flops=2 * p.new * m.n_parameters / p.tp,
        weights=weights,
        kv=(read + p.new) * parameter_count_bytes_per_token(m, precision, p),
        resident_weights=weights,
    )
    if m.hidden is None:
        return LayerWork(1, (kernel,), label="parameter-count")
    volume, times = p.new * m.hidden * precision.activation_bytes, 2.0 * m.n_layers
    return LayerWork(
        1, (kernel,), other_collectives=(tp_all_reduce("all_reduces", p, volume, times),), label="parameter-count"
    )
