"""Case: one tile of a grid, from aligned inputs to records, work, rates and capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..costmodel.capacity import Capacity, memory
from ..costmodel.operations import Flags, ForwardPass, ForwardPassWork, Num, SequenceCount
from ..costmodel.roofline import Rates, compute_class, is_zero
from ..costmodel.speculative import forward_pass_work
from ..specs import GEMM_CLASSES, AnyModel, Efficiency, Options, Precision
from .dims import BATCH, EFFICIENCY, GPU, MODEL, PARALLEL, PHASE, PRECISION, SEQ_LEN
from .grid import Grid
from .lazy import apply
from .validity import Condition, condition, hardware_conditions, layout_conditions

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """Hold what a forward pass needs: records with arrays in place of numbers, its work, rates, counts of sequences.

    `scheduled` are, in a mixed batch, the decoding requests of the instance and of one attention rank, which pay
    ``tau_batch`` and ``tau_sequence``; None: those of `batch`.
    """

    model: AnyModel
    precision: Precision
    efficiency: Efficiency
    options: Options
    p: ForwardPass
    batch: Num
    work: ForwardPassWork
    rates: Rates
    sequence_counts: Mapping[SequenceCount, Num]
    capacity: Capacity
    requested: Num
    conditions: Sequence[Condition]
    scheduled: tuple[Num, Num] | None = None


def make_case(grid: Grid, inputs: Inputs, model: AnyModel, phase: str) -> Case:
    """Put the arrays of a tile into the records and count the work."""
    model = model.with_numbers(_taken(inputs, "model"))
    options = grid.options.with_numbers(_taken(inputs, "options"))
    precision = _record(grid, inputs, PRECISION)
    efficiency = _record(grid, inputs, EFFICIENCY)
    batch, rates = inputs[BATCH], _rates(inputs)
    p = _forward_pass(inputs, options, phase == "decode", batch)
    work = forward_pass_work(model, precision, options, p)
    capacity = memory(model, precision, options, p, work, inputs["gpu.memory_bytes"])
    requested = np.ceil(batch / p.dp)
    conditions = [
        *layout_conditions(model, options, p, batch),
        *hardware_conditions(work, options.include, _no_peak(inputs, work), _no_link(inputs), _unknown(inputs, "nic")),
        *_memory_conditions(options, requested, capacity),
    ]
    if options.clips:
        fits = np.minimum(batch, p.dp * capacity.sequences)
        batch = np.where(capacity.sequences < 1, batch, fits)  # what cannot run at all keeps the batch it was asked for
        p = replace(p, instance_tokens=apply(np.multiply, batch / options.micro_batches, p.new))
        work = forward_pass_work(model, precision, options, p)
    sequence_counts = _sequence_counts(options, p, batch)
    return Case(
        model,
        precision,
        efficiency,
        options,
        p,
        batch,
        work,
        rates,
        sequence_counts,
        capacity,
        requested,
        tuple(conditions),
    )


def _taken(inputs: Inputs, record: str) -> dict[str, Any]:
    """Return the numbers of a record among the inputs."""
    start = f"{record}."
    return {k[len(start) :]: v for k, v in inputs.items() if k.startswith(start)}


def _record(grid: Grid, inputs: Inputs, name: str) -> Any:
    return grid.records[name][0].with_numbers(_taken(inputs, name))


def _forward_pass(inputs: Inputs, options: Options, decode: bool, batch: Num) -> ForwardPass:
    seq_len, cached = inputs[SEQ_LEN], 1.0 * options.cached_tokens
    new = 1.0 + options.draft_tokens if decode else seq_len
    domain = inputs["gpu.link_domain"]
    return ForwardPass(
        decode=decode,
        seq_len=seq_len,
        cached=cached,
        new=new,
        before=seq_len - 1 if decode else cached,
        instance_tokens=apply(np.multiply, batch / options.micro_batches, new),
        domain=np.where(np.isnan(domain), np.inf, domain)[()],
        **{degree: inputs[degree] for degree in PARALLEL},
    )


def _sequence_counts(options: Options, p: ForwardPass, batch: Num) -> dict[SequenceCount, Num]:
    """Count the sequences that amounts of operations are per: :data:`cheetah_xr.costmodel.operations.SequenceCount`."""
    m = options.micro_batches
    return {
        "rank_micro_batch": np.ceil(batch / (p.dp * m)),
        "instance_micro_batch": batch / m,
        "rank_batch": np.ceil(batch / p.dp),
    }


def _known(values: Num) -> Num:
    """Return rates with infinity in place of unknown ones: the status says where they are needed."""
    return np.where(np.isnan(values), np.inf, values)[()]


def _rates(inputs: Inputs) -> Rates:
    names = (*GEMM_CLASSES, "attn_core", "indexer", "small_ops")
    return Rates(
        peak={name: _known(inputs[f"peak.{name}"]) for name in names},
        hbm_bandwidth=inputs["gpu.hbm_bandwidth"],
        link_bandwidth=_known(inputs["gpu.link_bandwidth"]),
        link_pairwise=_known(inputs["gpu.link_pairwise"]),
        nic_bandwidth=_known(inputs["gpu.nic_bandwidth"]),
    )


def _unknown(inputs: Inputs, name: str) -> Flags:
    unknown: Flags = np.isnan(inputs[f"gpu.{name}_bandwidth"])
    return unknown


def _no_link(inputs: Inputs) -> Flags:
    unknown: Flags = _unknown(inputs, "link") | np.isnan(inputs["gpu.link_domain"])
    return unknown


def _no_peak(inputs: Inputs, work: ForwardPassWork) -> Flags:
    """Return where the precision multiplies in a type the accelerator has no peak for.

    That does not depend on lengths: a number of the inputs that happens to be zero is no absence, alone as on an axis.
    """
    operations = [op for layer in work.parts for op in layer.operations]
    classes = {
        compute_class(op.kernel) for op in operations if isinstance(op.flops, np.generic) or not is_zero(op.flops)
    }
    missing: Flags = False
    for name in sorted(classes):
        missing = missing | np.isnan(inputs[f"peak.{name}"])
    return missing


def _memory_conditions(options: Options, requested: Num, capacity: Capacity) -> list[Condition]:
    inputs = (MODEL, GPU, PRECISION, PHASE, *PARALLEL, SEQ_LEN, BATCH)
    if not options.counts_memory:
        return []
    if options.clips:
        return [
            condition("infeasible_memory", inputs, capacity.sequences < 1),
            condition("clipped", inputs, requested > capacity.sequences),
        ]
    return [condition("infeasible_memory", inputs, requested > capacity.sequences)]
