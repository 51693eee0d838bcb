"""Limits: conditions on what follows from the time of a pass alone, as comparisons with the time itself.

A rounded quotient never decreases while what it is of increases. So the times for which such a condition holds are all
those up to one number, or all from one on, and that number is found by bisection: exact to the last bit, and a
comparison of float32 in place of a division in float64 for every point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.dims import PHASE
from .choice import Numbers
from .conditions import OPERATORS, Condition
from .derive import DERIVED, STEP

Array = NDArray[Any]

ORDERED = (">=", ">", "<=", "<")


@dataclass(frozen=True)
class Limits:
    """Values something is compared with by `compare`, >= or <=; NaN is never reached.

    `step_time` is what is compared, None for the variable or metric itself. `places` says where each value was given.
    """

    compare: np.ufunc
    values: Array
    step_time: Array | None = None
    places: Array = field(default_factory=lambda: np.zeros(1, np.intp))

    def at(self, place: tuple[slice, ...]) -> Array:
        """Times of a tile."""
        assert self.step_time is not None
        return np.asarray(
            self.step_time[tuple(s if n > 1 else slice(None) for s, n in zip(place, self.step_time.shape, strict=True))]
        )

    def from_easy_to_hard(self) -> Limits:
        """The same in the order in which the values become harder to reach."""
        ascending = self.compare is np.greater_equal
        by = np.argsort(self.values if ascending else -self.values, kind="stable")  # NaN comes last
        return replace(self, values=self.values[by], places=np.argsort(by))

    def reached(self, values: Array, *, nan_never_counts: bool) -> tuple[int, int]:
        """How many of the limits, the easiest first, every one of some values reaches, and how many at least one.

        A NaN reaches none, unless it does not matter what it reaches.
        """
        upwards = self.compare is np.greater_equal
        strict, lenient = (np.minimum, np.fmin) if upwards else (np.maximum, np.fmax)
        worst = (lenient if nan_never_counts else strict).reduce(values, axis=None)
        everywhere = int(np.count_nonzero(self.compare(worst, self.values)))
        if everywhere == self.values.size:
            return everywhere, everywhere
        best = (np.fmax if upwards else np.fmin).reduce(values, axis=None)
        return everywhere, int(np.count_nonzero(self.compare(best, self.values)))

    def missed(self, number: int, values: Array) -> Array:
        """-1 where values do not reach a limit, else 0, as int8."""
        flags: Array = self.compare(values, self.values[number]).view(np.int8)
        flags -= 1
        return flags


def limits_of(numbers: Numbers, condition: Condition) -> Limits | None:
    """A condition on the time of a pass, or on a metric of it alone, in terms of that time; None for any other."""
    formula = _of_time(numbers, condition.name) if condition.op in ORDERED else None
    if formula is None:
        return None
    times, number = numbers.aligned("step_time"), condition.number
    wanted = np.asarray(numbers.arrays[number][1] if isinstance(number, str) else [number], np.float64)
    bits = np.dtype(f"i{times.dtype.itemsize}")

    def holds(keys: Array) -> Array:
        """Whether the condition holds for times whose bits, read as whole numbers, are given."""
        with np.errstate(all="ignore"):
            return np.asarray(OPERATORS[condition.op](formula(keys.view(times.dtype).astype(np.float64)), wanted))

    low = np.zeros(wanted.shape, bits)  # time 0: positive floats are in the order of their bits
    high = np.full(wanted.shape, np.array(np.inf, times.dtype).view(bits))
    early, late = holds(low), holds(high)
    upwards = bool((late & ~early).any())
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        as_early = holds(middle) == early
        low, high = np.where(as_early, middle, low), np.where(as_early, high, middle)
    values = (high if upwards else low).astype(bits).view(times.dtype)
    values[early & late] = -np.inf if upwards else np.inf
    values[~(early | late)] = np.nan
    return Limits(np.greater_equal if upwards else np.less_equal, values, times)


def _of_time(numbers: Numbers, name: str) -> Callable[[Array], Array] | None:
    """What a name is as a function of the time of a pass, if it is one that never falls, or never rises."""
    if "step_time" not in numbers.arrays or np.asarray(numbers.arrays["step_time"][1]).dtype.kind != "f":
        return None
    if name == "step_time":
        return lambda times: times
    metric = DERIVED.get(name)
    if name in numbers.arrays or metric is None or metric.needs != STEP:
        return None
    computed = {need: np.asarray(numbers.arrays[need][1], np.float64) for need in metric.computed}
    phases = np.asarray(numbers.arrays[PHASE][1]) if PHASE in numbers.arrays else np.array(metric.phase)
    if (
        phases.size > 1
        or any(phases.reshape(-1) != metric.phase)
        or any(v.size > 1 or not v > 0 for v in computed.values())
    ):
        return None
    scalars = {need: v.reshape(()) for need, v in computed.items()}
    return lambda times: np.asarray(metric.formula({"step_time": times} | scalars))
