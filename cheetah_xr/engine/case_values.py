"""From a case to the arrays of every requested variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costmodel.formulas import Num
from ..costmodel.formulas.capacity import shortfall
from ..costmodel.operations import OUTSIDE
from ..costmodel.roofline import CollectiveRow, CollectiveSeconds, KernelSeconds, is_zero
from ..costmodel.totals import WIRE_FIELDS, WORK_FIELDS, peak_compute_time, wire_total, work_total
from .case import Case
from .cost_rows import OverheadRow, cost_rows, runs_eagerly
from .lazy import Value, apply
from .step_time import PARTS, Attribute, Combiner, Series, bottleneck


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of one kind of layer, or of embedding or LM head."""

    kernels: tuple[KernelSeconds, ...]
    expert_all_to_all: tuple[CollectiveSeconds, ...]
    other_collectives: tuple[CollectiveSeconds, ...]
    overlap_other: Num


@dataclass(frozen=True)
class ForwardPassSeconds:
    """Seconds of a forward pass before they are combined, each on the axes it depends on."""

    stages: tuple[StageSeconds, ...]
    overhead: tuple[Num, ...]
    overlap_ep: Num
    granularity: str


def forward_pass_seconds(case: Case) -> ForwardPassSeconds:
    """Divide the work of a case by its rates."""
    options, efficiency = case.options, case.efficiency
    rows = cost_rows(case)

    def seconds(collectives: Sequence[CollectiveRow]) -> tuple[CollectiveSeconds, ...]:
        return tuple(row.seconds(efficiency) for row in collectives)

    stages = tuple(
        StageSeconds(
            tuple(row.seconds(efficiency) for row in layer.kernels),
            seconds(layer.expert_all_to_all),
            seconds(layer.other_collectives),
            0.0 if layer.part in OUTSIDE else options.overlap_tp,
        )
        for layer in rows.layers
    )
    launched = sum(layer.launch_seconds(efficiency) for layer in rows.layers)
    of_layers, of_passes, *others = (overhead_seconds(case, row) for row in rows.overheads)
    overhead = (of_layers + of_passes, launched, *others)
    return ForwardPassSeconds(stages, overhead, options.overlap_ep, options.granularity)


def overhead_seconds(case: Case, row: OverheadRow) -> Num:
    """Return the seconds of a CPU launch or scheduling overhead."""
    each = getattr(case.efficiency, row.field)
    if row.paid_by is not None:
        each = each * row.paid_by / row.count
    cost = each * row.count
    if not row.eager_only:
        return cost
    return 0.0 if is_zero(cost) else apply(np.multiply, runs_eagerly(case), cost)


def in_series(seconds: ForwardPassSeconds, combiner: Combiner) -> Series:
    """Return a forward pass as a series: overheads, layers without overlap, layers with overlapped collectives."""
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
    """Return the requested ones of step_time, its parts and the bottleneck on their natural axes, not masked.

    Parameters
    ----------
    case
        The forward pass.
    names
        Requested variables.
    dtype
        Dtype of times.
    """
    parts = any(n.startswith("time_") for n in names)
    attribute: Attribute = "parts" if parts else "bottleneck" if "bottleneck" in names else ""
    combiner = Combiner(case.sequence_counts, dtype, attribute)
    times_by_part = combiner.total(in_series(forward_pass_seconds(case), combiner))
    values = {"step_time": times_by_part["time"]} | {
        f"time_{part}": times_by_part.get(part, np.zeros((), dtype)) for part in PARTS
    }
    if "bottleneck" in names:
        values["bottleneck"] = bottleneck(times_by_part)
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
