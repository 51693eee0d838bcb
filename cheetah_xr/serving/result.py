"""Build the result of a serving model: variables, units, status, and what limits concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ..engine.evaluator import attributes, dataset_attributes
from ..engine.inputs.posterior_axis import RESIDUAL_SCALE, RESIDUAL_SCALE_PREFILL, between
from ..engine.validity import CODES, NOT_COMPUTED
from .instance import Instance

LIMITS = {"concurrency": 0, "kv_cache_capacity": 1, "prefill": 2}
"""What limits the requests that decode concurrently: their number, the KV-cache capacity, or the rate of prefill."""

VARIABLES = {
    "running": ("requests", "requests that decode concurrently"),
    "tpot": ("s", "mean time per output token after the first"),
    "tps_per_user": ("1/s", "output tokens/s of one request"),
    "throughput": ("1/s", "output tokens/s of all requests"),
    "throughput_per_gpu": ("1/s", "output tokens/s of all requests over all GPUs"),
    "prefill_time": ("s", "time of the forward passes that prefill a prompt"),
    "kv_transfer_time": ("s", "KV-cache transfer time of a prompt to the decode instances"),
    "queue_time": ("s", "mean time a request waits before its prefill"),
    "ttft": ("s", "time to first token, queue time included"),
    "e2e": ("s", "time from request to last token"),
}

NOT_SHOWN = ("batch", "seq_len", "phase")


def result(
    instance: Instance,
    given: Mapping[str, xr.DataArray],
    values: Mapping[str, xr.DataArray],
    codes: Mapping[str, xr.DataArray],
    interference: xr.DataArray,
    *,
    hidden: tuple[str, ...] = (),
    n_gpus: xr.DataArray | None = None,
) -> xr.Dataset:
    """Return values with coordinates, units and attributes; NaN where the status is not ok.

    Parameters
    ----------
    instance
        The instances whose coordinates and records the result shows.
    given
        Numbers of the workload and layout as given, with the labels of their dims.
    values
        Variables of :data:`VARIABLES`.
    codes
        ``status`` and ``limit``.
    interference
        Fraction of ``tpot`` that is prefill interference: the residual scale lies between that of forward passes and
        that of prefill interference.
    hidden
        Coordinates of the instance that are not shown.
    n_gpus
        GPUs of all instances, where there are several.
    """
    ok = codes["status"] == CODES["ok"]
    shown = {k: v for k, v in instance.grid.coords.items() if k not in {*NOT_SHOWN, *hidden}}
    ds = xr.Dataset(coords=shown)
    if n_gpus is not None:
        ds = ds.assign_coords(n_gpus=n_gpus.assign_attrs(units="1", long_name="GPUs of prefill and decode instances"))
    for name, numbers in given.items():
        ds = ds.assign_coords({name: (numbers.dims, numbers.values, numbers.attrs)})
        ds = ds.assign_coords({dim: labels.values for dim, labels in numbers.coords.items() if dim not in ds.coords})
    for name, (units, long_name) in VARIABLES.items():
        if name in values:
            ds[name] = values[name].where(ok).assign_attrs(units=units, long_name=long_name)
    limit = codes["limit"].where(ok, NOT_COMPUTED).astype(np.int8)
    ds["limit"] = limit.assign_attrs(_flags("what limits the requests that decode concurrently", LIMITS))
    ds["status"] = codes["status"].astype(np.int8).assign_attrs(attributes("status"))
    if instance.axes.errors:
        forward_pass, prefill = (
            scale.drop_vars(list(scale.coords))
            for scale in (ds[RESIDUAL_SCALE], instance.axes.errors[RESIDUAL_SCALE_PREFILL])
        )
        both: xr.DataArray = np.exp(between(np.log(forward_pass), np.log(prefill), interference.where(ok)))
        ds = ds.assign_coords({RESIDUAL_SCALE: both.assign_attrs(forward_pass.attrs)})
    order = [*instance.grid.dims, *(dim for numbers in given.values() for dim in numbers.dims)]
    return ds.transpose(*dict.fromkeys(dim for dim in order if dim in ds.dims)).assign_attrs(
        dataset_attributes(instance.grid)
    )


def limit_of(cache_full: xr.DataArray, prefill_saturated: xr.DataArray) -> xr.DataArray:
    """Return codes of :data:`LIMITS`, from where the KV cache is full and where prefill is saturated."""
    return cache_full * LIMITS["kv_cache_capacity"] + (prefill_saturated & ~cache_full) * LIMITS["prefill"]


def _flags(long_name: str, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "units": "1",
        "long_name": long_name,
        "flag_values": np.array(list(codes.values()), dtype=np.int8),
        "flag_meanings": " ".join(codes),
        "comment": "-1 means not computed",
    }
