"""Rates: what a GPU offers each kernel and collective, and the seconds a pass's work takes at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..specs import LAUNCHED, Efficiency
from .formulas import Num, collectives
from .formulas.roofline import seconds
from .operations import WEIGHT_CLASS, Collective, LayerWork, Operation, SequenceCount

NO_FIXED_WORK = frozenset({"attn_core", "indexer", "embedding", "small_ops"})
"""Kernels that read nothing but what grows with the number of sequences."""


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
    """Whether a quantity is absent by structure (a plain 0), not by the value of an array."""
    return isinstance(value, (int, float)) and value == 0


def add(a: Num, b: Num) -> Num:
    """Sum that keeps a structural zero a structural zero."""
    if is_zero(a):
        return b
    return a if is_zero(b) else a + b


def by_kernel(operations: Iterable[Operation]) -> dict[tuple[str, str, SequenceCount], KernelWork]:
    """Work per (kernel, component, sequence count), in order of first appearance."""
    found: dict[tuple[str, str, SequenceCount], KernelWork] = {}
    for op in operations:
        total = found.setdefault((op.kernel, op.part, op.per), KernelWork())
        total.flops = add(total.flops, op.flops)
        total.weights = add(total.weights, op.weights)
        total.rows = add(total.rows, op.rows)
        total.kv = add(total.kv, op.kv)
        total.activations = add(total.activations, op.activations)
        total.operations.append(op.name)
    return found


def compute_class(kernel: str) -> str:
    """Key of a kernel's peak: its weight class, "attn_core", or "small_ops"."""
    return WEIGHT_CLASS.get(kernel, kernel)


def kernel_seconds(layer: LayerWork, rates: Rates, efficiency: Efficiency, times: Num) -> list[KernelSeconds]:
    """Seconds of the kernels of `times` layers."""
    found = []
    for (kernel, part, per), work in by_kernel(layer.operations).items():
        memory = seconds(times, rates.hbm_bandwidth, getattr(efficiency, f"memory_{kernel}"))
        kernel_time = KernelSeconds(kernel, part, per)
        for cause in ("weights", "rows", "kv", "activations"):
            amount = getattr(work, cause)
            if not is_zero(amount):
                setattr(kernel_time, cause, amount * memory)
        if not is_zero(work.flops):
            factor = getattr(efficiency, f"compute_{kernel}")
            kernel_time.compute = seconds(work.flops * times, rates.peak[compute_class(kernel)], factor)
        found.append(kernel_time)
    return found


def launch_seconds(layer: LayerWork, efficiency: Efficiency, times: Num) -> Num:
    """Seconds of the launches of `times` layers."""
    found: Num = 0.0
    for op in layer.operations:
        each = getattr(efficiency, LAUNCHED[op.kernel]) if op.kernel in LAUNCHED else 0.0
        if not (is_zero(each) or is_zero(op.launches)):
            found = found + op.launches * each
    return 0.0 if is_zero(found) else found * times


def collective_seconds(
    collective: Collective, rates: Rates, efficiency: Efficiency, hierarchy: str, times: Num
) -> CollectiveSeconds:
    """Seconds of a collective that occurs `times` times: link and NIC at once, or one after the other."""
    kind = collective.kind
    rate = collectives.link_rate(rates.link_bandwidth, rates.link_pairwise, collective.members)
    link = seconds(collective.link, rate, getattr(efficiency, f"link_{kind}"))
    nic = seconds(collective.nic, rates.nic_bandwidth, getattr(efficiency, f"nic_{kind}"))
    sent = np.maximum(link, nic) if collective.pipelined or hierarchy == "max" else link + nic
    each = getattr(efficiency, f"latency_{kind}") + efficiency.latency_message * collective.messages
    if is_zero(efficiency.latency_message) and is_zero(getattr(efficiency, f"latency_{kind}")):
        return CollectiveSeconds(collective.per, sent * times, 0.0)
    return CollectiveSeconds(collective.per, sent * times, each * collective.used * (collective.ranks > 1) * times)
