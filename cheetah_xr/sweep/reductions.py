"""Reductions a sweep file may request: their records, and how a block is reduced."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from ..analysis.best import best
from ..analysis.choice import Choice, NamedArrays
from ..analysis.conditions import Condition, parse_all
from ..analysis.derive import DERIVED
from ..analysis.histogram import histogram
from ..analysis.search import find_best
from ..engine.variables import VARIABLES
from ..specs import Frozen

Dims = Annotated[list[str], Field(min_length=1, description="a list of axes")]
Targets = Annotated[list[float], Field(min_length=1, max_length=1000)]


class Best(Frozen):
    """``best: {maximize: METRIC, over: [AXES], where: CONDITION, keep: [METRICS]}``: the best point along axes.

    With ``targets: {NAME: [VALUES]}`` it is the best point that reaches each value, on a new axis ``min_NAME``.
    """

    maximize: str | None = None
    minimize: str | None = None
    over: Dims
    where: str | list[str] | None = Field(None, description="'name op number', or a list of such")
    keep: list[str] = Field(default_factory=list, description="a list of variables and metrics")
    targets: Annotated[dict[str, Targets], Field(max_length=1)] = Field(
        default_factory=dict, description="one name and a list of numbers, such as {tps_per_user: [10, 50]}"
    )

    @model_validator(mode="after")
    def _one_objective(self) -> Best:
        if (self.maximize is None) == (self.minimize is None):
            raise ValueError("best: give one of maximize and minimize")
        parse_all(self.where)
        return self

    @field_validator("targets")
    @classmethod
    def _distinct_targets(cls, targets: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, values in targets.items():
            if name not in (*DERIVED, *VARIABLES):
                raise ValueError(f"best: targets: unknown metric {name!r}; known: {', '.join(DERIVED)}")
            if len(set(values)) != len(values):
                raise ValueError(f"best: targets: {name}: values are given once each, got {values}")
        return targets

    @property
    def metric(self) -> str:
        """Return the metric that is maximized or minimized."""
        return str(self.maximize if self.maximize is not None else self.minimize)

    @property
    def target_axes(self) -> dict[str, NDArray[np.float64]]:
        """Return the values of the new axis by its name; empty without targets."""
        return {f"min_{name}": np.asarray(values, np.float64) for name, values in self.targets.items()}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Return what a point must meet; a target is one more condition, with a value per index of the new axis."""
        axes = zip(self.targets, self.target_axes, strict=True)
        return (*parse_all(self.where), *(Condition(name, ">=", axis) for name, axis in axes))

    @property
    def needs(self) -> list[str]:
        """Return the variables and metrics the choice reads."""
        return [self.metric, *self.keep, *(c.name for c in self.conditions)]

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """Return the best points of a result."""
        axes, minimize = self.target_axes, self.maximize is None
        if axes:
            ds = ds.assign_coords(axes)
        points = best(ds, self.metric, self.over, self.conditions, keep=self.keep, minimize=minimize)
        return points.transpose(..., *axes)

    def choose(self, arrays: NamedArrays) -> Choice:
        """Choose the best points on the plain arrays of a block."""
        axes = self.target_axes
        with_targets = replace(
            arrays,
            names=(*arrays.names, *axes),
            order=(*axes, *arrays.order),
            sizes={**arrays.sizes, **{axis: values.size for axis, values in axes.items()}},
            by_name={**arrays.by_name, **{axis: ((axis,), values) for axis, values in axes.items()}},
        )
        return find_best(with_targets, self.metric, self.over, self.conditions, minimize=self.maximize is None)


class Histogram(Frozen):
    """``histogram: {flag: bottleneck, over: [AXES]}``: how many points carry each flag."""

    flag: Literal["bottleneck", "status"] = "bottleneck"
    over: Dims

    @property
    def needs(self) -> list[str]:
        """Return the variables the counts read."""
        return [self.flag]

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """Count the points of a result under every flag."""
        return histogram(ds, self.flag, self.over).to_dataset()
