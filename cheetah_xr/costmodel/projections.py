"""Parts that attention and MLPs are made of: projections, rotary embedding, softmax, gates."""

from __future__ import annotations

from ..specs import Options, Precision
from .formulas import elementwise
from .formulas.gemm import gemm_activations, gemm_flops
from .operations import ForwardPass, Num, Operation, SequenceCount


def small_op(
    name: str,
    options: Options,
    b_act: Num,
    flops: Num,
    moves: Num,
    component: str,
    per: SequenceCount = "rank_micro_batch",
) -> list[Operation]:
    """Return an elementwise operation, counted as FLOPs or as traffic of `moves` elements, or not at all."""
    if options.small_ops == "none":
        return []
    amount = {"flops": flops} if options.small_ops == "flops" else {"activations": moves * b_act}
    return [Operation(name, "small_ops", launches=0, component=component, per=per, **amount)]


def rope(options: Options, precision: Precision, elements: Num) -> list[Operation]:
    """Return the rotary embedding of the new queries and keys."""
    flops, moves = elementwise.ROPE_FLOPS * elements, elementwise.ROPE_MOVES * elements
    return small_op("rope", options, precision.activation_bytes, flops, moves, "attn")


def softmax(options: Options, precision: Precision, scores: Num) -> list[Operation]:
    """Return the softmax over the scores; they never leave the chip."""
    return small_op("softmax", options, precision.activation_bytes, elementwise.SOFTMAX_FLOPS * scores, 0.0, "attn")


def gate(options: Options, precision: Precision, elements: Num) -> list[Operation]:
    """Return a gate on the output of attention or of a recurrent mixer."""
    flops, moves = elementwise.gating_flops(True) * elements, elementwise.gating_moves(True) * elements
    return small_op("output_gating", options, precision.activation_bytes, flops, moves, "attn")


def widths(precision: Precision, options: Options) -> tuple[Num, Num]:
    """Return the bytes of GEMM inputs and outputs of the attention class, 0 where activation traffic is not counted."""
    counted = options.activation_traffic == "gemm"
    return precision.attention_input_bytes * counted, precision.activation_bytes * counted


def linear(
    name: str, precision: Precision, p: ForwardPass, k: Num, n: Num, activations: Num, launches: int = 1
) -> Operation:
    """Return a projection of the new tokens with the attention class's bytes."""
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
    """Return a projection that reads its own input."""
    b_in, b_act = widths(precision, options)
    return linear(name, precision, p, k, n, gemm_activations(p.new, k, n, b_in, b_act), launches)
