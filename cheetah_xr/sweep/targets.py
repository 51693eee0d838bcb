"""The best point for every value of a target: one reduction, one answer per value."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ..analysis.choice import Choice, NamedArrays
from ..analysis.conditions import Condition
from ..analysis.derive import DERIVED
from ..engine.variables import VARIABLES
from .reductions import Best

Targets = Annotated[list[float], Field(min_length=1, max_length=1000)]


class BestByTarget(Best):
    """``best: {..., targets: {NAME: [VALUES]}}``: the best point that reaches each value, on a new axis ``min_NAME``.

    Without targets it is :class:`Best`.
    """

    targets: Annotated[dict[str, Targets], Field(max_length=1)] = Field(
        default_factory=dict, description="one name and a list of numbers, such as {tps_per_user: [10, 50]}"
    )

    @field_validator("targets")
    @classmethod
    def _once_each(cls, targets: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, values in targets.items():
            if name not in (*DERIVED, *VARIABLES):
                raise ValueError(f"best: targets: unknown metric {name!r}; known: {', '.join(DERIVED)}")
            if len(set(values)) != len(values):
                raise ValueError(f"best: targets: {name}: values are given once each, got {values}")
        return targets

    @property
    def _axes(self) -> dict[str, NDArray[np.float64]]:
        """The new axis, if any."""
        return {f"min_{name}": np.asarray(values, np.float64) for name, values in self.targets.items()}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What a point must meet; a target is one more condition, with a number for every place on the new axis."""
        reached = (Condition(name, ">=", axis) for name, axis in zip(self.targets, self._axes, strict=True))
        return (*super().conditions, *reached)

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """The best points of a result."""
        return super().of(ds.assign_coords(self._axes)).transpose(..., *self._axes)

    def choose(self, numbers: NamedArrays) -> Choice:
        """The same on the plain arrays of a block."""
        wider = replace(
            numbers,
            names=(*numbers.names, *self._axes),
            order=(*self._axes, *numbers.order),
            sizes={**numbers.sizes, **{axis: values.size for axis, values in self._axes.items()}},
            by_name={**numbers.by_name, **{axis: ((axis,), values) for axis, values in self._axes.items()}},
        )
        return super().choose(wider)
