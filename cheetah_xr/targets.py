"""The best point for every value of a target: one reduction, one answer per value."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field, field_validator

from .analysis.best import with_derived
from .analysis.conditions import number, parse_all
from .analysis.derive import DERIVED
from .reductions import Best
from .variables import VARIABLES

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
    def needs(self) -> list[str]:
        """Variables and metrics the choice reads."""
        return [*super().needs, *self.targets]

    def of(self, ds: xr.Dataset) -> xr.Dataset:
        """The best points of a result."""
        if not self.targets:
            return super().of(ds)
        ((target, values),) = self.targets.items()
        ds = with_derived(ds, self.needs)
        allowed = ds[self.metric].notnull()
        for condition in parse_all(self.where):
            allowed = allowed & condition.holds(ds)
        allowed, score, reached = xr.broadcast(allowed, number(ds, self.metric), number(ds, target))
        dims = list(self.over)
        rest = [str(dim) for dim in score.dims if dim not in dims]
        sizes = {dim: ds.sizes[dim] for dim in dims}

        def flat(values: xr.DataArray) -> NDArray[np.generic]:
            whole = values.expand_dims({dim: n for dim, n in sizes.items() if dim not in values.dims})
            return whole.transpose(*rest, *dims).values.reshape(*(whole.sizes[dim] for dim in rest), -1)

        losing = np.inf if self.maximize is None else -np.inf
        candidates = np.where(flat(allowed), flat(score), losing)
        chosen = _chosen(candidates, flat(reached), np.asarray(values, dtype=np.float64), losing)
        axis = f"min_{target}"
        return self._picked(ds, chosen, sizes, [*rest, axis]).assign_coords({axis: np.asarray(values, np.float64)})

    def _picked(self, ds: xr.Dataset, chosen: NDArray[np.int64], sizes: dict[str, int], dims: list[str]) -> xr.Dataset:
        """Values and labels at the chosen points; NaN, -1 in flags and "" in labels where there is none."""
        over = set(sizes)
        found = xr.DataArray(chosen >= 0, dims=dims)
        places = np.unravel_index(np.maximum(chosen, 0), tuple(sizes.values()))
        at = {dim: xr.DataArray(place, dims=dims) for dim, place in zip(sizes, places, strict=True)}
        out = xr.Dataset(coords={name: coord for name, coord in ds.coords.items() if not set(coord.dims) & over})
        wanted = {name: ds[name] for name in dict.fromkeys([self.metric, *self.keep])}
        wanted |= {f"best_{name}": coord for name, coord in ds.coords.items() if set(coord.dims) & over}
        for name, values in wanted.items():
            picked = values.drop_vars(values.coords).isel({dim: i for dim, i in at.items() if dim in values.dims})
            if "flag_values" in values.attrs:
                picked = picked.where(found, np.int8(-1)).astype(np.int8)
            else:
                picked = picked.where(found) if picked.dtype.kind in "biuf" else picked.where(found, "")
            out[name] = picked.assign_attrs(values.attrs)
        return out.assign_attrs(ds.attrs)


def _chosen(
    score: NDArray[np.generic], reached: NDArray[np.generic], values: NDArray[np.float64], losing: float
) -> NDArray[np.int64]:
    """Index of the best candidate along the last axis for every value to be reached, -1 where there is none."""
    chosen = np.empty((*score.shape[:-1], len(values)), dtype=np.int64)
    for place, value in enumerate(values):
        allowed = np.where(reached >= value, score, losing)
        best = allowed.argmin(axis=-1) if losing > 0 else allowed.argmax(axis=-1)
        reachable = np.isfinite(np.take_along_axis(allowed, best[..., None], axis=-1)[..., 0])
        chosen[..., place] = np.where(reachable, best, -1)
    return chosen
