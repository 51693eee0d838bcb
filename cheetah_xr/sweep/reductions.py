"""Reductions a sweep file may ask for: records, and how a block is reduced."""

from __future__ import annotations

from typing import Annotated, Literal

import xarray as xr
from pydantic import Field, model_validator

from ..analysis.best import best
from ..analysis.choice import Choice, NamedArrays
from ..analysis.conditions import Condition, parse_all
from ..analysis.histogram import histogram
from ..analysis.search import find_best
from ..specs import Frozen

Dims = Annotated[list[str], Field(min_length=1, description="a list of axes")]


class Best(Frozen):
    """``best: {maximize: METRIC, over: [AXES], where: CONDITION, keep: [METRICS]}``: the best point along axes."""

    maximize: str | None = None
    minimize: str | None = None
    over: Dims
    where: str | list[str] | None = Field(None, description="'name op number', or a list of such")
    keep: list[str] = Field(default_factory=list, description="a list of variables and metrics")

    @model_validator(mode="after")
    def _one_aim(self) -> Best:
        if (self.maximize is None) == (self.minimize is None):
            raise ValueError("best: give one of maximize and minimize")
        parse_all(self.where)
        return self

    @property
    def metric(self) -> str:
        """What is made as large, or as small, as possible."""
        return str(self.maximize if self.maximize is not None else self.minimize)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What a point must meet."""
        return parse_all(self.where)

    @property
    def needs(self) -> list[str]:
        """Variables and metrics the choice reads."""
        return [self.metric, *self.keep, *(c.name for c in self.conditions)]

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """The best points of a result."""
        return best(ds, self.metric, self.over, self.conditions, keep=self.keep, minimize=self.maximize is None)

    def choose(self, numbers: NamedArrays) -> Choice:
        """The same on the plain arrays of a block."""
        return find_best(numbers, self.metric, self.over, self.conditions, minimize=self.maximize is None)


class Histogram(Frozen):
    """``histogram: {flag: bottleneck, over: [AXES]}``: how many points carry each flag."""

    flag: Literal["bottleneck", "status"] = "bottleneck"
    over: Dims

    @property
    def needs(self) -> list[str]:
        """Variables the counts read."""
        return [self.flag]

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """The counts of a result."""
        return histogram(ds, self.flag, self.over).to_dataset()
