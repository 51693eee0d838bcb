"""Mixture of experts of one layer as operations, collectives and layout rules: router, shared and routed experts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..specs import Options, Precision
from .formulas import collectives, elementwise, moe
from .formulas.gemm import gemm_activations, gemm_flops
from .mlp import gated_mlp, gathers_of_module, module_tp
from .operations import (
    Architecture,
    Collective,
    ForwardPass,
    LayoutRule,
    Num,
    Operation,
    replicated,
    ring_gather,
    tp_all_reduce,
)
from .projections import small_op


def moe_operations(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the operations of a mixture of experts: router, shared and routed experts."""
    shared: list[Operation] = []
    if has_shared(m):
        width, name = module_tp(options.shared_tp, p), "shared_experts"
        one = replace(p, new=p.new * some_shared(m))
        shared = [
            replace(op, launches=op.launches * some_shared(m))
            for op in gated_mlp("shared_", name, name, m, m.shared_intermediate, width, precision, options, one)
        ]
    before, after = _latent(m, precision, options, p)
    return [
        replicated("router", "router", p, m.hidden, m.n_experts, precision, options),
        *_shared_gate(m, precision, options, p),
        *shared,
        *before,
        *_routed(m, precision, options, p),
        *after,
    ]


def _shared_gate(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the gate of the shared experts: one more column of the router's GEMM."""
    if not m.shared_gate:
        return []
    weights = m.hidden * precision.router_weight_bytes
    flops = gemm_flops(p.new, m.hidden, 1)
    written = p.new * precision.activation_bytes * (options.activation_traffic == "gemm")
    return [
        Operation(
            "shared_gate",
            "router",
            flops=flops,
            weights=weights,
            activations=written,
            resident_weights=weights,
            launches=0,
        )
    ]


def _latent(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> tuple[list[Operation], ...]:
    """Return projections to and from the width the experts read."""
    if m.expert_hidden is None:
        return [], []
    kernel, d, width = "shared_experts", m.hidden, m.expert_hidden
    return (
        [replicated("latent_down", kernel, p, d, width, precision, options)],
        [replicated("latent_up", kernel, p, width, d, precision, options)],
    )


def expert_hidden(m: Architecture) -> Num:
    """Return the width of the tokens the experts read, and of what their all-to-all carries."""
    return m.hidden if m.expert_hidden is None else m.expert_hidden


def has_shared(m: Architecture) -> bool:
    """Return whether the model has shared experts (structure)."""
    return not (isinstance(m.shared_intermediate, int) and m.shared_intermediate == 0)


def some_shared(m: Architecture) -> Num:
    """Return 1 where there are shared experts, 0 where an axis says there are none."""
    return 1.0 * np.greater(m.shared_intermediate, 0)


def _routed(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the routed experts of one rank; amounts per sequence of the instance, since tokens come from all of it."""
    counted = options.activation_traffic == "gemm"
    b_in, b_act = precision.experts_input_bytes * counted, precision.activation_bytes * counted
    slots = m.n_experts + options.redundant_experts
    local = slots / p.ep
    unused = moe.unused_probability(p.instance_tokens, m.top_k, slots)
    if options.expert_load == "mean":
        distinct = moe.distinct_mean(local, unused)
    else:
        distinct = moe.distinct_busiest(local, unused, p.ep)
    distinct = distinct * options.distinct_factor
    rows = p.new * m.top_k / p.ep * options.imbalance
    d, f = expert_hidden(m), m.expert_intermediate / p.etp

    def linear(name: str, k: Num, n: Num, activations: Num, launches: int = 1) -> Operation:
        one = k * n * precision.experts_weight_bytes
        return Operation(
            name,
            "routed_experts",
            flops=gemm_flops(rows, k, n),
            weights=distinct * one,
            activations=activations,
            resident_weights=local * one,
            launches=launches,
            per="instance_micro_batch",
        )

    gate = [linear("expert_gate_proj", d, f, rows * f * b_act, launches=0)] if m.gated else []
    flops, moves = elementwise.gating_flops(m.gated) * rows * f, elementwise.gating_moves(m.gated) * rows * f
    return [
        *gate,
        linear("expert_up_proj", d, f, gemm_activations(rows, d, f, b_in, b_act)),
        *small_op(
            "expert_gating", options, precision.activation_bytes, flops, moves, "mlp", per="instance_micro_batch"
        ),
        linear("expert_down_proj", f, d, gemm_activations(rows, f, d, b_in, b_act)),
    ]


def expert_all_to_all(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Collective]:
    """Return dispatch and combine among expert-parallel ranks, and the gathers inside each expert's GPUs."""
    if options.expert_comm == "all_reduce":
        return []
    g = collectives.members(p.ep, p.domain, p.etp)
    one_copy = p.new / p.tp * expert_hidden(m) * options.imbalance
    arriving = p.new * m.top_k / p.ep * options.imbalance * expert_hidden(m)
    etp_g = collectives.members(p.etp, p.domain)
    used = 1.0 * (p.ep > 1)
    messages = []
    for name, width in (("dispatch", precision.experts_input_bytes), ("combine", precision.activation_bytes)):
        link, nic = _expert_wire(m, options, p, g, one_copy * width * used)
        messages.append(Collective(name, "all_to_all", p.ep, g, link, nic, used, pipelined=True))
    for name, kind, width in (
        ("expert_gather", "all_gather", precision.experts_input_bytes),
        ("expert_scatter", "reduce_scatter", precision.activation_bytes),
    ):
        messages.append(ring_gather(name, kind, p.etp, etp_g, arriving * width, used=used, per="instance_micro_batch"))
    return messages


def _expert_wire(m: Architecture, options: Options, p: ForwardPass, g: Num, one_copy: Num) -> tuple[Num, Num]:
    """Return (link, NIC) bytes per sequence of an all-to-all; `one_copy` is one copy of every token."""
    copies = options.dispatch_copies
    if copies == "auto":
        copies = "expert" if p.decode else "node"
    if copies == "expert":
        return collectives.all_to_all(one_copy * m.top_k, p.ep, g)
    ranks = moe.distinct_ranks(p.ep, m.top_k)
    if copies == "rank":
        return collectives.all_to_all(one_copy * ranks, p.ep, g)
    nodes = p.ep / g
    reachable = nodes if options.max_nodes is None else collectives.members(nodes, options.max_nodes)
    distinct = moe.distinct_nodes(m.n_experts, m.top_k, nodes, reachable)
    return collectives.node_forwarding(one_copy, g, ranks, distinct, nodes)


def moe_collectives(
    m: Architecture, precision: Precision, options: Options, p: ForwardPass, *, dense_too: bool
) -> list[Collective]:
    """Return the collectives of a mixture of experts, with `dense_too` those of a layer that also has a dense MLP."""
    b_in, b_act, d = precision.experts_input_bytes, precision.activation_bytes, expert_hidden(m)
    n, volume, whole = p.n_gpus, p.new * d * b_act, p.new * m.hidden * b_act
    n_g = collectives.members(n, p.domain)
    parallel, alone = 1.0 * (p.ep > 1), 1.0 * (p.ep == 1)
    together, apart = alone * (p.dp == 1), alone * (p.dp > 1)
    dp_g, tp_g = collectives.members(p.dp, p.domain, p.tp), collectives.members(p.tp, p.domain)
    layer_collectives = [
        tp_all_reduce("mlp_all_reduce", p, whole, together),
        ring_gather("token_gather", "all_gather", p.dp, dp_g, p.new * d * b_in, used=apart, per="instance_micro_batch"),
        ring_gather("result_scatter", "reduce_scatter", n, n_g, volume, used=apart, per="instance_micro_batch"),
        ring_gather("result_gather", "all_gather", p.tp, tp_g, volume, used=apart),
    ]
    if options.expert_comm == "all_reduce":
        link, nic = collectives.all_reduce(whole * parallel, n, n_g)
        layer_collectives.append(Collective("expert_all_reduce", "all_reduce", n, n_g, link, nic, parallel))
    elif dense_too or has_shared(m):
        used = parallel if dense_too else parallel * some_shared(m)
        layer_collectives.append(tp_all_reduce("shared_all_reduce", p, whole, used))
    if has_shared(m):
        one = replace(p, new=p.new * some_shared(m))
        layer_collectives += gathers_of_module(
            "shared_experts", options.shared_tp, one, m, precision.shared_experts_input_bytes, b_act
        )
    return layer_collectives


def moe_rules(m: Architecture, options: Options, p: ForwardPass) -> list[LayoutRule]:
    """Return what routed and shared experts ask of the layout."""
    slots = m.n_experts + options.redundant_experts
    rules = [
        LayoutRule("tp_width", ("tp",), m.shared_intermediate % module_tp(options.shared_tp, p) != 0),
        LayoutRule("ep_layout", ("ep",), slots % p.ep != 0),
        LayoutRule("etp_width", ("tp", "dp", "ep"), m.expert_intermediate % p.etp != 0),
        LayoutRule("top_k_beyond_experts", (), np.greater(m.top_k, m.n_experts)),
    ]
    if options.expert_comm == "all_reduce":
        rules.append(LayoutRule("expert_comm_needs_dp1", ("dp", "ep"), (p.ep > 1) & (p.dp > 1)))
    return rules
