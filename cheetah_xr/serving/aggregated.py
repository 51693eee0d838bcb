"""Co-located serving: one instance prefills and decodes."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import xarray as xr

from ..costmodel.formulas import serving as terms
from ..engine.arguments import GpuLike, InstanceArguments, IntsLike, ModelLike, PrecisionLike, spelled_out
from .load import load_of, numbers, one_of, serving_axes
from .pool import Pool, Seconds, context_of, first_reason, prompt_of, smaller
from .result import limit_of, result

Served = tuple[dict[str, xr.DataArray], dict[str, xr.DataArray], xr.DataArray]
"""Values, codes, and the share of the time per token that prompts of others take."""


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
    """Serve a fixed number of requests on one instance that prefills and decodes.

    A scalar argument becomes a scalar coordinate, a list an axis, a DataArray keeps its own dims. Formulas and limits:
    docs/explanation/serving-model.md.

    Parameters
    ----------
    model, gpu, precision, tp, dp, ep, efficiency, overrides, scales, max_bytes
        As in :func:`cheetah_xr.evaluate`.
    concurrency
        Requests under way; one that ends is replaced at once. Those whose cache does not fit wait.
    isl
        Mean prompt tokens. Of these, ``cached_tokens`` of the options are not prefilled.
    osl
        Mean output tokens, at least 2.
    prefill
        "mixed": passes carry prompts and decoding requests together (vLLM, TensorRT-LLM); "separate": prompts have
        passes of their own and go first (SGLang).
    lengths
        "random": requests end at different times; "fixed": they have equal lengths, and where prefill is separate they
        stay in step. Where it is mixed, lengths make no difference.
    chunked_prefill_size
        Most tokens of a prompt in one pass; longer prompts take several.
    options
        Accounting options; `overlap_ep` is 0 unless it is given. With `on_infeasible` "ignore" all requests run.

    Returns
    -------
    xarray.Dataset
        ``running``, ``tpot``, ``tps_per_user``, ``throughput``, ``throughput_per_gpu``, ``prefill_time``,
        ``queue_time``, ``ttft``, ``e2e`` in float64, with units and long_name; ``limit`` says why no more requests
        decode at once. What cannot be served is NaN with a reason in ``status``.

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
    load = load_of(given, grid)
    pool = Pool(axes, grid, load, max_bytes)
    return result(pool, given, *(_mixed(pool) if prefill == "mixed" else _separate(pool, waves=lengths == "fixed")))


def running_in(pool: Pool) -> tuple[xr.DataArray, xr.DataArray]:
    """Requests that decode at once, and whether the cache holds no more."""
    concurrency = pool.load["concurrency"]
    most = pool.most(context_of(pool))
    found = terms.running(concurrency, most, pool.dp)
    return found.where(most.notnull(), concurrency).astype(np.int64), most < concurrency


def _mixed(pool: Pool) -> Served:
    load, context = pool.load, context_of(pool)
    running, full = running_in(pool)
    accepted, passes = pool.accepted(), prompt_of(load).passes
    prompts, others = _prompts(pool, running, accepted)
    step, alone = pool.decode(running, context), pool.prefill(prompts)
    beside = pool.mixed(prompts, running, context)
    tpot = terms.tpot_mixed(step.time, beside.time / passes, others * passes, prompts) / accepted
    # Nobody decodes beside a prompt that is prefilled with all the others.
    first = beside.time.where(running > prompts, alone.time)
    steps = (load["osl"] - 1) / accepted
    mixed = terms.decode_steps_in_mixed_batches(passes, running, prompts)
    seconds = terms.seconds_per_request(first, prompts, step.time, steps - mixed, running)
    return _finish(pool, (running, full, mixed >= steps), tpot, first, seconds, (step, alone, beside))


def _separate(pool: Pool, *, waves: bool) -> Served:
    load = pool.load
    running, full = running_in(pool)
    accepted = pool.accepted()
    prompts, others = _prompts(pool, running, accepted)
    if waves:
        new = load["isl"] - load.cached
        prompts = smaller(
            terms.prefill_batch_within_budget(load["chunked_prefill_size"], new, pool.dp), running
        ).astype(np.int64)
        together = terms.prompts_admitted_at_once(new, pool.dp)
        others = terms.interfering_prompts_synchronized(running, together, load["osl"] / accepted)
    step, first = pool.decode(running, context_of(pool)), pool.prefill(prompts)
    tpot = terms.tpot_separate(step.time, first.time, others, prompts) / accepted
    steps = (load["osl"] - 1) / accepted
    seconds = terms.seconds_per_request(first.time, prompts, step.time, steps, running)
    return _finish(pool, (running, full, xr.zeros_like(full)), tpot, first.time, seconds, (step, first))


def _prompts(pool: Pool, running: xr.DataArray, accepted: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Prompts of one pass, never more than there are, and those of others between two steps of a request."""
    steps = pool.load["osl"] / accepted
    prompts = smaller(terms.prefill_batch(running, pool.dp, steps), running).astype(np.int64)
    return prompts, terms.interfering_prompts(running, pool.dp, steps)


def _finish(
    pool: Pool,
    runs: tuple[xr.DataArray, xr.DataArray, xr.DataArray],
    tpot: xr.DataArray,
    first: xr.DataArray,
    seconds: xr.DataArray,
    done: tuple[Seconds, ...],
) -> Served:
    """Rates and waiting from times: what the engine can do in its time, and Little's law."""
    (running, full, saturated), load = runs, pool.load
    after_first = (load["osl"] - 1) * tpot
    rate = np.minimum(1 / seconds, running / (first + after_first))
    waiting = terms.queue_time(load["concurrency"], after_first * rate, first, rate)
    values = {
        "running": running,
        "tpot": tpot,
        "tps_per_user": 1 / tpot,
        "throughput": load["osl"] * rate,
        "throughput_per_gpu": load["osl"] * rate / pool.beside("n_gpus"),
        "prefill_time": first,
        "queue_time": waiting,
        "ttft": waiting + first,
        "e2e": waiting + first + after_first,
    }
    status = first_reason(pool.status(load["isl"] + load["osl"]), *(seconds.status for seconds in done))
    share = 1 - done[0].time / (tpot * pool.accepted())
    return values, {"status": status, "limit": limit_of(full, saturated)}, share
