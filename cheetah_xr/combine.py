"""Combine: from seconds per kernel to the time of a pass, its attributed parts and its bottleneck.

In two steps. `Planner` works on the axes each quantity depends on: terms on the same axes are added, rooflines on few
points are taken, the rest is written down. `Plan.run` is the only code that touches the full grid, tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rates import NO_FIXED_WORK, CollectiveSeconds, KernelSeconds, add, is_zero
from .terms import Num

Array = NDArray[Any]
Cut = Callable[[Any], Any]
Term = tuple[str, Array]
"""(scale, value): the value itself where scale is "", else what one sequence of the scale adds."""

PARTS = ("compute", "weights", "kv", "activations", "communication", "overhead")
CAUSES = ("weights", "kv", "activations")


EAGER_POINTS = 16_384
"""Terms with more points than this in the whole sweep are left to the tiles."""


class Tiers:
    """Remembers on which axes of the sweep each term lives, so that sums are taken in the same order in every tile.

    A first pass over a miniature of the sweep notes the shape of every term; later passes `replay` the notes, whatever
    the shape of their tile.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.notes: list[tuple[int, ...]] = []
        self.position: int | None = None

    def replay(self) -> Tiers:
        """A reader of the same notes, from the start (one per block and thread)."""
        reader = Tiers(self.sizes)
        reader.notes, reader.position = self.notes, 0
        return reader

    def of(self, *values: Num) -> tuple[int, ...]:
        """Shape the values together have in the miniature."""
        if self.position is None:
            self.notes.append(np.broadcast_shapes(*(np.shape(v) for v in values)))
            return self.notes[-1]
        self.position += 1
        return self.notes[self.position - 1]

    def too_large(self, *values: Num) -> bool:
        """Whether the values together have too many points in the whole sweep to be taken at once."""
        shape = self.of(*values)
        sizes = self.sizes[len(self.sizes) - len(shape) :]
        return math.prod(size for size, length in zip(sizes, shape, strict=True) if length > 1) > EAGER_POINTS


@dataclass(frozen=True)
class Roofline:
    """A maximum of memory and compute time left to the tiles: seconds by cause and scale."""

    causes: Mapping[str, Sequence[Term]]
    compute: Sequence[Term]

    def run(self, scales: Mapping[str, Array], cut: Cut, attribute: bool) -> tuple[Array, dict[str, Array]]:
        """Time and parts on a tile."""
        by_cause = {cause: _sum(terms, scales, cut) for cause, terms in self.causes.items() if terms}
        t_compute = _sum(self.compute, scales, cut)
        t_memory = _series(list(by_cause.values()))
        time = np.maximum(t_memory, t_compute)
        if not attribute:
            return time, {}
        by_compute = _one_where(t_compute >= t_memory, time.dtype)
        by_memory = 1 - by_compute
        parts = {cause: value * by_memory for cause, value in by_cause.items()}
        return time, {"compute": t_compute * by_compute, **parts}


@dataclass
class Plan:
    """Stages in series: folded terms, rooflines left to the tiles, and overlapping pairs of plans."""

    time: list[Term] = field(default_factory=list)
    parts: dict[str, list[Term]] = field(default_factory=lambda: {part: [] for part in PARTS})
    rooflines: list[Roofline] = field(default_factory=list)
    mixes: list[Mix] = field(default_factory=list)

    def extend(self, other: Plan) -> None:
        """Append the stages of another plan in series."""
        self.time += other.time
        for part, terms in other.parts.items():
            self.parts[part] += terms
        self.rooflines += other.rooflines
        self.mixes += other.mixes

    def may_have(self, part: str) -> bool:
        """Whether a part can be other than zero."""
        inside = any(part == "compute" or r.causes.get(part) for r in self.rooflines)
        return bool(self.parts[part]) or inside or any(m.x.may_have(part) or m.y.may_have(part) for m in self.mixes)

    def run(self, scales: Mapping[str, Array], cut: Cut, attribute: bool) -> tuple[Array, dict[str, Array]]:
        """Time and, if asked for, its parts on a tile."""
        inner: list[Roofline | Mix] = [*self.rooflines, *self.mixes]
        stages = [stage.run(scales, cut, attribute) for stage in inner]
        time = _series([_sum(self.time, scales, cut), *(t for t, _ in stages)])
        if not attribute:
            return time, {}
        parts = {}
        for part, terms in self.parts.items():
            values = [p[part] for _, p in stages if part in p]
            parts[part] = _series([_sum(terms, scales, cut), *values] if terms or not values else values)
        return time, parts


@dataclass(frozen=True)
class Mix:
    """Two plans of which a share of the smaller hides behind the larger; hidden time belongs to nobody."""

    x: Plan
    y: Plan
    exposed: Array

    def run(self, scales: Mapping[str, Array], cut: Cut, attribute: bool) -> tuple[Array, dict[str, Array]]:
        """Time and parts on a tile."""
        (t_x, parts_x), (t_y, parts_y) = (side.run(scales, cut, attribute) for side in (self.x, self.y))
        exposed = cut(self.exposed)
        time = np.maximum(t_x, t_y) + exposed * np.minimum(t_x, t_y)
        if not attribute:
            return time, {}
        larger = _one_where(t_x >= t_y, time.dtype)
        of_x, of_y = exposed + (1 - exposed) * larger, 1 - (1 - exposed) * larger
        parts = {part: value * of_x for part, value in parts_x.items() if self.x.may_have(part)}
        for part, value in parts_y.items():
            if self.y.may_have(part):
                parts[part] = parts[part] + value * of_y if part in parts else value * of_y
        return time, parts


def _one_where(condition: Any, dtype: np.dtype[Any]) -> Array:
    """1 where a condition holds, else 0: multiplying by it is ten times faster than np.where on a mixed mask."""
    return np.asarray(condition).astype(dtype)


def _sum(terms: Sequence[Term], scales: Mapping[str, Array], cut: Cut) -> Array:
    """Sum of folded terms on a tile, scales multiplied in last."""
    by_scale: dict[str, Array] = {}
    for scale, value in terms:
        piece = cut(value)
        by_scale[scale] = by_scale[scale] + piece if scale in by_scale else piece
    return _series([value * cut(scales[scale]) if scale else value for scale, value in by_scale.items()])


def _series(values: Sequence[Array]) -> Array:
    """Sum in order, in place once the sum is an array of its own."""
    result = values[0] if values else np.asarray(np.float32(0))
    own = False
    for value in values[1:]:
        if own and np.broadcast(result, value).shape == result.shape:
            np.add(result, value, out=result)
        else:
            result, own = np.asarray(result + value), True
    return result


@dataclass(frozen=True)
class Planner:
    """Builds plans from seconds: what is needed beside them, and how much is wanted."""

    scales: Mapping[str, Num]
    dtype: np.dtype[Any]
    tiers: Tiers
    attribute: bool

    def cast(self, value: Num) -> Array:
        """To the number type of times."""
        return np.asarray(value, dtype=self.dtype)

    def cast_scales(self) -> dict[str, Array]:
        """The scales in the number type of times."""
        return {name: self.cast(value) for name, value in self.scales.items()}

    def fold(self, terms: Sequence[tuple[str, Num]]) -> list[Term]:
        """Add terms that live on the same axes, and smaller ones into larger; multiply by scales what stays small."""
        groups: dict[tuple[str, tuple[int, ...]], Num] = {}
        for scale, value in terms:
            place, held = scale, value
            if scale and not self.tiers.too_large(self.scales[scale], value):
                place, held = "", value * self.scales[scale]
            key = (place, self.tiers.of(held))
            groups[key] = groups[key] + held if key in groups else held
        folded: list[tuple[str, tuple[int, ...], Num]] = []
        for (scale, shape), value in sorted(groups.items(), key=lambda item: (math.prod(item[0][1]), item[0])):
            into = [i for i, (s, t, _) in enumerate(folded) if s == scale and np.broadcast_shapes(t, shape) == shape]
            for i in reversed(into):
                value = folded.pop(i)[2] + value
            folded.append((scale, shape, value))
        return [(scale, self.cast(value)) for scale, _, value in folded]

    def close(self, plan: Plan) -> Plan:
        """Fold the terms of a plan."""
        plan.time = self.fold(plan.time)
        plan.parts = {part: self.fold(terms) for part, terms in plan.parts.items()}
        return plan

    def kernels(self, kernels: Sequence[KernelSeconds], granularity: str) -> Plan:
        """Kernels in series, each with its own maximum, or one for each component."""
        groups: dict[Any, list[KernelSeconds]] = {}
        for number, k in enumerate(kernels):
            groups.setdefault(k.part if granularity == "component" else number, []).append(k)
        plan = Plan()
        for group in groups.values():
            plan.extend(self.roofline(group))
        return plan

    def roofline(self, kernels: Sequence[KernelSeconds]) -> Plan:
        """One maximum of memory and compute time over kernels taken together."""
        causes: dict[str, dict[str, Num]] = {cause: {} for cause in CAUSES}
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
            if not is_zero(k.compute):
                compute[k.scale] = add(compute.get(k.scale, 0.0), k.compute)
        used = sorted({*compute, *(scale for values in causes.values() for scale in values)})
        numbers = [v for values in (*causes.values(), compute) for v in values.values()]
        if len(used) == 1 and all(k.kernel in NO_FIXED_WORK for k in kernels) and not self.tiers.too_large(*numbers):
            # All work is per sequence: the maximum is taken before the number of sequences comes in.
            scale = used[0]
            return self._taken(scale, {c: v[scale] for c, v in causes.items() if v}, compute.get(scale, 0.0))
        if self.tiers.too_large(*numbers, *(self.scales[scale] for scale in used if scale)):
            cast_causes = {c: [(s, self.cast(v)) for s, v in values.items()] for c, values in causes.items()}
            return Plan(rooflines=[Roofline(cast_causes, [(s, self.cast(v)) for s, v in compute.items()])])
        return self._taken("", {c: self._evaluated(v) for c, v in causes.items() if v}, self._evaluated(compute))

    def _evaluated(self, values: Mapping[str, Num]) -> Num:
        """Sum of one value per scale."""
        total: Num = 0.0
        for scale, value in values.items():
            total = add(total, value * self.scales[scale] if scale else value)
        return total

    def _taken(self, scale: str, causes: Mapping[str, Num], compute: Num) -> Plan:
        """A roofline taken at once, on the axes its numbers live on."""
        memory: Num = 0.0
        for value in causes.values():
            memory = add(memory, value)
        plan = Plan(time=[(scale, np.maximum(memory, compute))])
        if self.attribute:
            bound = np.greater_equal(compute, memory)
            if not is_zero(compute):
                plan.parts["compute"].append((scale, np.where(bound, compute, 0.0)))
            for cause, value in causes.items():
                plan.parts[cause].append((scale, np.where(bound, 0.0, value)))
        return plan

    def collectives(self, collectives: Sequence[CollectiveSeconds]) -> Plan:
        """Collectives in series."""
        terms: list[tuple[str, Num]] = [(c.scale, c.sent) for c in collectives]
        terms += [("", c.latency) for c in collectives if not is_zero(c.latency)]
        plan = Plan(time=list(terms))
        plan.parts["communication"] = list(terms)
        return plan

    def mix(self, x: Plan, y: Plan, overlap: Num) -> Plan:
        """Two stages of which a share `overlap` of the smaller hides behind the larger."""
        if not y.time or is_zero(overlap):
            x.extend(y)
            return x
        return Plan(mixes=[Mix(self.close(x), self.close(y), self.cast(1 - overlap))])


def bottleneck(parts: Mapping[str, Array]) -> Array:
    """Code of the largest resource, of memory its largest cause; ties: compute, memory, communication, overhead."""
    weights, kv, activations = parts["weights"], parts["kv"], parts["activations"]
    compute, communication, overhead = parts["compute"], parts["communication"], parts["overhead"]
    memory = weights + kv + activations
    # Codes by arithmetic on small integers: several times faster than np.where. Later codes are larger.
    cause = np.maximum(_flag(kv > weights) + np.int8(1), _flag(activations > np.maximum(weights, kv)) * np.int8(3))
    code = cause * _flag(memory > compute)
    other = np.maximum(communication, overhead)
    other_code = _flag(overhead > communication) + np.int8(4)
    return np.asarray(np.maximum(code, other_code * _flag(other > np.maximum(memory, compute))))


def _flag(condition: Any) -> Array:
    return np.asarray(condition).view(np.int8)
