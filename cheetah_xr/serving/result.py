"""Results of a serving question: variables, units, status, and what more requests would run into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ..engine.evaluator import attributes, dataset_attributes, prepare
from ..engine.posterior_axis import RESIDUAL_SCALE, RESIDUAL_SCALE_PREFILL, between
from ..engine.validity import CODES, NOT_COMPUTED
from .pool import Pool

LIMITS = {"concurrency": 0, "kv_cache_capacity": 1, "prefill": 2}
"""Why no more requests decode at once: there are none, the KV cache is full, or prefill is no faster."""

VARIABLES = {
    "running": ("requests", "requests that decode at once"),
    "tpot": ("s", "mean time per output token after the first"),
    "tps_per_user": ("1/s", "output tokens/s of one request"),
    "throughput": ("1/s", "output tokens/s of all requests"),
    "throughput_per_gpu": ("1/s", "output tokens/s of all requests over all GPUs"),
    "prefill_time": ("s", "time of the passes that prefill a prompt"),
    "kv_transfer_time": ("s", "time to hand the cache of a prompt to the decode pool"),
    "queue_time": ("s", "mean time before the prefill of a request begins"),
    "ttft": ("s", "time to first token, waiting included"),
    "e2e": ("s", "time from request to last token"),
}

NOT_SHOWN = ("batch", "seq_len", "phase")


def result(
    pool: Pool,
    given: Mapping[str, xr.DataArray],
    values: Mapping[str, xr.DataArray],
    codes: Mapping[str, xr.DataArray],
    share: xr.DataArray,
    *,
    hidden: tuple[str, ...] = (),
    n_gpus: xr.DataArray | None = None,
) -> xr.Dataset:
    """Wrap values with coordinates, units and attributes; where the status is not ok they are NaN.

    Parameters
    ----------
    pool
        The pool whose coordinates and records the result shows.
    given
        Numbers of the question, with the labels of their dims.
    values
        Variables of :data:`VARIABLES`.
    codes
        ``status`` and ``limit``.
    share
        Share of ``tpot`` that prompts of others take: errors of measurement are between those of passes and of what
        such prompts add.
    hidden
        Coordinates of the pool that are not shown.
    n_gpus
        GPUs, where they are not those of one instance.
    """
    ok = codes["status"] == CODES["ok"]
    shown = {k: v for k, v in pool.grid.coords.items() if k not in {*NOT_SHOWN, *hidden}}
    ds = xr.Dataset(coords=shown)
    if n_gpus is not None:
        ds = ds.assign_coords(n_gpus=n_gpus.assign_attrs(units="1", long_name="GPUs of both pools"))
    for name, numbers in given.items():
        ds = ds.assign_coords({name: (numbers.dims, numbers.values, numbers.attrs)})
        ds = ds.assign_coords({dim: labels.values for dim, labels in numbers.coords.items() if dim not in ds.coords})
    for name, (units, words) in VARIABLES.items():
        if name in values:
            ds[name] = values[name].where(ok).assign_attrs(units=units, long_name=words)
    limit = codes["limit"].where(ok, NOT_COMPUTED).astype(np.int8)
    ds["limit"] = limit.assign_attrs(_flags("why no more requests decode at once", LIMITS))
    ds["status"] = codes["status"].astype(np.int8).assign_attrs(attributes("status"))
    if pool.axes.errors:
        passes, prompts = (
            one.drop_vars(list(one.coords)) for one in (ds[RESIDUAL_SCALE], pool.axes.errors[RESIDUAL_SCALE_PREFILL])
        )
        both: xr.DataArray = np.exp(between(np.log(passes), np.log(prompts), share.where(ok)))
        ds = ds.assign_coords({RESIDUAL_SCALE: both.assign_attrs(passes.attrs)})
    order = [*pool.grid.dims, *(dim for numbers in given.values() for dim in numbers.dims)]
    return ds.transpose(*dict.fromkeys(dim for dim in order if dim in ds.dims)).assign_attrs(
        dataset_attributes(prepare(pool.axes, ["status"]))
    )


def limit_of(full: xr.DataArray, prefill: xr.DataArray) -> xr.DataArray:
    """Codes of :data:`LIMITS`, from where the cache is full and where prefill is no faster."""
    return full * LIMITS["kv_cache_capacity"] + (prefill & ~full) * LIMITS["prefill"]


def _flags(words: str, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "units": "1",
        "long_name": words,
        "flag_values": np.array(list(codes.values()), dtype=np.int8),
        "flag_meanings": " ".join(codes),
        "comment": "-1 means not computed",
    }
