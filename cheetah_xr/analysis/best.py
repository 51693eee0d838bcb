"""Find the best point along some axes, under conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray as xr

from ..engine.dims import LEADING, PHASE, TRAILING, canonical
from ..errors import SpecError
from .choice import NamedArrays
from .conditions import Condition, number, parse_all
from .derive import COMPUTED_INPUTS, DERIVED, derive
from .search import find_best


def with_derived(ds: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """Return the dataset with those of `names` derived that it does not have.

    Raises
    ------
    SpecError
        For a name that is neither in the dataset nor derived.
    """
    missing = [name for name in dict.fromkeys(names) if name not in ds.variables]
    unknown = [name for name in missing if name not in DERIVED]
    if unknown:
        known = ", ".join([*map(str, ds.data_vars), *DERIVED])
        raise SpecError(f"{', '.join(unknown)}: neither in the dataset nor a derived metric; known: {known}")
    return derive(ds, missing) if missing else ds


def best(
    ds: xr.Dataset,
    maximize: str,
    over: Sequence[str] | str,
    where: str | Sequence[str | Condition] | None = None,
    *,
    keep: Sequence[str] = (),
    minimize: bool = False,
) -> xr.Dataset:
    """Find the best point along some axes.

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
    >>> chosen = best(ds, "throughput", "batch", where="tps_per_user >= 100")
    >>> int(chosen.best_batch)
    16
    """
    dims = [over] if isinstance(over, str) else list(over)
    conditions = parse_all(where)
    absent = [dim for dim in dims if dim not in ds.dims]
    if absent or not dims:
        raise SpecError(f"best: over {', '.join(absent) or 'nothing'}; dims are {', '.join(map(str, ds.dims))}")
    names = list(dict.fromkeys([maximize, *keep]))
    compared = [name for c in conditions for name in c.names]
    # Names, units and meanings are looked up on a corner of the dataset.
    corner = with_derived(ds.isel({dim: slice(0, 1) for dim in ds.dims if dim != PHASE}), [*names, *compared])
    for name in (maximize, *compared):
        number(corner, name)
    along = [str(name) for name, coord in ds.coords.items() if set(coord.dims) & set(dims)]
    inputs = named_arrays(ds, [*names, *compared, *along])
    choice = find_best(inputs, maximize, dims, conditions, minimize=minimize)
    out = xr.Dataset(coords={name: coord for name, coord in ds.coords.items() if not set(coord.dims) & set(dims)})
    for label, name in [*((name, name) for name in names), *((f"best_{name}", name) for name in along)]:
        out[label] = (*choice.pick(name), corner[name].attrs)
    return out.assign_attrs(ds.attrs)


def named_arrays(ds: xr.Dataset, names: Sequence[str]) -> NamedArrays:
    """Return variables of a dataset and the inputs of metrics among `names`, laid out from short axes to long."""
    needed = dict.fromkeys([*names, PHASE] if PHASE in ds.coords else names)
    for name in names:
        if name not in ds.variables:
            needed |= dict.fromkeys((*DERIVED[name].needs, *DERIVED[name].computed))
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {}
    for name in needed:
        values = COMPUTED_INPUTS[name](ds) if name in COMPUTED_INPUTS else ds[name] if name in ds.variables else None
        if values is not None:
            labelled = xr.DataArray(values)
            arrays[name] = tuple(map(str, labelled.dims)), labelled.values
    sizes = {str(dim): n for dim, n in ds.sizes.items()}
    order = canonical(tuple(dim for dim in sizes if dim not in (*LEADING, *TRAILING)))
    return NamedArrays(
        tuple(dim for dim in order if dim in sizes), tuple(sorted(sizes, key=lambda dim: sizes[dim])), sizes, arrays
    )
