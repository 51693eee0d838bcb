"""Combine: from seconds per kernel to the time of a forward pass, its attributed parts and its bottleneck.

What happens in series is added up in an order that is fixed by what things are, never by the axes or values of a sweep,
in the dtype of times: constants first, then rooflines by kernel, overlapped layers, and last what grows with the
number of sequences, one count of them (:data:`cheetah_xr.costmodel.operations.SEQUENCE_COUNTS`) after the other. So a
point has the same bits alone, in a tile, in a block or on an axis.

Only the last two usually live on the full grid. Constants, and all that is per sequence, are added up in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from ..costmodel.operations import SEQUENCE_COUNTS, Num, SequenceCount
from ..costmodel.roofline import NO_FIXED_WORK, CollectiveSeconds, KernelSeconds, add, is_zero
from .lazy import Operand, Value, apply, cast, is_nothing, larger, plus, times

T = TypeVar("T")

Attribute = Literal["", "bottleneck", "parts"]
"""What is requested with the time: nothing, enough to name the bottleneck (all parts but compute's), or every part."""

Times = dict[str, Value]
"""Seconds by part, and "time", which is their sum unless compute's part was not asked for."""

PARTS = ("compute", "weights", "kv", "activations", "communication", "overhead")
CAUSES = ("weights", "kv", "activations")

KERNEL_ORDER = (
    "embedding",
    "lm_head",
    "small_ops",
    "router",
    "shared_experts",
    "dense_mlp",
    "routed_experts",
    "attn_proj",
    "indexer",
    "attn_core",
)
"""Kernels by how many axes they usually depend on: the attention core alone knows both batch and length in decode."""


@dataclass
class Series:
    """What happens in series, as it is collected: seconds that add up, kernels, overlapped layers."""

    constants: dict[str, Num] = field(default_factory=dict)
    kernels: list[list[KernelSeconds]] = field(default_factory=list)
    """Kernels that share a roofline."""
    mixes: list[Times] = field(default_factory=list)
    by_count: dict[SequenceCount, Series] = field(default_factory=dict)
    """The same per sequence of a count."""

    def constant(self, part: str, seconds: Num) -> None:
        """Add seconds of a part."""
        if not is_zero(seconds):
            self.constants[part] = add(self.constants.get(part, 0.0), seconds)

    def per_sequence(self, per: SequenceCount) -> Series:
        """Return the series of what grows with the sequences of a count."""
        return self.by_count.setdefault(per, Series())

    def collectives(self, collectives: Sequence[CollectiveSeconds]) -> None:
        """Add collectives."""
        for c in collectives:
            self.constant("communication", c.latency)
            self.per_sequence(c.per).constant("communication", c.sent)


@dataclass(frozen=True)
class Combiner:
    """Combines seconds: the counts of sequences, the dtype of times, and which parts are requested."""

    sequence_counts: Mapping[SequenceCount, Num]
    dtype: np.dtype[Any]
    attribute: Attribute

    def cast(self, value: Operand) -> Value:
        """Return a value in the dtype of times."""
        return cast(value, self.dtype)

    def kernels(self, series: Series, kernels: Sequence[KernelSeconds], granularity: str) -> None:
        """Add every kernel, or every component; what reads nothing fixed is counted per sequence."""
        groups: dict[Any, list[KernelSeconds]] = {}
        for number, k in enumerate(kernels):
            groups.setdefault(k.part if granularity == "component" else number, []).append(k)
        for group in groups.values():
            counts = {k.per for k in group}
            alone = len(counts) == 1 and all(k.kernel in NO_FIXED_WORK and is_zero(k.weights) for k in group)
            place = series.per_sequence(counts.pop()) if alone else series
            place.kernels.append(group)

    def _roofline(self, kernels: Sequence[KernelSeconds], *, per_sequence: bool) -> Times:
        """Return the maximum of memory and compute time of kernels taken together; memory's belongs to its causes."""
        weights: Num = 0.0
        amounts: dict[SequenceCount, dict[str, Num]] = {}
        for k in kernels:
            weights = add(weights, k.weights)
            own = amounts.setdefault(k.per, {})
            for part, value in (("weights", k.rows), ("kv", k.kv), ("activations", k.activations)):
                if not is_zero(value):
                    own[part] = add(own.get(part, 0.0), value)
            own["compute"] = add(own.get("compute", 0.0), k.compute)
        causes: Times = {"weights": self.cast(weights)}
        memory, compute = causes["weights"], self.cast(0.0)
        for per, own in _in_order(amounts):
            sequences = None if per_sequence else self.cast(self.sequence_counts[per])
            seconds = {part: self._of(value, sequences) for part, value in own.items()}
            compute = plus(compute, seconds.pop("compute"))
            own.pop("compute")
            # One cause is a product that is needed anyway.
            memory = plus(memory, *seconds.values() if len(own) == 1 else [self._of(_sum(own), sequences)])
            causes = _added(causes, seconds)
        return self._attributed(memory, compute, causes)

    def _of(self, seconds: Num, sequences: Value | None) -> Value:
        return self.cast(seconds) if sequences is None else times(self.cast(seconds), sequences)

    def _attributed(self, memory: Value, compute: Value, causes: Times) -> Times:
        times_by_part: Times = {"time": apply(np.maximum, memory, compute)}
        if self.attribute:
            share = self.cast(larger(memory, compute))
            times_by_part |= {part: times(value, share) for part, value in causes.items()}
            if self.attribute == "parts":
                times_by_part["compute"] = times(compute, apply(np.subtract, self.cast(1.0), share))
        return times_by_part

    def mix(self, series: Series, collectives: Sequence[CollectiveSeconds], overlap: Num) -> Series:
        """Return a series and collectives, a fraction `overlap` of the shorter of which is overlapped."""
        alongside = Series()
        alongside.collectives(collectives)
        return Series(mixes=[self._mixed(self.total(series), self.total(alongside), self.cast(1 - overlap))])

    def _mixed(self, x: Times, y: Times, exposed: Value) -> Times:
        """Return the times of two overlapping stages; overlapped time is attributed to neither."""
        t_x, t_y = x["time"], y["time"]
        if np.size(exposed) == 1 and np.all(exposed == 1):  # in series: the same bits with less work
            return _added(x, y)
        shorter = times(exposed, apply(np.minimum, t_x, t_y))
        times_by_part: Times = {"time": plus(apply(np.maximum, t_x, t_y), shorter)}
        if not self.attribute:
            return times_by_part
        of_y = self.cast(larger(t_y, t_x))
        of_x = apply(np.subtract, self.cast(1.0), of_y)
        for side, share in ((x, of_x), (y, of_y)):
            kept = share if is_nothing(exposed) else apply(np.maximum, share, exposed)
            times_by_part = _added(
                times_by_part, {part: times(value, kept) for part, value in side.items() if part != "time"}
            )
        return times_by_part

    def total(self, series: Series, *, per_sequence: bool = False) -> Times:
        """Return the times of a series."""
        times_by_part: Times = {"time": self.cast(_sum(series.constants))}
        if self.attribute:
            times_by_part |= {part: self.cast(seconds) for part, seconds in series.constants.items()}
        for group in sorted(series.kernels, key=_first):
            times_by_part = _added(times_by_part, self._roofline(group, per_sequence=per_sequence))
        for mix in series.mixes:
            times_by_part = _added(times_by_part, mix)
        for per, one in _in_order(series.by_count):
            sequences, each = self.cast(self.sequence_counts[per]), self.total(one, per_sequence=True)
            times_by_part = _added(times_by_part, {part: times(value, sequences) for part, value in each.items()})
        return times_by_part


def _first(group: Sequence[KernelSeconds]) -> int:
    """Return the place of a group in the order of kernels."""
    return min(KERNEL_ORDER.index(k.kernel) for k in group)


def _in_order(amounts: Mapping[SequenceCount, T]) -> list[tuple[SequenceCount, T]]:
    return [(per, amounts[per]) for per in SEQUENCE_COUNTS if per in amounts]


def _added(a: Times, b: Times) -> Times:
    return a | {part: plus(a[part], value) if part in a else value for part, value in b.items()}


def _sum(seconds: Mapping[str, Num]) -> Num:
    total: Num = 0.0
    for value in seconds.values():
        total = add(total, value)
    return total


def bottleneck(parts: Times) -> Value:
    """Return the code of the largest resource, of memory its largest cause.

    Ties go to compute, memory, communication, overhead in this order. The time without all other parts is compute's.
    """
    zero = np.zeros((), dtype=parts["time"].dtype)
    weights, kv, activations, communication, overhead = (parts.get(part, zero) for part in PARTS[1:])
    memory = plus(plus(weights, kv), activations)
    compute = apply(np.subtract, apply(np.subtract, parts["time"], memory), plus(communication, overhead))
    # Codes by arithmetic on small integers; later codes are larger.
    one, three, four = (np.int8(n) for n in (1, 3, 4))
    cause = apply(np.add, larger(kv, weights), one)
    if not is_nothing(activations):
        most = larger(activations, apply(np.maximum, weights, kv))
        cause = apply(np.maximum, cause, apply(np.multiply, most, three))
    code = apply(np.multiply, cause, larger(memory, compute))
    other = larger(apply(np.maximum, communication, overhead), apply(np.maximum, memory, compute))
    other = apply(np.multiply, other, apply(np.add, larger(overhead, communication), four))
    return apply(np.maximum, code, other)
