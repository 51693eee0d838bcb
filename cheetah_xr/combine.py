"""Combine: from seconds per kernel to the time of a pass, its attributed parts and its bottleneck.

The only code that touches the full grid. Quantities stay on the axes they depend on as long as possible: terms on the
same axes are added first, smaller grids before larger ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rates import NO_FIXED_WORK, CollectiveSeconds, KernelSeconds, add, is_zero
from .terms import Num

Array = NDArray[Any]
Term = tuple[str | None, Num]
"""(scale, value): the value itself, or what one sequence of the scale adds."""

PARTS = ("compute", "weights", "kv", "activations", "communication", "overhead")


class Tiers:
    """Remembers on which axes of the whole sweep each term lives, so that sums are taken in the same order in every tile.

    A first pass over a miniature of the sweep (`record`) notes the shape of every term; later passes `replay` the notes,
    whatever the shape of their tile.
    """

    def __init__(self) -> None:
        self.notes: list[tuple[int, ...]] = []
        self.position: int | None = None

    def replay(self) -> Tiers:
        """A reader of the same notes, from the start (one per thread)."""
        reader = Tiers()
        reader.notes, reader.position = self.notes, 0
        return reader

    def of(self, value: Num) -> tuple[int, ...]:
        """Shape the term has in the miniature."""
        if self.position is None:
            self.notes.append(np.shape(value))
            return self.notes[-1]
        self.position += 1
        return self.notes[self.position - 1]


@dataclass
class Sums:
    """Lists of terms that add up to the time of a stage, and to each of its parts."""

    time: list[Term] = field(default_factory=list)
    parts: dict[str, list[Term]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def extend(self, other: Sums) -> None:
        """Append the terms of a stage in series."""
        self.time += other.time
        for part, terms in other.parts.items():
            self.parts[part] += terms


@dataclass(frozen=True)
class Combiner:
    """What combining needs beside the seconds: the scales' arrays, the number type, the tiers, and how much is wanted."""

    scales: Mapping[str, Num]
    dtype: np.dtype[Any]
    tiers: Tiers
    attribute: bool

    def cast(self, value: Num) -> Array:
        """To the number type of times."""
        return np.asarray(value, dtype=self.dtype)

    def total(self, terms: Sequence[Term]) -> Array:
        """Sum of terms: equal axes first, then the scales' products, smaller grids before larger ones."""
        groups: dict[tuple[str, tuple[int, ...]], Array] = {}
        for scale, value in terms:
            key = (scale or "", self.tiers.of(value))
            groups[key] = groups[key] + value if key in groups else self.cast(value)
        by_scale: dict[str, tuple[int, Array]] = {}
        for (scale, shape), value in sorted(groups.items(), key=lambda item: (np.prod(item[0][1]), item[0])):
            grown = int(np.prod(shape, dtype=int))
            if scale in by_scale:
                size, so_far = by_scale[scale]
                by_scale[scale] = (max(size, grown), so_far + value)
            else:
                by_scale[scale] = (grown, value)
        result: Array | None = None
        for scale, (_, value) in sorted(by_scale.items(), key=lambda item: (item[1][0], item[0])):
            product = value * self.cast(self.scales[scale]) if scale else value
            result = product if result is None else result + product
        return self.cast(0.0) if result is None else result

    def evaluated(self, values: Mapping[str, Num]) -> Array:
        """Sum of one value per scale, at the grid."""
        result: Num = 0.0
        for scale, value in values.items():
            product = self.cast(value) * self.cast(self.scales[scale]) if scale else self.cast(value)
            result = product if is_zero(result) else result + product
        return self.cast(result)

    def roofline(self, kernels: Sequence[KernelSeconds]) -> Sums:
        """One maximum of memory and compute time over kernels taken together."""
        if len({k.scale for k in kernels}) == 1 and all(k.kernel in NO_FIXED_WORK for k in kernels):
            return self._roofline_per_sequence(kernels)
        causes: dict[str, dict[str, Num]] = {cause: {} for cause in ("weights", "kv", "activations")}
        compute: dict[str, Num] = {}
        for k in kernels:
            for cause, scale, value in (
                ("weights", "", k.weights),
                ("weights", k.scale, k.rows),
                ("kv", k.scale, k.kv),
                ("activations", k.scale, k.activations),
            ):
                if not is_zero(value):
                    causes[cause][scale] = add(causes[cause].get(scale, 0.0), value)
            compute[k.scale] = add(compute.get(k.scale, 0.0), k.compute)
        scaled: dict[str, Num] = {}
        for cause in causes:
            for scale, value in causes[cause].items():
                scaled[scale] = add(scaled.get(scale, 0.0), value)
        t_memory, t_compute = self.evaluated(scaled), self.evaluated(compute)
        sums = Sums(time=[(None, np.maximum(t_memory, t_compute))])
        if self.attribute:
            bound = t_compute >= t_memory
            sums.parts["compute"].append((None, np.where(bound, t_compute, self.cast(0.0))))
            for cause, values in causes.items():
                if values:
                    sums.parts[cause].append((None, np.where(bound, self.cast(0.0), self.evaluated(values))))
        return sums

    def _roofline_per_sequence(self, kernels: Sequence[KernelSeconds]) -> Sums:
        """The same when all work is per sequence: the maximum is taken before the number of sequences comes in."""
        scale = kernels[0].scale
        causes = {
            "weights": [k.rows for k in kernels],
            "kv": [k.kv for k in kernels],
            "activations": [k.activations for k in kernels],
        }
        memory, compute = 0.0, 0.0
        for k in kernels:
            memory = add(memory, add(k.rows, add(k.kv, k.activations)))
            compute = add(compute, k.compute)
        sums = Sums(time=[(scale, np.maximum(memory, compute))])
        if self.attribute:
            bound = np.greater_equal(compute, memory)
            sums.parts["compute"].append((scale, np.where(bound, compute, 0.0)))
            for cause, values in causes.items():
                for value in values:
                    if not is_zero(value):
                        sums.parts[cause].append((scale, np.where(bound, 0.0, value)))
        return sums

    def kernels(self, kernels: Sequence[KernelSeconds], granularity: str) -> Sums:
        """Kernels in series, each with its own maximum, or one for each component."""
        groups: dict[Any, list[KernelSeconds]] = {}
        for k in kernels:
            groups.setdefault(k.part if granularity == "component" else id(k), []).append(k)
        sums = Sums()
        for group in groups.values():
            sums.extend(self.roofline(group))
        return sums

    def collectives(self, collectives: Sequence[CollectiveSeconds]) -> Sums:
        """Collectives in series."""
        terms: list[Term] = [(c.scale, c.sent) for c in collectives]
        terms += [(None, c.latency) for c in collectives if not is_zero(c.latency)]
        return Sums(time=terms, parts={part: list(terms) if part == "communication" else [] for part in PARTS})

    def mix(self, x: Sums, y: Sums, overlap: Num) -> Sums:
        """Stages of which a share `overlap` of the smaller hides behind the larger; hidden time belongs to nobody."""
        if not y.time or is_zero(overlap):
            x.extend(y)
            return x
        t_x, t_y = self.total(x.time), self.total(y.time)
        exposed = self.cast(1 - overlap)
        sums = Sums(time=[(None, np.maximum(t_x, t_y) + exposed * np.minimum(t_x, t_y))])
        if self.attribute:
            larger = t_x >= t_y
            one = self.cast(1.0)
            for side, factor in ((x, np.where(larger, one, exposed)), (y, np.where(larger, exposed, one))):
                for part, terms in side.parts.items():
                    if terms:
                        sums.parts[part].append((None, self.total(terms) * factor))
        return sums


def bottleneck(parts: Mapping[str, Array]) -> Array:
    """Code of the largest resource (order of ties: compute, memory, communication, overhead), of memory the largest cause."""
    weights, kv, activations = parts["weights"], parts["kv"], parts["activations"]
    compute, communication, overhead = parts["compute"], parts["communication"], parts["overhead"]
    memory = weights + kv + activations
    cause = np.where(kv > weights, np.int8(2), np.int8(1))
    cause = np.where(activations > np.maximum(weights, kv), np.int8(3), cause)
    code = np.where(memory > compute, cause, np.int8(0))
    other = np.maximum(communication, overhead)
    other_code = np.where(overhead > communication, np.int8(5), np.int8(4))
    return np.where(other > np.maximum(memory, compute), other_code, code)
