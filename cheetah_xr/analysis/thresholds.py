"""Turn conditions on metrics of the step time alone into comparisons with the step time itself.

A rounded quotient never decreases while what it is of increases. So the times for which such a condition holds are all
those up to one number, or all from one on, and bisection gives that number: exact to the last bit, and a
comparison of float32 in tile of a division in float64 for every point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.dims import PHASE
from .choice import NamedArrays
from .conditions import OPERATORS, Condition
from .derive import DERIVED, STEP

Array = NDArray[Any]

ORDERED = (">=", ">", "<=", "<")


@dataclass(frozen=True)
class Thresholds:
    """Values something is compared with by `compare`, >= or <=; NaN is never reached.

    `step_time` is what is compared, None for the variable or metric itself. `positions` are those in the order given.
    """

    compare: np.ufunc
    values: Array
    step_time: Array | None = None
    positions: Array = field(default_factory=lambda: np.zeros(1, np.intp))

    def at(self, tile: tuple[slice, ...]) -> Array:
        """Return the times of a tile."""
        assert self.step_time is not None
        return np.asarray(
            self.step_time[tuple(s if n > 1 else slice(None) for s, n in zip(tile, self.step_time.shape, strict=True))]
        )

    def from_easy_to_hard(self) -> Thresholds:
        """Return the thresholds in the order in which they become harder to reach."""
        ascending = self.compare is np.greater_equal
        by = np.argsort(self.values if ascending else -self.values, kind="stable")  # NaN comes last
        return replace(self, values=self.values[by], positions=np.argsort(by))

    def reached(self, values: Array, *, nan_never_counts: bool) -> tuple[int, int]:
        """Count the thresholds, the easiest first, that all of some values reach, and those that at least one reaches.

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
        """Return -1 where values do not reach a threshold, else 0, as int8."""
        flags: Array = self.compare(values, self.values[number]).view(np.int8)
        flags -= 1
        return flags


def thresholds_of(inputs: NamedArrays, condition: Condition) -> Thresholds | None:
    """Return the thresholds of step time at which a condition on it, or on a metric of it alone, holds; else None."""
    formula = _of_time(inputs, condition.name) if condition.op in ORDERED else None
    if formula is None:
        return None
    times, number = inputs.aligned("step_time"), condition.number
    targets = np.asarray(inputs.by_name[number][1] if isinstance(number, str) else [number], np.float64)
    bits = np.dtype(f"i{times.dtype.itemsize}")

    def holds(keys: Array) -> Array:
        """Return whether the condition holds for times given by their bits, read as whole numbers."""
        with np.errstate(all="ignore"):
            return np.asarray(OPERATORS[condition.op](formula(keys.view(times.dtype).astype(np.float64)), targets))

    low = np.zeros(targets.shape, bits)  # time 0: positive floats are in the order of their bits
    high = np.full(targets.shape, np.array(np.inf, times.dtype).view(bits))
    early, late = holds(low), holds(high)
    upwards = bool((late & ~early).any())
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        as_early = holds(middle) == early
        low, high = np.where(as_early, middle, low), np.where(as_early, high, middle)
    values = (high if upwards else low).astype(bits).view(times.dtype)
    values[early & late] = -np.inf if upwards else np.inf
    values[~(early | late)] = np.nan
    return Thresholds(np.greater_equal if upwards else np.less_equal, values, times)


def _of_time(inputs: NamedArrays, name: str) -> Callable[[Array], Array] | None:
    """Return a metric as a function of the step time, if it is one that never falls, or never rises."""
    if "step_time" not in inputs.by_name or np.asarray(inputs.by_name["step_time"][1]).dtype.kind != "f":
        return None
    if name == "step_time":
        return lambda times: times
    metric = DERIVED.get(name)
    if name in inputs.by_name or metric is None or metric.needs != STEP:
        return None
    computed = {need: np.asarray(inputs.by_name[need][1], np.float64) for need in metric.computed}
    phases = np.asarray(inputs.by_name[PHASE][1]) if PHASE in inputs.by_name else np.array(metric.phase)
    if (
        phases.size > 1
        or any(phases.reshape(-1) != metric.phase)
        or any(v.size > 1 or not v > 0 for v in computed.values())
    ):
        return None
    scalars = {need: v.reshape(()) for need, v in computed.items()}
    return lambda times: np.asarray(metric.formula({"step_time": times} | scalars))
