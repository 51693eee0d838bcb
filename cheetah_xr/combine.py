"""Combine: from seconds per kernel to the time of a pass, its attributed parts and its bottleneck.

A plan is a list of stages in series, in an order that does not depend on the axes: sums are taken in that order and in
the number type of times, so a point has the same bits alone, in a tile, in a block or on an axis. Stages on few points
are run when the plan is made, the others tile by tile. Those that usually are on few points come first: they are added
up before the full grid is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .rates import NO_FIXED_WORK, CollectiveSeconds, KernelSeconds, add, is_zero
from .terms import Num

Array = NDArray[Any]
Cut = Callable[[Any], Any]
Attribute = Literal["", "bottleneck", "parts"]
"""What is wanted beside the time: nothing, enough to name the bottleneck (all parts but compute's), or every part."""

Times = tuple[Array, dict[str, Array]]
"""The time of a stage, and its parts."""

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

EAGER_POINTS = 16_384
"""A stage on more points than this is left to the tiles."""


class Stage(Protocol):
    """Something that takes time on a tile."""

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """Time and, if asked for, its parts on a tile."""

    @property
    def points(self) -> int:
        """Points the stage depends on."""


@dataclass(frozen=True)
class Fixed:
    """A stage that has been run."""

    time: Array
    parts: Mapping[str, Array]
    points: int = 0

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """The part of it in a tile."""
        return cut(self.time), {part: cut(value) for part, value in self.parts.items()}


@dataclass(frozen=True)
class Roofline:
    """The maximum of memory and compute time of kernels taken together: seconds, fixed and per sequence of a scale."""

    fixed: Array | None
    scaled: tuple[tuple[Array, Mapping[str, Array], Array], ...]
    """For every scale: sequences, seconds by cause, seconds of compute."""

    @property
    def points(self) -> int:
        """Points all its numbers together depend on."""
        numbers = [self.fixed] if self.fixed is not None else []
        for sequences, causes, compute in self.scaled:
            numbers += [sequences, *causes.values(), compute]
        return _points(numbers)

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """Time and parts on a tile; without fixed work the maximum is taken before the number of sequences comes in."""
        if self.fixed is None and len(self.scaled) == 1:
            sequences, one_sequence, work = self.scaled[0]
            return _larger(_cut(one_sequence, cut), cut(work), attribute, cut(sequences))
        causes = {} if self.fixed is None else {"weights": cut(self.fixed)}
        works = []
        for scale in self.scaled:
            sequences, more, work = (_cut(value, cut) for value in scale)
            for cause, value in more.items():
                causes[cause] = causes[cause] + value * sequences if cause in causes else value * sequences
            works.append(work * sequences)
        return _larger(causes, _series(works), attribute)


@dataclass(frozen=True)
class Sent:
    """A collective: seconds per sequence of a scale, and a latency."""

    sequences: Array
    sent: Array
    latency: Array | None

    @property
    def points(self) -> int:
        """Points all its numbers together depend on."""
        return _points([self.sequences, self.sent, *([self.latency] if self.latency is not None else [])])

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """Time on a tile, all of it communication."""
        time = cut(self.sent) * cut(self.sequences)
        if self.latency is not None:
            time = time + cut(self.latency)
        return time, {"communication": time}


@dataclass
class Plan:
    """Stages in series, in an order that does not depend on the axes."""

    stages: list[Stage] = field(default_factory=list)

    @property
    def points(self) -> int:
        """Points the largest of its stages depends on."""
        return max((stage.points for stage in self.stages), default=0)

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """Time and parts on a tile."""
        done = [stage.run(cut, attribute) for stage in self.stages]
        parts = {
            part: _series([p[part] for _, p in done if part in p]) for part in PARTS if any(part in p for _, p in done)
        }
        return _series([time for time, _ in done]), parts if attribute else {}

    def closed(self, attribute: Attribute) -> Plan:
        """The same with the stages on few points at its beginning run and added up."""
        small = 0
        while small < len(self.stages) and self.stages[small].points <= EAGER_POINTS:
            small += 1
        rest = [_run_if_small(stage, attribute) for stage in self.stages[small:]]
        if not small:
            return Plan(rest)
        time, parts = Plan(self.stages[:small]).run(_whole, attribute)
        return Plan([Fixed(time, parts), *rest])


@dataclass(frozen=True)
class Mix:
    """Two plans of which a share of the smaller hides behind the larger; hidden time belongs to nobody."""

    x: Plan
    y: Plan
    exposed: Array

    @property
    def points(self) -> int:
        """Too many to be run at once, unless both sides are small."""
        return max(self.x.points, self.y.points) * self.exposed.size

    def run(self, cut: Cut, attribute: Attribute) -> Times:
        """Time and parts on a tile."""
        (t_x, parts_x), (t_y, parts_y) = (side.run(cut, attribute) for side in (self.x, self.y))
        time = np.maximum(t_x, t_y)
        hidden = self.exposed.size == 1 and not self.exposed.any()  # nothing is added then: the bits are the same
        exposed = cut(self.exposed)
        if not hidden:
            time = time + exposed * np.minimum(t_x, t_y)
        if not attribute:
            return time, {}
        larger = _one_where(t_x >= t_y, time.dtype)
        of_x, of_y = (larger, 1 - larger) if hidden else (exposed + (1 - exposed) * larger, 1 - (1 - exposed) * larger)
        parts = {part: value * of_x for part, value in parts_x.items()}
        for part, value in parts_y.items():
            parts[part] = parts[part] + value * of_y if part in parts else value * of_y
        return time, parts


def _points(numbers: Sequence[Array]) -> int:
    return int(np.broadcast(*numbers).size) if len(numbers) > 1 else int(numbers[0].size)


def _cut(value: Any, cut: Cut) -> Any:
    return {key: cut(item) for key, item in value.items()} if isinstance(value, Mapping) else cut(value)


def _whole(value: Any) -> Any:
    return value


def _run_if_small(stage: Stage, attribute: Attribute) -> Stage:
    if isinstance(stage, Fixed) or stage.points > EAGER_POINTS:
        return stage
    return Fixed(*stage.run(_whole, attribute))


def _larger(causes: Mapping[str, Array], compute: Array, attribute: Attribute, times: Array | None = None) -> Times:
    """Maximum of memory and compute time; the memory time belongs to its causes, compute's to itself.

    Everything is multiplied by `times` at last, or at first where that touches fewer points: rounding is monotonic, so
    the bits are the same.
    """
    memory = _series(list(causes.values())) if causes else np.zeros_like(compute)
    bound = compute >= memory
    late = times
    if times is not None and bound.size == np.broadcast(bound, times).size:
        memory, compute, late = memory * times, compute * times, None
        causes = {cause: value * times for cause, value in causes.items()}
    found = {"time": np.maximum(memory, compute)}
    if attribute:
        mask = _one_where(~bound, found["time"].dtype)
        found |= {cause: value * mask for cause, value in causes.items()}
        if attribute == "parts":
            found["compute"] = compute * (1 - mask)
    if late is not None:
        found = {name: value * late for name, value in found.items()}
    return found.pop("time"), found


def _one_where(condition: Any, dtype: np.dtype[Any]) -> Array:
    """1 where a condition holds, else 0: multiplying by it is ten times faster than np.where on a mixed mask."""
    return np.asarray(condition).astype(dtype)


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
    """Makes stages of seconds: the scales' arrays, the number type, and whether parts are wanted."""

    scales: Mapping[str, Num]
    dtype: np.dtype[Any]
    attribute: Attribute

    def cast(self, value: Num) -> Array:
        """To the number type of times."""
        return np.asarray(value, dtype=self.dtype)

    def kernels(self, kernels: Sequence[KernelSeconds], granularity: str) -> list[Stage]:
        """A stage for every kernel, or for every component."""
        groups: dict[Any, list[KernelSeconds]] = {}
        for number, k in sorted(enumerate(kernels), key=lambda item: KERNEL_ORDER.index(item[1].kernel)):
            groups.setdefault(k.part if granularity == "component" else number, []).append(k)
        return [self.roofline(group) for group in groups.values()]

    def roofline(self, kernels: Sequence[KernelSeconds]) -> Stage:
        """One maximum of memory and compute time over kernels taken together."""
        fixed: Num = 0.0
        causes: dict[str, dict[str, Num]] = {}
        compute: dict[str, Num] = {}
        for k in kernels:
            fixed = add(fixed, k.weights)
            own = causes.setdefault(k.scale, {})
            for cause, value in (("weights", k.rows), ("kv", k.kv), ("activations", k.activations)):
                if not is_zero(value):
                    own[cause] = add(own.get(cause, 0.0), value)
            compute[k.scale] = add(compute.get(k.scale, 0.0), k.compute)
        scaled = tuple(
            (self.cast(self.scales[s]), {c: self.cast(v) for c, v in causes[s].items()}, self.cast(compute[s]))
            for s in sorted(causes)
        )
        per_sequence = all(k.kernel in NO_FIXED_WORK for k in kernels)
        return Roofline(None if per_sequence and is_zero(fixed) else self.cast(fixed), scaled)

    def collectives(self, collectives: Sequence[CollectiveSeconds]) -> list[Stage]:
        """A stage for every collective."""
        return [
            Sent(
                self.cast(self.scales[c.scale]),
                self.cast(c.sent),
                None if is_zero(c.latency) else self.cast(c.latency),
            )
            for c in collectives
        ]

    def overhead(self, values: Sequence[Num]) -> list[Stage]:
        """Launches and CPU overheads; what is zero by definition takes no stage."""
        times = [self.cast(value) for value in values if not is_zero(value)]
        return [Fixed(time, {"overhead": time}, int(time.size)) for time in times]

    def mix(self, x: list[Stage], y: list[Stage], overlap: Num) -> Stage:
        """Two plans of which a share `overlap` of the smaller hides behind the larger."""
        return Mix(Plan(x).closed(self.attribute), Plan(y).closed(self.attribute), self.cast(1 - overlap))


def bottleneck(time: Array, parts: Mapping[str, Array]) -> Array:
    """Code of the largest resource, of memory its largest cause; ties: compute, memory, communication, overhead.

    What is left of the time when the other parts are taken off belongs to compute.
    """
    zero = np.zeros((), dtype=time.dtype)
    weights, kv, activations, communication, overhead = (parts.get(part, zero) for part in PARTS[1:])
    memory = weights + kv + activations
    compute = time - memory - (communication + overhead)
    # Codes by arithmetic on small integers: several times faster than np.where. Later codes are larger.
    cause = np.maximum(_flag(kv > weights) + np.int8(1), _flag(activations > np.maximum(weights, kv)) * np.int8(3))
    code = cause * _flag(memory > compute)
    other = np.maximum(communication, overhead)
    other_code = _flag(overhead > communication) + np.int8(4)
    return np.asarray(np.maximum(code, other_code * _flag(other > np.maximum(memory, compute))))


def _flag(condition: Any) -> Array:
    return np.asarray(condition).view(np.int8)
