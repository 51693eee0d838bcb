"""Requests under way: how many decode at once, how often their steps carry prompts, and what that does to times.

Closed loop: a fixed number of requests is under way, and each one that ends is replaced at once. Limits: one mean
length each of prompts and answers, first come first served, no preemption, no shared prefixes.
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


def running(concurrency: Num, most: Num, dp: Num) -> Num:
    """Requests that decode at once: all of them, or as many as the KV cache holds, at least one per attention rank."""
    return np.minimum(concurrency, np.maximum(most, dp))


def interfering_prompts(running: Num, dp: Num, osl: Num) -> Num:
    """Prompts of others prefilled between two tokens of a request whose neighbours start at random.

    Each of B requests needs one prefill in `osl` steps, so B/osl of them fall on a step, less those of
    :data:`NON_INTERFERING_PROMPTS`.
    """
    return np.maximum(running - NON_INTERFERING_PROMPTS * dp, 0) / osl


def prompts_admitted_at_once(isl: Num, dp: Num) -> Num:
    """Prompts an engine that prefills first admits at once, on average: as many as :data:`MAX_PREFILL_TOKENS`."""
    return dp * np.maximum(1, MAX_PREFILL_TOKENS / isl)


def interfering_prompts_synchronized(running: Num, together: Num, osl: Num) -> Num:
    """The same where equal lengths keep requests in step and prompts go first, `together` of them at once.

    A wave of B prompts is prefilled group by group; a request waits for the groups after its own, half of them on
    average: (B - P)/2 prompts in `osl` steps.
    """
    return 0.5 * np.maximum(running - together, 0) / osl


def prefill_batch(running: Num, dp: Num, osl: Num) -> Num:
    """Prompts one pass prefills: one on every attention rank, or as many as end in a step."""
    return dp * np.maximum(1, np.round(running / dp / osl))


def prefill_batch_within_budget(tokens: Num, isl: Num, dp: Num) -> Num:
    """Prompts whose tokens fill the budget of a pass, at least one on every attention rank."""
    return dp * np.maximum(1, np.round(tokens / isl))


def tpot_separate(decode: Num, prefill: Num, prompts: Num, per_pass: Num) -> Num:
    """Mean time per output token where prompts have passes of their own, `prompts` of them a step."""
    return decode + prompts * prefill / per_pass


def tpot_mixed(decode: Num, mixed: Num, prompts: Num, per_pass: Num) -> Num:
    """The same where a pass carries the decoding requests and prompts together (chunked prefill).

    A share prompts/per_pass of the steps, at most all of them, is such a pass and takes `mixed` in place of `decode`.
    """
    share = np.minimum(1, prompts / per_pass)
    return decode + share * np.maximum(mixed - decode, 0)


def mixed_batch_token_ratio(running: Num, prompts: Num, isl: Num) -> Num:
    """Tokens of a mixed pass over those of its prompts: what its linear kernels and collectives grow by."""
    return 1 + running / (prompts * isl)


def seconds_per_request(first: Num, per_pass: Num, decode: Num, steps: Num, running: Num) -> Num:
    """Seconds of the engine one request takes, whose inverse is the rate at which requests end.

    Its share of the pass that prefills `per_pass` prompts in `first` seconds, and of its `steps` decode steps, which it
    shares with `running` requests. An engine does one pass at a time, so these seconds add up to all there are.
    """
    return first / per_pass + np.maximum(steps, 0) * decode / running


def decode_steps_in_mixed_batches(passes: Num, running: Num, per_pass: Num) -> Num:
    """Decode steps of a request that mixed passes do: each prompt comes in `passes` of them, beside all that decode."""
    return passes * np.maximum(running - per_pass, 0) / per_pass


def decode_concurrency(
    concurrency: Num, first_token: Num, capacity: Num, steps: Num, decode: Callable[[Array], Array]
) -> Array:
    """Requests that decode at once in a pool of their own, of `concurrency` under way in both pools.

    The rest is being prefilled or handed over, which takes `first_token` seconds a request, or waits because the
    prefill pool finishes only `capacity` prompts a second. With n decoding, n/(steps*decode(n)) requests end a second:
    n is the largest number for which n + first_token * that rate stays within `concurrency` and the rate within
    `capacity`.

    Parameters
    ----------
    concurrency, first_token, capacity, steps
        Requests, s, 1/s, and decode steps of a request, broadcast against one another.
    decode
        Seconds of a decode step with n requests in the pool, for an array of n; rises less than n does.

    Returns
    -------
    numpy.ndarray
        Requests, not whole, found by bisection between 0 and `concurrency`.
    """
    high = np.array(np.broadcast_arrays(concurrency, first_token, capacity, steps)[0], dtype=np.float64)
    low = 1e-6 * high
    for _ in range(BISECTIONS):
        n = 0.5 * (low + high)
        rate = n / (steps * decode(n))
        fits = (n + first_token * rate <= concurrency) & (rate <= capacity)
        low, high = np.where(fits, n, low), np.where(fits, high, n)
    return low


def kv_transfer_time(cache_bytes: Num, bandwidth: Num) -> Num:
    """Seconds to hand the cache of one prompt from pool to pool: what one GPU holds, at the rate of one GPU."""
    return cache_bytes / bandwidth


def queue_time(concurrency: Num, decoding: Num, first_token: Num, rate: Num) -> Num:
    """Mean time a request waits before its prefill, by Little's law: of those who neither decode nor are prefilled."""
    return np.maximum(concurrency - decoding - first_token * rate, 0) / rate
