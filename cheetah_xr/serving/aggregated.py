"""Aggregated serving: one instance prefills and decodes, with continuous batching."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import xarray as xr

from ..costmodel.formulas import serving as formulas
from ..engine.inputs.arguments import GpuLike, InstanceArguments, IntsLike, ModelLike, PrecisionLike, spelled_out
from .instance import Instance, Seconds, context_of, first_reason, prompt_of, smaller
from .result import limit_of, result
from .workload import numbers, one_of, serving_axes, workload_of

Served = tuple[dict[str, xr.DataArray], dict[str, xr.DataArray], xr.DataArray]
"""Values, codes, and the fraction of the time per output token that is prefill interference."""


@spelled_out(InstanceArguments, after="osl")
def serve(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    concurrency: IntsLike,
    isl: IntsLike,
    osl: IntsLike,
    prefill: str = "mixed",
    lengths: str = "random",
    chunked_prefill_size: IntsLike = 8192,
    max_bytes: float = 4e9,
    **arguments: Unpack[InstanceArguments],
) -> xr.Dataset:
    """Serve a fixed number of concurrent requests on one instance with continuous batching (aggregated serving).

    A scalar argument becomes a scalar coordinate, a list an axis, a DataArray keeps its own dims. Formulas and limits:
    docs/explanation/serving-model.md.

    Parameters
    ----------
    model, gpu, precision, tp, dp, ep, efficiency, overrides, scales, max_bytes
        As in :func:`cheetah_xr.evaluate`.
    concurrency
        Requests in flight; one that ends is replaced at once. Those whose KV cache does not fit wait.
    isl
        Mean input tokens. Of these, ``cached_tokens`` of the options are not prefilled.
    osl
        Mean output tokens, at least 2.
    prefill
        "mixed": mixed batches of prompts and decoding requests, chunked prefill (vLLM, TensorRT-LLM); "separate":
        prompts have forward passes of their own and go first (SGLang).
    lengths
        "random": requests end at different times; "fixed": they have equal lengths, which makes synchronized batches
        where prefill is separate. Where it is mixed, lengths make no difference.
    chunked_prefill_size
        Most tokens of a prompt in one forward pass (SGLang's word; vLLM's ``max_num_batched_tokens`` also counts the
        decoding requests); longer prompts take several.
    options
        Accounting options; `overlap_ep` is 0 unless it is given. With `on_infeasible` "ignore" all requests run.

    Returns
    -------
    xarray.Dataset
        ``running``, ``tpot``, ``tps_per_user``, ``throughput``, ``throughput_per_gpu``, ``prefill_time``,
        ``queue_time``, ``ttft``, ``e2e`` in float64, with units and long_name; ``limit`` says what limits the requests
        that decode concurrently. What cannot be served is NaN with a reason in ``status``.

    Raises
    ------
    SpecError
        Naming the argument or file, its value and what is allowed; when a result is above `max_bytes`.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.serve("llama-3.1-70b", "h100-sxm", "fp8", tp=4, concurrency=[1, 64], isl=8192, osl=1024)
    >>> [round(float(t) * 1e3, 1) for t in ds.tpot]
    [12.3, 64.6]
    """
    one_of("prefill", prefill, ("mixed", "separate"))
    one_of("lengths", lengths, ("random", "fixed"))
    given = numbers({"concurrency": concurrency, "isl": isl, "osl": osl, "chunked_prefill_size": chunked_prefill_size})
    axes, grid = serving_axes(model, gpu, precision, **arguments)
    instance = Instance(axes, grid, workload_of(given, grid), max_bytes)
    served = _mixed(instance) if prefill == "mixed" else _separate(instance, synchronized=lengths == "fixed")
    return result(instance, given, *served)


def _running(instance: Instance) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the requests that decode concurrently, and whether the KV cache is full."""
    concurrency, capacity = instance.workload["concurrency"], instance.kv_capacity(context_of(instance))
    running = formulas.running(concurrency, capacity, instance.dp)
    return running.where(capacity.notnull(), concurrency).astype(np.int64), capacity < concurrency


def _mixed(instance: Instance) -> Served:
    """Serve with chunked prefill: mixed batches of prompts and decoding requests."""
    workload, context = instance.workload, context_of(instance)
    running, cache_full = _running(instance)
    accepted, n_chunks = instance.accepted(), prompt_of(workload).n_chunks
    prompts, interfering = _prompts(instance, running, accepted)
    step, alone = instance.decode(running, context), instance.prefill(prompts)
    mixed = instance.mixed(prompts, running, context)
    tpot = formulas.tpot_mixed(step.time, mixed.time / n_chunks, interfering * n_chunks, prompts) / accepted
    # Where all running requests are prefilled together, none decodes in the mixed batch.
    prefill_time = mixed.time.where(running > prompts, alone.time)
    steps = (workload["osl"] - 1) / accepted
    in_mixed_batches = formulas.decode_steps_in_mixed_batches(n_chunks, running, prompts)
    seconds = formulas.seconds_per_request(prefill_time, prompts, step.time, steps - in_mixed_batches, running)
    limits = running, cache_full, in_mixed_batches >= steps
    return _finish(instance, limits, tpot, prefill_time, seconds, (step, alone, mixed))


def _separate(instance: Instance, *, synchronized: bool) -> Served:
    """Serve with forward passes of their own for prompts, which go first; `synchronized`: in synchronized batches."""
    workload = instance.workload
    running, cache_full = _running(instance)
    accepted = instance.accepted()
    prompts, interfering = _prompts(instance, running, accepted)
    if synchronized:
        new = workload["isl"] - workload.cached
        budget = formulas.prefill_batch_within_budget(workload["chunked_prefill_size"], new, instance.dp)
        prompts = smaller(budget, running).astype(np.int64)
        admitted = formulas.prompts_admitted_at_once(new, instance.dp)
        interfering = formulas.interfering_prompts_synchronized(running, admitted, workload["osl"] / accepted)
    step, prefill = instance.decode(running, context_of(instance)), instance.prefill(prompts)
    tpot = formulas.tpot_separate(step.time, prefill.time, interfering, prompts) / accepted
    steps = (workload["osl"] - 1) / accepted
    seconds = formulas.seconds_per_request(prefill.time, prompts, step.time, steps, running)
    limits = running, cache_full, xr.zeros_like(cache_full)
    return _finish(instance, limits, tpot, prefill.time, seconds, (step, prefill))


def _prompts(instance: Instance, running: xr.DataArray, accepted: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the prompts of one forward pass, at most those running, and the interfering prompts per decode step."""
    steps = instance.workload["osl"] / accepted
    prompts = smaller(formulas.prefill_batch(running, instance.dp, steps), running).astype(np.int64)
    return prompts, formulas.interfering_prompts(running, instance.dp, steps)


def _finish(
    instance: Instance,
    limits: tuple[xr.DataArray, xr.DataArray, xr.DataArray],
    tpot: xr.DataArray,
    prefill_time: xr.DataArray,
    seconds: xr.DataArray,
    forward_passes: tuple[Seconds, ...],
) -> Served:
    """Compute rates and queue time from times, by the engine time of a request and Little's law."""
    (running, cache_full, prefill_saturated), workload = limits, instance.workload
    decode_time = (workload["osl"] - 1) * tpot
    rate = np.minimum(1 / seconds, running / (prefill_time + decode_time))
    queue_time = formulas.queue_time(workload["concurrency"], decode_time * rate, prefill_time, rate)
    values = {
        "running": running,
        "tpot": tpot,
        "tps_per_user": 1 / tpot,
        "throughput": workload["osl"] * rate,
        "throughput_per_gpu": workload["osl"] * rate / instance.coordinate("n_gpus"),
        "prefill_time": prefill_time,
        "queue_time": queue_time,
        "ttft": queue_time + prefill_time,
        "e2e": queue_time + prefill_time + decode_time,
    }
    status = first_reason(
        instance.status(workload["isl"] + workload["osl"]), *(seconds.status for seconds in forward_passes)
    )
    interference = 1 - forward_passes[0].time / (tpot * instance.accepted())
    return values, {"status": status, "limit": limit_of(cache_full, prefill_saturated)}, interference
