"""Disaggregated serving: one pool of instances prefills, another decodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..costmodel.formulas import serving as terms
from ..engine.arguments import GpuLike, IntsLike, ModelLike, PrecisionLike, RecordArguments, spelled_out
from ..engine.dims import BATCH, PARALLEL
from ..engine.validity import CODES
from ..specs import SpecError
from .load import Load, load_of, numbers, serving_axes
from .pool import Pool, Seconds, code_where, context_of, first_reason, smaller
from .result import limit_of, result

SHOULDER = 16
"""Every batch up to this one is priced; above, four to a doubling, and times between them are interpolated."""


@spelled_out(RecordArguments, after="transfer_bandwidth")
def serve_disaggregated(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    concurrency: IntsLike,
    isl: IntsLike,
    osl: IntsLike,
    prefill_workers: IntsLike = 1,
    prefill_tp: IntsLike = 1,
    prefill_dp: IntsLike = 1,
    prefill_ep: IntsLike = 1,
    decode_workers: IntsLike = 1,
    decode_tp: IntsLike = 1,
    decode_dp: IntsLike = 1,
    decode_ep: IntsLike = 1,
    chunked_prefill_size: IntsLike = 8192,
    transfer_bandwidth: float | None = None,
    max_bytes: float = 4e9,
    **arguments: Unpack[RecordArguments],
) -> xr.Dataset:
    """Serve a fixed number of requests with a pool of instances that prefill and a pool of instances that decode.

    Arguments become axes as in :func:`cheetah_xr.serve`. Formulas and limits: docs/explanation/serving-model.md.

    Parameters
    ----------
    model, gpu, precision, efficiency, overrides, scales, max_bytes
        As in :func:`cheetah_xr.evaluate`, the same for both pools.
    concurrency, isl, osl, options
        As in :func:`cheetah_xr.serve`.
    prefill_workers, decode_workers
        Instances of each pool.
    prefill_tp, prefill_dp, prefill_ep, decode_tp, decode_dp, decode_ep
        Layout of one instance of each pool.
    chunked_prefill_size
        Prompt tokens an attention rank prefills in one pass: several short prompts, or a part of a long one.
    transfer_bandwidth
        Bytes/s at which one GPU hands its part of a prompt's cache over; by default that of its link where both pools
        are inside one link domain, else that of its NIC.

    Returns
    -------
    xarray.Dataset
        As :func:`cheetah_xr.serve`, and ``kv_transfer_time``; ``running`` is a mean. ``limit`` names what keeps more
        requests from decoding: the "kv_cache_capacity" of the decode pool, or the rate of "prefill".

    Raises
    ------
    SpecError
        Naming the argument or file, its value and what is allowed; when a result is above `max_bytes`.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.serve_disaggregated(
    ...     "llama-3.1-70b", "h100-sxm", "fp8", concurrency=64, isl=8192, osl=256, prefill_tp=2, decode_tp=4,
    ...     prefill_workers=[1, 4, 16],
    ... )
    >>> ds.limit.values.tolist(), [round(float(t) * 1e3, 1) for t in ds.tpot]
    ([2, 2, 0], [13.2, 18.8, 29.8])
    """
    layout = {
        "prefill_workers": prefill_workers, "prefill_tp": prefill_tp, "prefill_dp": prefill_dp,
        "prefill_ep": prefill_ep, "decode_workers": decode_workers, "decode_tp": decode_tp, "decode_dp": decode_dp,
        "decode_ep": decode_ep,
    }  # fmt: skip
    load = {"concurrency": concurrency, "isl": isl, "osl": osl, "chunked_prefill_size": chunked_prefill_size}
    given = numbers({**load, **layout}, forbidden=PARALLEL)

    def pool(name: str) -> Pool:
        degrees: dict[str, Any] = {degree: given[f"{name}_{degree}"] for degree in PARALLEL}
        axes, grid = serving_axes(model, gpu, precision, **degrees, **arguments)
        return Pool(axes, grid, load_of(given, grid), max_bytes)

    pools = Pools(pool("prefill"), pool("decode"), _bandwidth(transfer_bandwidth))
    return result(pools.decode, given, *pools.served(), hidden=PARALLEL, n_gpus=pools.n_gpus)


def _bandwidth(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < np.inf:
        raise SpecError(f"transfer_bandwidth: expected bytes/s above 0, got {value!r}")
    return float(value)


def batches(most: int) -> NDArray[np.int64]:
    """Batches that are priced, the same whatever `most` is but for where they end: at the first that is not below."""
    found = list(range(1, SHOULDER + 1))
    while found[-1] < most:
        found.append(max(found[-1] + 1, round(SHOULDER * 2 ** ((len(found) + 1 - SHOULDER) / 4))))
    return np.array(found, dtype=np.int64)


def interpolated(knots: NDArray[Any], values: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
    """Values, whose last axis is along `knots`, at one number for each of the others; constant below the first knot."""
    inside = np.clip(at, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, max(len(knots) - 2, 0))
    right = np.minimum(left + 1, len(knots) - 1)
    share = (inside - knots[left]) / np.maximum(knots[right] - knots[left], 1)
    low, high = (np.take_along_axis(values, i[..., None], -1)[..., 0] for i in (left, right))
    return np.asarray(low + share * (high - low))


@dataclass(frozen=True)
class Pools:
    """Both pools, and the rate of one GPU between them if it is given."""

    prefill: Pool
    decode: Pool
    bandwidth: float | None

    @property
    def load(self) -> Load:
        """What is served."""
        return self.decode.load

    @property
    def n_gpus(self) -> xr.DataArray:
        """GPUs of both pools."""
        prefill = self.load["prefill_workers"] * self.prefill.beside("n_gpus")
        return prefill + self.load["decode_workers"] * self.decode.beside("n_gpus")

    def served(self) -> tuple[dict[str, xr.DataArray], dict[str, xr.DataArray], xr.DataArray]:
        """Values and codes of the result, and the share of the time per token that prompts take: none."""
        load, workers = self.load, self.load["decode_workers"]
        prompts = self._prompts()
        prefill, (transfer, lacking) = self.prefill.prefill(prompts), self._transfer()
        first, capacity = prefill.time + transfer, load["prefill_workers"] * prompts / prefill.time
        accepted, context = self.decode.accepted(), context_of(self.decode)
        steps = (load["osl"] - 1) / accepted
        knots = batches(math.ceil(float((load["concurrency"] / workers).max())))
        table = self.decode.decode(xr.DataArray(knots, dims=BATCH), context)
        most = self.decode.most(context) * workers
        found, step = _balance(table, knots, workers, most, (load["concurrency"], first, capacity, steps))
        running = smaller(found, most)
        rate = running / (steps * step)
        waiting = terms.queue_time(load["concurrency"], running, first, rate)
        tpot = step / accepted
        values = {
            "running": running,
            "tpot": tpot,
            "tps_per_user": 1 / tpot,
            "throughput": load["osl"] * rate,
            "throughput_per_gpu": load["osl"] * rate / self.n_gpus,
            "prefill_time": prefill.time,
            "kv_transfer_time": transfer,
            "queue_time": waiting,
            "ttft": waiting + first,
            "e2e": waiting + first + (load["osl"] - 1) * tpot,
        }
        busy = rate >= capacity * (1 - 1e-9)
        status = first_reason(self._status(), prefill.status, table.status.max(BATCH), lacking)
        return values, {"status": status, "limit": limit_of(most < found, busy)}, xr.zeros_like(tpot)

    def _status(self) -> xr.DataArray:
        """Why a request cannot be served in one of the pools."""
        load = self.load
        prefill = self.prefill.status(load["isl"] - load.cached, "prefill", load.cached)
        return first_reason(self.decode.status(load["isl"] + load["osl"]), prefill)

    def _prompts(self) -> xr.DataArray:
        """Prompts of one pass: those that fill it, as far as there are any and the cache holds them."""
        load, new = self.load, self.load["isl"] - self.load.cached
        under_way = -(-load["concurrency"] // load["prefill_workers"])
        found = smaller(
            terms.prefill_batch_within_budget(load["chunked_prefill_size"], new, self.prefill.dp), under_way
        )
        if self.prefill.counts_memory:
            most = self.prefill.held(new, "prefill", load.cached)["max_batch"]
            found = smaller(found, most.where(most >= 1, 1))
        return found.astype(np.int64)

    def _transfer(self) -> tuple[xr.DataArray, xr.DataArray]:
        """Time to hand the cache of a prompt over, and why it is not known."""
        isl = self.load["isl"]
        sent, taken = (pool.held(isl)["kv_bytes_per_sequence"] for pool in (self.prefill, self.decode))
        size = np.maximum(sent, taken)
        if self.bandwidth is not None:
            return terms.kv_transfer_time(size, self.bandwidth), xr.DataArray(np.int8(CODES["ok"]))
        near = self.n_gpus <= self.decode.input("gpu.link_domain")
        rate = self.decode.input("gpu.link_bandwidth").where(near, self.decode.input("gpu.nic_bandwidth"))
        lacking = first_reason(code_where(rate.isnull() & near, "no_link"), code_where(rate.isnull() & ~near, "no_nic"))
        return terms.kv_transfer_time(size, rate), lacking


def _balance(
    table: Seconds,
    knots: NDArray[Any],
    workers: xr.DataArray,
    most: xr.DataArray,
    conditions: tuple[xr.DataArray, xr.DataArray, xr.DataArray, xr.DataArray],
) -> tuple[xr.DataArray, xr.DataArray]:
    """Requests that would decode at once in an endless cache, and the time of the steps of those the cache holds."""
    one, workers, most, concurrency, first, capacity, steps = xr.broadcast(
        table.time.isel({BATCH: 0}), workers, most, *conditions
    )
    values = (table.time + xr.zeros_like(one)).transpose(*one.dims, BATCH).values

    def decode(n: NDArray[Any]) -> NDArray[Any]:
        return interpolated(knots, values, n / workers.values)

    found = terms.decode_concurrency(concurrency.values, first.values, capacity.values, steps.values, decode)
    step = decode(np.fmin(found, most.values))
    return xr.DataArray(found, dims=one.dims), xr.DataArray(step, dims=one.dims)
