"""Dense MLP of one layer as operations, collectives and layout rules."""

from __future__ import annotations

from ..specs import Options, Precision
from .formulas import elementwise
from .formulas.gemm import gemm_activations, gemm_flops
from .operations import (
    Architecture,
    Collective,
    ForwardPass,
    LayoutRule,
    Num,
    Operation,
    module_tp_gathers,
    tp_all_reduce,
)
from .projections import small_op


def dense_operations(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Operation]:
    """Return the operations of a dense MLP between its norm and its residual."""
    width = module_tp(options.dense_tp, p)
    return gated_mlp("", "dense_mlp", "dense_mlp", m, m.intermediate, width, precision, options, p)


def dense_collectives(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Collective]:
    """Return the all-reduce after a dense MLP, and the gathers of a tensor-parallel degree of its own."""
    b_act = precision.activation_bytes
    return [
        tp_all_reduce("mlp_all_reduce", p, p.new * m.hidden * b_act),
        *dense_gathers(m, precision, options, p),
    ]


def dense_gathers(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> list[Collective]:
    """Return the gathers of a dense MLP with a tensor-parallel degree of its own."""
    b_in, b_act = precision.dense_mlp_input_bytes, precision.activation_bytes
    return gathers_of_module("dense_mlp", options.dense_tp, p, m, b_in, b_act)


def dense_rules(m: Architecture, options: Options, p: ForwardPass) -> list[LayoutRule]:
    """Return the layout rule of a dense MLP: its tensor-parallel degree divides its width."""
    return [LayoutRule("tp_width", ("tp",), m.intermediate % module_tp(options.dense_tp, p) != 0)]


def module_tp(degree: Num | None, p: ForwardPass) -> Num:
    """Return the tensor-parallel degree of a module: its own, else tp."""
    return p.tp if degree is None else degree


def gathers_of_module(
    name: str, degree: Num | None, p: ForwardPass, m: Architecture, b_in: Num, b_act: Num
) -> list[Collective]:
    """Return the gathers of a module with a tensor-parallel degree of its own, none where it has tp's."""
    return [] if degree is None else module_tp_gathers(name, p, degree, p.new, m.hidden, b_in, b_act)


def gated_mlp(
    prefix: str,
    kernel: str,
    weight_class: str,
    m: Architecture,
    intermediate: Num,
    width: Num,
    precision: Precision,
    options: Options,
    p: ForwardPass,
) -> list[Operation]:
    """Return the operations of an MLP split over `width` GPUs, for the tokens of width/tp attention ranks."""
    counted = options.activation_traffic == "gemm"
    b_in = getattr(precision, f"{weight_class}_input_bytes") * counted
    b_act = precision.activation_bytes * counted
    b_weight = getattr(precision, f"{weight_class}_weight_bytes")
    d, f, rows = m.hidden, intermediate / width, p.new * width / p.tp

    def linear(name: str, k: Num, n: Num, activations: Num, launches: int = 1) -> Operation:
        weights = k * n * b_weight
        return Operation(
            prefix + name,
            kernel,
            flops=gemm_flops(rows, k, n),
            weights=weights,
            activations=activations,
            resident_weights=weights,
            launches=launches,
        )

    gate = [linear("gate_proj", d, f, rows * f * b_act, launches=0)] if m.gated else []  # in up's GEMM
    flops, moves = elementwise.gating_flops(m.gated) * rows * f, elementwise.gating_moves(m.gated) * rows * f
    return [
        *gate,
        linear("up_proj", d, f, gemm_activations(rows, d, f, b_in, b_act)),
        *small_op(f"{prefix}gating", options, precision.activation_bytes, flops, moves, "mlp"),
        linear("down_proj", f, d, gemm_activations(rows, f, d, b_in, b_act)),
    ]
