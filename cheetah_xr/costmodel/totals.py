"""Totals of a forward pass: work of one GPU by cause, in float64 and exact where the inputs are whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..specs import Options
from .operations import ForwardPassWork, LayerWork, Num, SequenceCount
from .roofline import Rates, add, compute_class, is_zero

WORK_FIELDS = {
    "flops": ("flops",),
    "bytes_weights": ("weights", "rows"),
    "bytes_kv": ("kv",),
    "bytes_activations": ("activations",),
}
WIRE_FIELDS = {"bytes_link": "link", "bytes_nic": "nic"}


def priced(work: ForwardPassWork, options: Options) -> Iterator[tuple[LayerWork, Num]]:
    """Yield the layers that the option `include` names, and how many times the work of each is done."""
    if "layers" in options.include:
        for layer in work.layers:
            yield layer, layer.times * options.micro_batches
    for layer in work.outside:
        if layer.part in options.include:
            yield layer, layer.times


def work_total(name: str, work: ForwardPassWork, options: Options, sequence_counts: Mapping[SequenceCount, Num]) -> Num:
    """Return one of flops, bytes_weights, bytes_kv, bytes_activations: of one GPU in one forward pass."""
    total: Num = 0.0
    for layer, times in priced(work, options):
        by_count: dict[SequenceCount | None, Num] = {}
        for op in layer.operations:
            for cause in WORK_FIELDS[name]:
                per = None if cause == "weights" else op.per
                by_count[per] = add(by_count.get(per, 0.0), getattr(op, cause))
        for per, amount in by_count.items():
            if not is_zero(amount):
                total = total + times * amount * (sequence_counts[per] if per else 1)
    return total


def wire_total(name: str, work: ForwardPassWork, options: Options, sequence_counts: Mapping[SequenceCount, Num]) -> Num:
    """Return bytes_link or bytes_nic, sent by one GPU in one forward pass."""
    total: Num = 0.0
    for layer, times in priced(work, options):
        for c in (*layer.expert_all_to_all, *layer.other_collectives):
            total = total + times * getattr(c, WIRE_FIELDS[name]) * sequence_counts[c.per]
    return total


def peak_compute_time(
    work: ForwardPassWork, options: Options, sequence_counts: Mapping[SequenceCount, Num], rates: Rates
) -> Num:
    """Return the seconds the FLOPs take at the peak of each compute type: mfu is this over step_time."""
    total: Num = 0.0
    for layer, times in priced(work, options):
        for op in layer.operations:
            if not is_zero(op.flops):
                sequences = sequence_counts[op.per]
                total = total + times * op.flops * sequences / rates.peak[compute_class(op.kernel)]
    return total
