"""Continuous batching in a closed loop: concurrency of decode, prefill interference, and what it does to times.

A fixed number of requests is in flight, and each one that ends is replaced at once. Limits: one mean length each of
input and output, first come first served, no preemption, no prefixes shared in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Num

Array = NDArray[Any]

NON_INTERFERING_PROMPTS = 2
"""Prompts of an attention rank that no token of a request waits for: its own, which comes before its first token, and
that of its successor, which comes after its last."""

MAX_PREFILL_TOKENS = 16_384
"""Prompt tokens an attention rank admits at once in an engine that prefills first (SGLang, max_prefill_tokens)."""

BISECTIONS = 60


def running(concurrency: Num, kv_capacity: Num, dp: Num) -> Num:
    """Return the requests that decode concurrently.

    They are all in flight, or as many as the KV cache holds (`kv_capacity`), at least one per attention rank.
    """
    return np.minimum(concurrency, np.maximum(kv_capacity, dp))


def interfering_prompts(running: Num, dp: Num, osl: Num) -> Num:
    """Return the prompts of other requests prefilled between two tokens of a request, where starts are random.

    Each of `running` requests needs one prefill in `osl` decode steps, so running/osl of them fall on a step, less
    those of :data:`NON_INTERFERING_PROMPTS`.
    """
    return np.maximum(running - NON_INTERFERING_PROMPTS * dp, 0) / osl


def prompts_admitted_at_once(isl: Num, dp: Num) -> Num:
    """Return the mean number of prompts an engine that prefills first admits at once: :data:`MAX_PREFILL_TOKENS`."""
    return dp * np.maximum(1, MAX_PREFILL_TOKENS / isl)


def interfering_prompts_synchronized(running: Num, admitted: Num, osl: Num) -> Num:
    """Return the prompts of other requests per decode step in synchronized batches of an engine that prefills first.

    Requests of equal lengths start and end in the same steps. The prompts of such a batch are prefilled in groups of
    `admitted`; a request waits for the groups after its own, half of them on average: (running - admitted)/2 prompts
    in `osl` steps.
    """
    return 0.5 * np.maximum(running - admitted, 0) / osl


def prefill_batch(running: Num, dp: Num, osl: Num) -> Num:
    """Return the prompts one forward pass prefills: one on every attention rank, or as many as end in a step."""
    return dp * np.maximum(1, np.round(running / dp / osl))


def prefill_batch_within_budget(tokens: Num, isl: Num, dp: Num) -> Num:
    """Return the prompts that fill a token budget per attention rank, at least one on every rank."""
    return dp * np.maximum(1, np.round(tokens / isl))


def tpot_separate(decode: Num, prefill: Num, prompts: Num, batch: Num) -> Num:
    """Return the mean time per output token where prefill runs in forward passes of its own.

    Parameters
    ----------
    decode, prefill
        Seconds of a decode step, and of prefilling `batch` prompts.
    prompts
        Interfering prompts per decode step.
    batch
        Prompts prefilled together.
    """
    return decode + prompts * prefill / batch


def tpot_mixed(decode: Num, mixed: Num, prompts: Num, batch: Num) -> Num:
    """Return the mean time per output token in mixed batches (chunked prefill).

    A fraction prompts/batch of the steps, at most all of them, also carries prompts and takes `mixed` seconds in place
    of `decode`.
    """
    mixed_fraction = np.minimum(1, prompts / batch)
    return decode + mixed_fraction * np.maximum(mixed - decode, 0)


def mixed_batch_token_ratio(decode_tokens: Num, prompts: Num, isl: Num) -> Num:
    """Return the tokens of a mixed batch over those of its prompts: the factor on linear kernels and collectives."""
    return 1 + decode_tokens / (prompts * isl)


def seconds_per_request(prefill: Num, batch: Num, decode: Num, steps: Num, running: Num) -> Num:
    """Return the engine time one request takes (s), whose inverse is the rate at which requests end.

    It is 1/`batch` of the forward passes that prefill `batch` prompts in `prefill` seconds, and 1/`running` of each of
    its `steps` decode steps. An engine runs one forward pass at a time, so these seconds add up over requests.
    """
    return prefill / batch + np.maximum(steps, 0) * decode / running


def decode_steps_in_mixed_batches(chunks: Num, running: Num, batch: Num) -> Num:
    """Return the decode steps of a request that run in mixed batches, where a prompt takes `chunks` forward passes."""
    return chunks * np.maximum(running - batch, 0) / batch


def decode_concurrency(
    concurrency: Num, first_token: Num, capacity: Num, steps: Num, decode: Callable[[Array], Array]
) -> Array:
    """Return the requests that decode concurrently where prefill is disaggregated.

    The rest of the `concurrency` requests in flight is in prefill or in KV-cache transfer, which takes `first_token`
    seconds a request, or waits because prefill finishes only `capacity` prompts a second. With n decoding,
    n/(steps*decode(n)) requests end a second: n is the largest number for which n + first_token * that rate stays
    within `concurrency` and the rate within `capacity`.

    Parameters
    ----------
    concurrency, first_token, capacity, steps
        Requests, s, 1/s, and decode steps of a request, broadcast against one another.
    decode
        Seconds of a decode step with n requests, for an array of n; rises less than n does.

    Returns
    -------
    numpy.ndarray
        Requests, not whole, by bisection between 0 and `concurrency`.
    """
    high = np.array(np.broadcast_arrays(concurrency, first_token, capacity, steps)[0], dtype=np.float64)
    low = 1e-6 * high
    for _ in range(BISECTIONS):
        n = 0.5 * (low + high)
        rate = n / (steps * decode(n))
        fits = (n + first_token * rate <= concurrency) & (rate <= capacity)
        low, high = np.where(fits, n, low), np.where(fits, high, n)
    return low


def kv_transfer_time(kv_bytes: Num, bandwidth: Num) -> Num:
    """Return the KV-cache transfer time of one prompt (s): the footprint on one GPU over the bandwidth of one GPU."""
    return kv_bytes / bandwidth


def queue_time(concurrency: Num, decoding: Num, first_token: Num, rate: Num) -> Num:
    """Return the mean time a request waits before its prefill (s), by Little's law.

    Waiting are those requests in flight that are neither decoding nor in prefill.
    """
    return np.maximum(concurrency - decoding - first_token * rate, 0) / rate
