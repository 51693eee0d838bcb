"""Pareto frontiers: the points no other point beats in both of two metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..errors import SpecError
from .best import with_derived
from .conditions import number

POINT = "point"

SAMPLE = 10_000
"""Points from which on a sample rules points out before the rest is sorted."""


def non_dominated(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which points no other point equals or beats in both numbers; of equal points the first.

    Parameters
    ----------
    x, y
        Numbers to be large, shape (n,); points with a NaN never qualify.

    Returns
    -------
    ndarray of bool
        Shape (n,). One sort and a running maximum, n log n; of many points most are ruled out by a sample first.
    """
    order = np.flatnonzero(~(np.isnan(x) | np.isnan(y)))
    if order.size > SAMPLE:
        order = order[_not_beaten(x[order], y[order])]
    order = order[np.lexsort((-y[order], -x[order]))]
    sorted_y = y[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(sorted_y)[:-1]))
    on_frontier = np.zeros(x.shape, dtype=bool)
    on_frontier[order[sorted_y > before]] = True
    if order.size and sorted_y[0] == -np.inf:
        on_frontier[order[0]] = True
    return on_frontier


def _not_beaten(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the points that no sampled point beats in `x` with at least their `y`: a superset of the frontier."""
    every = -(-x.size // SAMPLE)
    x_few, y_few = x[::every], y[::every]
    front = non_dominated(x_few, y_few)
    order = np.argsort(x_few[front])
    x_front, y_front = x_few[front][order], np.append(y_few[front][order], np.nan)
    beaten: NDArray[np.bool_] = y <= y_front[np.searchsorted(x_front, x, side="right")]
    return ~beaten


def pareto_mask(
    ds: xr.Dataset, x: str, y: str, over: Sequence[str] | str, *, minimize: Sequence[str] | str = ()
) -> xr.DataArray:
    """Mark the points on the Pareto frontier of two metrics.

    Parameters
    ----------
    ds
        A result.
    x, y
        Variables or derived metrics; more is better.
    over
        Dims to choose along; every point of the other dims has a frontier of its own.
    minimize
        Those of `x` and `y` of which less is better, such as "ttft".

    Returns
    -------
    xarray.DataArray
        bool, on the dims of both metrics. Points that cannot run are never on it; of equal points the first is.

    Raises
    ------
    SpecError
        For unknown names or dims.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64, 512], tp=[1, 2], seq_len=2048)
    >>> int(pareto_mask(ds, "tps_per_user", "throughput_per_gpu", ["tp", "batch"]).sum()) > 2
    True
    """
    ds, dims = _checked(ds, x, y, over, minimize)
    first, second = xr.broadcast(_signed(ds, x, minimize), _signed(ds, y, minimize))
    rest = [str(dim) for dim in first.dims if dim not in dims]
    order = [*rest, *dims]
    shape = [math.prod(first.sizes[dim] for dim in some) for some in (rest, dims)]
    pair = [values.transpose(*order).values.reshape(shape) for values in (first, second)]
    mask = np.zeros(shape, dtype=bool)
    for row, (a, b) in enumerate(zip(*pair, strict=True)):
        mask[row] = non_dominated(a, b)
    coords = {name: c for name, c in ds.coords.items() if set(c.dims) <= set(order)}
    marked = xr.DataArray(mask.reshape([first.sizes[dim] for dim in order]), dims=order, coords=coords)
    described = {"long_name": f"on the Pareto frontier of {x} and {y}, over {', '.join(dims)}"}
    return marked.transpose(*first.dims).assign_attrs(described).rename("pareto")


def pareto(
    ds: xr.Dataset,
    x: str,
    y: str,
    over: Sequence[str] | str,
    *,
    minimize: Sequence[str] | str = (),
    keep: Sequence[str] | str = (),
) -> xr.Dataset:
    """Return the Pareto frontier of two metrics, point by point.

    Parameters
    ----------
    ds, x, y, over, minimize
        As for :func:`pareto_mask`.
    keep
        Other variables or metrics to report on the frontier.

    Returns
    -------
    xarray.Dataset
        On dim ``point``, sorted by `x`: `x`, `y`, `keep`, and every label of the point as a coordinate (batch, tp,
        precision, ...). With dims that are not in `over` the frontiers follow one another, with those dims' labels as
        coordinates.

    Raises
    ------
    SpecError
        For unknown names or dims.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64], tp=[1, 2], seq_len=2048)
    >>> front = pareto(ds, "tps_per_user", "throughput_per_gpu", ["tp", "batch"])
    >>> bool((front.tps_per_user.diff("point") > 0).all())
    True
    """
    ds, dims = _checked(ds, x, y, over, minimize)
    ds = with_derived(ds, _names(keep))
    mask = pareto_mask(ds, x, y, dims, minimize=minimize)
    order = [*(str(dim) for dim in mask.dims if dim not in dims), *dims]
    places = np.argwhere(mask.transpose(*order).values)
    at = {dim: xr.DataArray(places[:, axis], dims=POINT) for axis, dim in enumerate(order)}
    kept = ds[list(dict.fromkeys([x, y, *_names(keep)]))]
    left = [str(dim) for dim in kept.dims if dim not in order]
    if left:
        raise SpecError(f"pareto: keep has dims {', '.join(left)} that {x} and {y} do not have")
    chosen = kept.isel(at)
    groups = [places[:, order.index(dim)] for dim in order if dim not in dims]
    return chosen.isel({POINT: np.lexsort((chosen[x].values, *reversed(groups)))})


def _checked(
    ds: xr.Dataset, x: str, y: str, over: Sequence[str] | str, minimize: Sequence[str] | str
) -> tuple[xr.Dataset, list[str]]:
    dims = list(dict.fromkeys(_names(over)))
    ds = with_derived(ds, [x, y])
    present = list(dict.fromkeys([*number(ds, x).dims, *number(ds, y).dims]))
    absent = [dim for dim in dims if dim not in present]
    if absent or not dims:
        raise SpecError(f"pareto: over {', '.join(absent) or 'nothing'}; dims are {', '.join(map(str, present))}")
    strange = [name for name in _names(minimize) if name not in (x, y)]
    if strange:
        raise SpecError(f"pareto: minimize {', '.join(strange)}: expected {x} or {y}")
    return ds, dims


def _names(names: Sequence[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _signed(ds: xr.Dataset, name: str, minimize: Sequence[str] | str) -> xr.DataArray:
    values = ds[name].astype(np.float64)
    return -values if name in _names(minimize) else values
