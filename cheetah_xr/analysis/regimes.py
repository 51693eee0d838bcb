"""Classify the points of a grid by what bounds them, and find the largest batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ..errors import SpecError
from .best import with_derived
from .conditions import parse_all

BATCH = "batch"
BOUND_BY = ("compute", "weights", "kv", "activations", "communication", "overhead")
DOES_NOT_FIT, CANNOT_RUN = "does_not_fit", "invalid"


def regimes(ds: xr.Dataset) -> xr.DataArray:
    """Return what bounds each point: a resource, or that it does not fit, or that its layout is not valid.

    Parameters
    ----------
    ds
        A result with ``bottleneck`` and ``status``.

    Returns
    -------
    xarray.DataArray
        ``regime``, an int8 flag on the dims of both: compute, weights, kv, activations, communication, overhead (the
        resource with the largest attributed part of ``step_time``, memory by its largest cause), does_not_fit, invalid.
        :func:`flag_labels` gives its labels.

    Raises
    ------
    SpecError
        When a variable is missing, by name.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 9999], seq_len=2048, efficiency="ideal")
    >>> cx.analysis.flag_labels(regimes(ds)).values.tolist()
    ['weights', 'does_not_fit']
    """
    missing = [name for name in ("bottleneck", "status") if name not in ds]
    if missing:
        raise SpecError(f"regimes: the dataset has no {' and no '.join(missing)}")
    bottleneck, status = xr.broadcast(ds["bottleneck"], ds["status"])
    codes = dict(zip(str(ds["status"].attrs["flag_meanings"]).split(), ds["status"].attrs["flag_values"], strict=True))
    meanings = str(ds["bottleneck"].attrs["flag_meanings"]).split()
    order = np.array([BOUND_BY.index(meaning) for meaning in meanings], dtype=np.int8)
    runs = (status == codes["ok"]) | (status == codes["clipped"])
    other = np.where(status == codes["infeasible_memory"], len(BOUND_BY), len(BOUND_BY) + 1)
    regime = bottleneck.copy(data=np.where(runs, order[bottleneck.values], other).astype(np.int8))
    return regime.rename("regime").assign_attrs(
        units="1",
        long_name="what bounds a point",
        flag_values=np.arange(len(BOUND_BY) + 2, dtype=np.int8),
        flag_meanings=" ".join((*BOUND_BY, DOES_NOT_FIT, CANNOT_RUN)),
    )


def max_batch(ds: xr.Dataset, where: str | Sequence[str] | None = None) -> xr.DataArray:
    """Return the largest batch that fits in memory, or that of the axis that also meets conditions.

    Parameters
    ----------
    ds
        A result.
    where
        Conditions ``name op number`` ("tps_per_user >= 30"); None asks only what fits.

    Returns
    -------
    xarray.DataArray
        Without `where` the stored ``max_batch``: exact, whole. With it the largest label of the ``batch`` axis at which
        the point runs and all conditions hold; NaN where there is none.

    Raises
    ------
    SpecError
        When variables are missing, or there is no batch axis to choose on.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 16, 64, 256], seq_len=2048)
    >>> int(max_batch(ds)), int(max_batch(ds, where="tps_per_user >= 100"))
    (226, 16)
    """
    if where is None:
        if "max_batch" not in ds:
            raise SpecError("max_batch: the dataset has no max_batch")
        return ds["max_batch"]
    if BATCH not in ds.dims:
        raise SpecError(f"max_batch: the dataset has no {BATCH} axis")
    conditions = parse_all(where)
    ds = with_derived(ds, [c.name for c in conditions])
    if "step_time" not in ds:
        raise SpecError("max_batch: the dataset has no step_time")
    holds = ds["step_time"].notnull()
    for condition in conditions:
        holds = holds & condition.holds(ds)
    largest = ds[BATCH].where(holds).max(BATCH)
    described = {"units": "sequences", "long_name": f"largest batch where {' and '.join(map(str, _texts(where)))}"}
    return largest.rename("max_batch").assign_attrs(described)


def _texts(where: str | Sequence[str]) -> list[str]:
    return [where] if isinstance(where, str) else list(where)
