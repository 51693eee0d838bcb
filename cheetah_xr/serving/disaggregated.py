"""Disaggregated serving (P/D disaggregation): some instances prefill, others decode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..costmodel.formulas import serving as formulas
from ..engine.dims import BATCH, PARALLEL
from ..engine.inputs.arguments import GpuLike, IntsLike, ModelLike, PrecisionLike, RecordArguments, spelled_out
from ..engine.validity import CODES
from ..specs import SpecError
from .instance import Instance, Seconds, code_where, context_of, first_reason, smaller
from .result import limit_of, result
from .workload import Workload, numbers, serving_axes, workload_of

EVERY_BATCH_UP_TO = 16
"""Every decode batch up to this one is evaluated; above, four to a doubling, with times between interpolated."""


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
    """Serve a fixed number of concurrent requests with disaggregated prefill and decode (P/D disaggregation).

    Arguments become axes as in :func:`cheetah_xr.serve`. Formulas and limits: docs/explanation/serving-model.md.

    Parameters
    ----------
    model, gpu, precision, efficiency, overrides, scales, max_bytes
        As in :func:`cheetah_xr.evaluate`, the same for prefill and decode.
    concurrency, isl, osl, options
        As in :func:`cheetah_xr.serve`.
    prefill_workers, decode_workers
        Instances that prefill, and instances that decode.
    prefill_tp, prefill_dp, prefill_ep, decode_tp, decode_dp, decode_ep
        Layout of one instance of each kind.
    chunked_prefill_size
        Prompt tokens an attention rank prefills in one forward pass: several short prompts, or a chunk of a long one.
    transfer_bandwidth
        Bandwidth of the KV-cache transfer per GPU (bytes/s); by default that of the scale-up link where all GPUs are in
        one scale-up domain, else that of the scale-out NIC.

    Returns
    -------
    xarray.Dataset
        As :func:`cheetah_xr.serve`, and ``kv_transfer_time``; ``running`` is a mean. ``limit`` says what limits the
        requests that decode concurrently: the "kv_cache_capacity" of the decode instances, or the rate of "prefill".

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
    workload = {"concurrency": concurrency, "isl": isl, "osl": osl, "chunked_prefill_size": chunked_prefill_size}
    given = numbers({**workload, **layout}, forbidden=PARALLEL)

    def instance(role: str) -> Instance:
        degrees: dict[str, Any] = {degree: given[f"{role}_{degree}"] for degree in PARALLEL}
        axes, grid = serving_axes(model, gpu, precision, **degrees, **arguments)
        return Instance(axes, grid, workload_of(given, grid), max_bytes)

    deployment = Disaggregated(instance("prefill"), instance("decode"), _bandwidth(transfer_bandwidth))
    return result(deployment.decode, given, *deployment.served(), hidden=PARALLEL, n_gpus=deployment.n_gpus)


def _bandwidth(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < np.inf:
        raise SpecError(f"transfer_bandwidth: expected bytes/s above 0, got {value!r}")
    return float(value)


def batches(most: int) -> NDArray[np.int64]:
    """Return the decode batches that are evaluated, up to the first that is at least `most`.

    Those below do not depend on `most`, so a point has the same time alone and in a grid.
    """
    sizes = list(range(1, EVERY_BATCH_UP_TO + 1))
    while sizes[-1] < most:
        sizes.append(max(sizes[-1] + 1, round(EVERY_BATCH_UP_TO * 2 ** ((len(sizes) + 1 - EVERY_BATCH_UP_TO) / 4))))
    return np.array(sizes, dtype=np.int64)


def interpolated(knots: NDArray[Any], values: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
    """Interpolate values along their last axis, from `knots` to one number for each of the other axes.

    Below the first knot and above the last, values are constant.
    """
    inside = np.clip(at, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, max(len(knots) - 2, 0))
    right = np.minimum(left + 1, len(knots) - 1)
    weight = (inside - knots[left]) / np.maximum(knots[right] - knots[left], 1)
    low, high = (np.take_along_axis(values, i[..., None], -1)[..., 0] for i in (left, right))
    return np.asarray(low + weight * (high - low))


@dataclass(frozen=True)
class Disaggregated:
    """A prefill and a decode instance, each of several workers, and the transfer bandwidth of one GPU if given."""

    prefill: Instance
    decode: Instance
    bandwidth: float | None

    @property
    def workload(self) -> Workload:
        """What is served."""
        return self.decode.workload

    @property
    def n_gpus(self) -> xr.DataArray:
        """GPUs of all workers."""
        prefill = self.workload["prefill_workers"] * self.prefill.coordinate("n_gpus")
        return prefill + self.workload["decode_workers"] * self.decode.coordinate("n_gpus")

    def served(self) -> tuple[dict[str, xr.DataArray], dict[str, xr.DataArray], xr.DataArray]:
        """Return values and codes of the result, and the fraction of tpot that is prefill interference: none."""
        workload, workers = self.workload, self.workload["decode_workers"]
        prompts = self._prompts()
        prefill, (transfer, transfer_status) = self.prefill.prefill(prompts), self._transfer()
        first_token = prefill.time + transfer
        prefill_rate = workload["prefill_workers"] * prompts / prefill.time
        accepted, context = self.decode.accepted(), context_of(self.decode)
        steps = (workload["osl"] - 1) / accepted
        knots = batches(math.ceil(float((workload["concurrency"] / workers).max())))
        table = self.decode.decode(xr.DataArray(knots, dims=BATCH), context)
        capacity = self.decode.kv_capacity(context) * workers
        conditions = workload["concurrency"], first_token, prefill_rate, steps
        unlimited, step = _balance(table, knots, workers, capacity, conditions)
        running = smaller(unlimited, capacity)
        rate = running / (steps * step)
        queue_time = formulas.queue_time(workload["concurrency"], running, first_token, rate)
        tpot = step / accepted
        values = {
            "running": running,
            "tpot": tpot,
            "tps_per_user": 1 / tpot,
            "throughput": workload["osl"] * rate,
            "throughput_per_gpu": workload["osl"] * rate / self.n_gpus,
            "prefill_time": prefill.time,
            "kv_transfer_time": transfer,
            "queue_time": queue_time,
            "ttft": queue_time + first_token,
            "e2e": queue_time + first_token + (workload["osl"] - 1) * tpot,
        }
        saturated = rate >= prefill_rate * (1 - 1e-9)
        status = first_reason(self._status(), prefill.status, table.status.max(BATCH), transfer_status)
        limit = limit_of(capacity < unlimited, saturated)
        return values, {"status": status, "limit": limit}, xr.zeros_like(tpot)

    def _status(self) -> xr.DataArray:
        """Return why a request cannot be served on one of the instances."""
        workload = self.workload
        prefill = self.prefill.status(workload["isl"] - workload.cached, "prefill", workload.cached)
        return first_reason(self.decode.status(workload["isl"] + workload["osl"]), prefill)

    def _prompts(self) -> xr.DataArray:
        """Return the prompts of one forward pass: the budget, but no more than are in flight or the KV cache holds."""
        workload, new = self.workload, self.workload["isl"] - self.workload.cached
        in_flight = -(-workload["concurrency"] // workload["prefill_workers"])
        budget = formulas.prefill_batch_within_budget(workload["chunked_prefill_size"], new, self.prefill.dp)
        prompts = smaller(budget, in_flight)
        if self.prefill.counts_memory:
            max_batch = self.prefill.memory(new, "prefill", workload.cached)["max_batch"]
            prompts = smaller(prompts, max_batch.where(max_batch >= 1, 1))
        return prompts.astype(np.int64)

    def _transfer(self) -> tuple[xr.DataArray, xr.DataArray]:
        """Return the KV-cache transfer time of a prompt, and the status where it is not known."""
        isl = self.workload["isl"]
        sent, received = (one.memory(isl)["kv_bytes_per_sequence"] for one in (self.prefill, self.decode))
        kv_bytes = np.maximum(sent, received)
        if self.bandwidth is not None:
            return formulas.kv_transfer_time(kv_bytes, self.bandwidth), xr.DataArray(np.int8(CODES["ok"]))
        scale_up = self.n_gpus <= self.decode.input("gpu.link_domain")
        bandwidth = self.decode.input("gpu.link_bandwidth").where(scale_up, self.decode.input("gpu.nic_bandwidth"))
        unknown = bandwidth.isnull()
        status = first_reason(code_where(unknown & scale_up, "no_link"), code_where(unknown & ~scale_up, "no_nic"))
        return formulas.kv_transfer_time(kv_bytes, bandwidth), status


def _balance(
    table: Seconds,
    knots: NDArray[Any],
    workers: xr.DataArray,
    capacity: xr.DataArray,
    conditions: tuple[xr.DataArray, xr.DataArray, xr.DataArray, xr.DataArray],
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the decode concurrency without a KV-cache limit, and the decode step time of those the KV cache holds."""
    one, workers, capacity, concurrency, first_token, prefill_rate, steps = xr.broadcast(
        table.time.isel({BATCH: 0}), workers, capacity, *conditions
    )
    values = (table.time + xr.zeros_like(one)).transpose(*one.dims, BATCH).values

    def decode(n: NDArray[Any]) -> NDArray[Any]:
        return interpolated(knots, values, n / workers.values)

    running = formulas.decode_concurrency(
        concurrency.values, first_token.values, prefill_rate.values, steps.values, decode
    )
    step = decode(np.fmin(running, capacity.values))
    return xr.DataArray(running, dims=one.dims), xr.DataArray(step, dims=one.dims)
