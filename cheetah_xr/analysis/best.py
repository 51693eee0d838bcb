"""The best point along some axes, under conditions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ..specs import SpecError
from .conditions import number, parse_all
from .derive import DERIVED, derive


def with_derived(ds: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """The dataset with those of `names` derived that it does not have.

    Raises
    ------
    SpecError
        For a name that is neither in the dataset nor derived.
    """
    missing = [name for name in dict.fromkeys(names) if name not in ds.variables]
    unknown = [name for name in missing if name not in DERIVED]
    if unknown:
        known = ", ".join([*map(str, ds.data_vars), *DERIVED])
        raise SpecError(f"{', '.join(unknown)}: neither in the dataset nor a derived metric; there are {known}")
    return derive(ds, missing) if missing else ds


def best(
    ds: xr.Dataset,
    maximize: str,
    over: Sequence[str] | str,
    where: str | Sequence[str] | None = None,
    *,
    keep: Sequence[str] = (),
    minimize: bool = False,
) -> xr.Dataset:
    """The best point along some axes.

    Parameters
    ----------
    ds
        A result.
    maximize
        Variable or derived metric to make as large as possible.
    over
        Dims to choose along.
    where
        Condition or conditions a point must meet, ``name op number`` ("tps_per_user >= 50").
    keep
        Other variables or metrics to report at the chosen point.
    minimize
        Make `maximize` as small as possible instead.

    Returns
    -------
    xarray.Dataset
        On the remaining dims: `maximize`, `keep`, and for every dim of `over` its label at the chosen point as
        ``best_<dim>`` (and ``best_<coordinate>`` for the coordinates along it, such as tp and ep along ``layout``).
        NaN, -1 or "" where no point qualifies. Of equal points the first in the order of the dims is taken.

    Raises
    ------
    SpecError
        For unknown names, dims or conditions.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 16, 64, 256], seq_len=2048)
    >>> found = best(ds, "throughput", "batch", where="tps_per_user >= 100")
    >>> int(found.best_batch)
    16
    """
    dims = [over] if isinstance(over, str) else list(over)
    conditions = parse_all(where)
    absent = [dim for dim in dims if dim not in ds.dims]
    if absent or not dims:
        raise SpecError(f"best: over {', '.join(absent) or 'nothing'}; dims are {', '.join(map(str, ds.dims))}")
    ds = with_derived(ds, [maximize, *keep, *(c.name for c in conditions)])
    values = number(ds, maximize).astype(np.float64)
    for condition in conditions:
        values = values.where(condition.holds(ds))
    missing = [dim for dim in dims if dim not in values.dims]
    values = values.expand_dims({dim: ds.sizes[dim] for dim in missing})
    rest = [str(dim) for dim in values.dims if dim not in dims]
    flat = values.transpose(*rest, *dims).values.reshape(*(values.sizes[dim] for dim in rest), -1)
    score = np.where(np.isnan(flat), np.inf, flat if minimize else -flat)
    chosen = score.argmin(axis=-1)
    found = np.isfinite(np.take_along_axis(score, chosen[..., None], -1)[..., 0])
    at = dict(zip(dims, np.unravel_index(chosen, [values.sizes[dim] for dim in dims]), strict=True))
    where_at = {dim: xr.DataArray(index, dims=rest) for dim, index in at.items()}
    ok = xr.DataArray(found, dims=rest)
    out = xr.Dataset(coords={name: coord for name, coord in ds.coords.items() if not set(coord.dims) & set(dims)})
    for name in dict.fromkeys([maximize, *keep]):
        out[name] = _picked(ds[name], where_at, ok)
    for label, coord in ds.coords.items():
        if set(coord.dims) & set(dims):
            out[f"best_{label}"] = _picked(coord, where_at, ok)
    return out.assign_attrs(ds.attrs)


def _picked(values: xr.DataArray, at: dict[str, xr.DataArray], ok: xr.DataArray) -> xr.DataArray:
    """Values at the chosen point; NaN, -1 in flags and "" in labels where there is none."""
    picked = values.drop_vars(values.coords).isel({dim: index for dim, index in at.items() if dim in values.dims})
    if "flag_values" in values.attrs:
        return picked.where(ok, np.int8(-1)).astype(np.int8).assign_attrs(values.attrs)
    if not np.issubdtype(picked.dtype, np.number):
        return picked.where(ok, "").assign_attrs(values.attrs)
    return picked.where(ok).assign_attrs(values.attrs)
