"""One tile of a grid: from aligned inputs to the arrays of every requested variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..costmodel.capacity import Capacity, memory
from ..costmodel.formulas import Num
from ..costmodel.formulas.capacity import shortfall
from ..costmodel.operations import OUTSIDE, Collective, ForwardPass, ForwardPassWork, SequenceCount
from ..costmodel.roofline import (
    CollectiveSeconds,
    KernelSeconds,
    Rates,
    collective_seconds,
    compute_class,
    is_zero,
    kernel_seconds,
    launch_seconds,
)
from ..costmodel.speculative import forward_pass_work
from ..costmodel.totals import WIRE_FIELDS, WORK_FIELDS, peak_compute_time, priced, wire_total, work_total
from ..specs import GEMM_CLASSES, AnyModel, Efficiency, Options, Precision
from .dims import BATCH, EFFICIENCY, GPU, MODEL, PARALLEL, PHASE, PRECISION, SEQ_LEN
from .grid import Grid
from .lazy import Value, apply
from .step_time import PARTS, Attribute, Combiner, Series, bottleneck
from .validity import Condition, condition, hardware_conditions, layout_conditions

Inputs = Mapping[str, Any]

MAX_CUDA_GRAPH_TOKENS = 512
"""Most tokens of one attention rank whose forward passes replay CUDA graphs (vLLM, ``max_cudagraph_capture_size``)."""


@dataclass(frozen=True)
class Case:
    """Everything one pass needs: records with arrays in place of numbers, the pass, its work, rates and
    counts of sequences."""

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
    """Numbers of a record among the inputs."""
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
    """Unknown rates become infinite: no time is wrong because of them, the status says they are needed."""
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


def _unknown(inputs: Inputs, name: str) -> Num:
    return np.isnan(inputs[f"gpu.{name}_bandwidth"])


def _no_link(inputs: Inputs) -> Num:
    return _unknown(inputs, "link") | np.isnan(inputs["gpu.link_domain"])


def _no_peak(inputs: Inputs, work: ForwardPassWork) -> Num:
    """Where the precision multiplies in a type the accelerator has no peak for.

    That does not depend on lengths: a number of the inputs that happens to be zero is no absence, alone as on an axis.
    """
    operations = [op for layer in work.parts for op in layer.operations]
    classes = {
        compute_class(op.kernel) for op in operations if isinstance(op.flops, np.generic) or not is_zero(op.flops)
    }
    missing: Num = False
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


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of one kind of layer, or of embedding or LM head."""

    kernels: tuple[KernelSeconds, ...]
    expert_all_to_all: tuple[CollectiveSeconds, ...]
    other_collectives: tuple[CollectiveSeconds, ...]
    overlap_other: Num


@dataclass(frozen=True)
class ForwardPassSeconds:
    """Seconds of a pass before they are combined, each on the axes it depends on."""

    stages: tuple[StageSeconds, ...]
    overhead: tuple[Num, ...]
    overlap_ep: Num
    granularity: str


def forward_pass_seconds(case: Case) -> ForwardPassSeconds:
    """Divide the work of a case by its rates."""
    options, efficiency, rates = case.options, case.efficiency, case.rates

    def seconds(collectives: Sequence[Collective], times: Num) -> tuple[CollectiveSeconds, ...]:
        return tuple(collective_seconds(c, rates, efficiency, options.hierarchy, times) for c in collectives)

    stages = tuple(
        StageSeconds(
            tuple(kernel_seconds(layer, rates, efficiency, times)),
            seconds(layer.expert_all_to_all, times),
            seconds(layer.other_collectives, times),
            0.0 if layer.part in OUTSIDE else options.overlap_tp,
        )
        for layer, times in priced(case.work, options)
    )
    layers = case.work.n_layers if "layers" in options.include else 0
    per_pass = layers * efficiency.tau_layer + case.work.n_forward_passes * efficiency.tau_global
    launched = sum(launch_seconds(layer, efficiency, times) for layer, times in priced(case.work, options))
    overhead = (
        per_pass,
        launched,
        eager_prefill_seconds(case),
        efficiency.tau_batch * case.batch,
        efficiency.tau_sequence * case.sequence_counts["rank_batch"],
    )
    return ForwardPassSeconds(stages, overhead, options.overlap_ep, options.granularity)


def eager_prefill_seconds(case: Case) -> Num:
    """Return seconds of CPU launch overhead in layers of an eager prefill: none up to :data:`MAX_CUDA_GRAPH_TOKENS`."""
    layers = case.work.n_eager_prefill_layers if "layers" in case.options.include else 0
    cost = layers * case.efficiency.tau_layer_prefill
    if is_zero(cost):
        return 0.0
    launched = apply(np.greater, apply(np.divide, case.p.instance_tokens, case.p.dp), MAX_CUDA_GRAPH_TOKENS)
    return apply(np.multiply, launched, cost)


def in_series(seconds: ForwardPassSeconds, combiner: Combiner) -> Series:
    """The whole pass: overheads, layers without overlap, layers in which something hides behind something else."""
    whole = Series()
    for overhead in seconds.overhead:
        whole.constant("overhead", overhead)
    for stage in seconds.stages:
        overlapped = not is_zero(stage.overlap_other)
        if not overlapped:
            whole.collectives(stage.other_collectives)
        if not (stage.expert_all_to_all or overlapped):
            combiner.kernels(whole, stage.kernels, seconds.granularity)
            continue
        inner = Series()
        combiner.kernels(inner, stage.kernels, seconds.granularity)
        if stage.expert_all_to_all:
            inner = combiner.mix(inner, stage.expert_all_to_all, seconds.overlap_ep)
        if overlapped:
            inner = combiner.mix(inner, stage.other_collectives, stage.overlap_other)
        whole.mixes += inner.mixes
    return whole


def time_values(case: Case, names: Sequence[str], dtype: np.dtype[Any]) -> dict[str, Value]:
    """step_time, its parts and the bottleneck on their natural axes, not masked; those that were asked for.

    Parameters
    ----------
    case
        The pass.
    names
        Variables wanted.
    dtype
        Number type of times.
    """
    parts = any(n.startswith("time_") for n in names)
    attribute: Attribute = "parts" if parts else "bottleneck" if "bottleneck" in names else ""
    combiner = Combiner(case.sequence_counts, dtype, attribute)
    found = combiner.total(in_series(forward_pass_seconds(case), combiner))
    values = {"step_time": found["time"]} | {f"time_{part}": found.get(part, np.zeros((), dtype)) for part in PARTS}
    if "bottleneck" in names:
        values["bottleneck"] = bottleneck(found)
    return {name: values[name] for name in names if name in values}


def work_values(case: Case, names: Sequence[str]) -> dict[str, Any]:
    """Work and capacity variables on their natural axes, not masked."""
    capacity = case.capacity
    values: dict[str, Any] = {
        "weight_bytes": capacity.weights,
        "kv_bytes_per_sequence": capacity.per_sequence,
        "max_batch": case.p.dp * capacity.sequences,
    }
    for name in names:
        if name in WORK_FIELDS:
            values[name] = work_total(name, case.work, case.options, case.sequence_counts)
        elif name in WIRE_FIELDS:
            values[name] = wire_total(name, case.work, case.options, case.sequence_counts)
        elif name == "peak_compute_time":
            values[name] = peak_compute_time(case.work, case.options, case.sequence_counts, case.rates)
        elif name == "memory_shortfall":
            values[name] = shortfall(capacity.budget, capacity.weights, case.requested, capacity.per_sequence)
    return values
