"""Roofline: work of kernels, launches and collectives with the peak rates of a GPU, and the seconds it takes.

A row says what is done, how often, at which peak rates, and which fields of the efficiency record these are multiplied
by or the time of which is paid. :func:`layer_rows` is the only place that lists them: the engine divides rows by the
efficiencies of a grid, a calibration fits the efficiencies to many rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..specs import LAUNCHED, Efficiency
from .formulas import collectives
from .formulas.roofline import seconds
from .operations import WEIGHT_CLASS, Collective, LayerWork, Num, Operation, SequenceCount

NO_FIXED_WORK = frozenset({"attn_core", "indexer", "embedding", "small_ops"})
"""Kernels that read nothing but what grows with the number of sequences."""

MESSAGE_FIELD = "latency_message"
"""Field of the efficiency record with the time of one message of a collective."""


@dataclass(frozen=True)
class Rates:
    """Peak rates of one GPU, FLOP/s by kernel and B/s; an unknown rate is infinite here and masked by its status."""

    peak: dict[str, Num]
    hbm_bandwidth: Num
    link_bandwidth: Num
    link_pairwise: Num
    nic_bandwidth: Num


@dataclass
class KernelSeconds:
    """Seconds of one kernel of one layer: `weights` fixed, the others per sequence of the count that `per` names."""

    kernel: str
    part: str
    per: SequenceCount
    weights: Num = 0.0
    rows: Num = 0.0
    kv: Num = 0.0
    activations: Num = 0.0
    compute: Num = 0.0


@dataclass(frozen=True)
class CollectiveSeconds:
    """Seconds of one collective: `sent` per sequence of the count that `per` names, `latency` once."""

    per: SequenceCount
    sent: Num
    latency: Num


@dataclass
class KernelWork:
    """Work of one kernel of one layer, summed over its operations."""

    flops: Num = 0.0
    weights: Num = 0.0
    rows: Num = 0.0
    kv: Num = 0.0
    activations: Num = 0.0
    operations: list[str] = field(default_factory=list)


def is_zero(value: Num) -> bool:
    """Return whether a quantity is absent by structure (a plain 0), not by the value of an array."""
    return isinstance(value, (int, float)) and value == 0


def add(a: Num, b: Num) -> Num:
    """Return a sum that keeps a structural zero a structural zero."""
    if is_zero(a):
        return b
    return a if is_zero(b) else a + b


def by_kernel(operations: Iterable[Operation]) -> dict[tuple[str, str, SequenceCount], KernelWork]:
    """Work per (kernel, component, sequence count), in order of first appearance."""
    work_of: dict[tuple[str, str, SequenceCount], KernelWork] = {}
    for op in operations:
        total = work_of.setdefault((op.kernel, op.part, op.per), KernelWork())
        total.flops = add(total.flops, op.flops)
        total.weights = add(total.weights, op.weights)
        total.rows = add(total.rows, op.rows)
        total.kv = add(total.kv, op.kv)
        total.activations = add(total.activations, op.activations)
        total.operations.append(op.name)
    return work_of


def compute_class(kernel: str) -> str:
    """Return the key of a kernel's peak: its weight class, "attn_core", or "small_ops"."""
    return WEIGHT_CLASS.get(kernel, kernel)


@dataclass(slots=True)
class KernelRow:
    """Work of one kernel of one layer that is done `times` times, with the peak rates it is done at.

    Memory is read at `bandwidth` times `memory_field` of the efficiency record, FLOPs done at `peak` times
    `compute_field`; a kernel without FLOPs has neither.
    """

    kernel: str
    part: str
    per: SequenceCount
    work: KernelWork
    times: Num
    bandwidth: Num
    peak: Num
    memory_field: str
    compute_field: str

    def seconds(self, efficiency: Efficiency) -> KernelSeconds:
        """Return the seconds at the achieved rates."""
        memory = seconds(self.times, self.bandwidth, getattr(efficiency, self.memory_field))
        kernel_time = KernelSeconds(self.kernel, self.part, self.per)
        for cause in ("weights", "rows", "kv", "activations"):
            amount = getattr(self.work, cause)
            if not is_zero(amount):
                setattr(kernel_time, cause, amount * memory)
        if self.compute_field:
            achieved = getattr(efficiency, self.compute_field)
            kernel_time.compute = seconds(self.work.flops * self.times, self.peak, achieved)
        return kernel_time


@dataclass(slots=True)
class LaunchRow:
    """Launches of one operation of one layer; each takes the time that `field` of the efficiency record says."""

    field: str
    launches: Num


@dataclass(slots=True)
class CollectiveRow:
    """One collective that occurs `times` times, with the peak rates of link and NIC.

    Bytes are sent at the rates times `link_field` and `nic_field` of the efficiency record; where there is more than
    one rank (`communicates`), each of `collective.used` occurrences takes the time `latency_field`, and that of
    :data:`MESSAGE_FIELD` for each of its messages. Link and NIC work at once if `pipelined`, else one after the other.
    """

    collective: Collective
    times: Num
    link_rate: Num
    nic_rate: Num
    pipelined: bool
    communicates: Num

    @property
    def link_field(self) -> str:
        """Return the field with the fraction of the link rate that is achieved."""
        return f"link_{self.collective.kind}"

    @property
    def nic_field(self) -> str:
        """Return the field with the fraction of the NIC rate that is achieved."""
        return f"nic_{self.collective.kind}"

    @property
    def latency_field(self) -> str:
        """Return the field with the time of one occurrence."""
        return f"latency_{self.collective.kind}"

    def seconds(self, efficiency: Efficiency) -> CollectiveSeconds:
        """Return the seconds at the achieved rates."""
        c, times = self.collective, self.times
        link = seconds(c.link, self.link_rate, getattr(efficiency, self.link_field))
        nic = seconds(c.nic, self.nic_rate, getattr(efficiency, self.nic_field))
        sent = np.maximum(link, nic) if self.pipelined else link + nic
        latency, per_message = getattr(efficiency, self.latency_field), getattr(efficiency, MESSAGE_FIELD)
        if is_zero(per_message) and is_zero(latency):
            return CollectiveSeconds(c.per, sent * times, 0.0)
        each = latency + per_message * c.messages
        return CollectiveSeconds(c.per, sent * times, each * c.used * self.communicates * times)


@dataclass(slots=True)
class LayerRows:
    """Rows of one kind of layer that a forward pass does `times` times, or of embedding or LM head."""

    part: str
    times: Num
    kernels: list[KernelRow]
    launches: list[LaunchRow]
    expert_all_to_all: list[CollectiveRow]
    other_collectives: list[CollectiveRow]

    def launch_seconds(self, efficiency: Efficiency) -> Num:
        """Return the seconds of all launches."""
        total: Num = 0.0
        for row in self.launches:
            each = getattr(efficiency, row.field)
            if not is_zero(each):
                total = total + row.launches * each
        return 0.0 if is_zero(total) else total * self.times


def layer_rows(layer: LayerWork, rates: Rates, hierarchy: str, times: Num) -> LayerRows:
    """List what `times` layers do at the peak rates of a GPU."""
    launches = [
        LaunchRow(LAUNCHED[op.kernel], op.launches)
        for op in layer.operations
        if op.kernel in LAUNCHED and not is_zero(op.launches)
    ]
    return LayerRows(
        layer.part,
        times,
        kernel_rows(layer, rates, times),
        launches,
        [collective_row(c, rates, hierarchy, times) for c in layer.expert_all_to_all],
        [collective_row(c, rates, hierarchy, times) for c in layer.other_collectives],
    )


def kernel_rows(layer: LayerWork, rates: Rates, times: Num) -> list[KernelRow]:
    """List the kernels of `times` layers."""
    rows = []
    for (kernel, part, per), work in by_kernel(layer.operations).items():
        computes = not is_zero(work.flops)
        peak = rates.peak[compute_class(kernel)] if computes else np.inf
        compute_field = f"compute_{kernel}" if computes else ""
        bandwidth = rates.hbm_bandwidth
        rows.append(KernelRow(kernel, part, per, work, times, bandwidth, peak, f"memory_{kernel}", compute_field))
    return rows


def collective_row(collective: Collective, rates: Rates, hierarchy: str, times: Num) -> CollectiveRow:
    """Return a collective with the rates of its link and its NIC."""
    link_rate = collectives.link_rate(rates.link_bandwidth, rates.link_pairwise, collective.members)
    pipelined = collective.pipelined or hierarchy == "max"
    return CollectiveRow(collective, times, link_rate, rates.nic_bandwidth, pipelined, collective.ranks > 1)
