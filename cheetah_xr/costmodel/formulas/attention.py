"""Attention core: local heads, visible pairs, cache traffic."""

from __future__ import annotations

import numpy as np

from . import Num


def local_kv_heads(n_kv_heads: Num, tp: Num) -> Num:
    """Return the KV heads of one GPU, max(h_kv/tp, 1): replicated once tp exceeds them (also groups of Mamba-2).

    Valid where one of the two divides the other; engines reject the rest.
    """
    return np.maximum(n_kv_heads / tp, 1.0)


def _full(n: Num) -> Num:
    """Return keys seen by queries 1..n under a causal mask: 1 + 2 + ... + n."""
    return n * (n + 1) / 2


def _windowed(n: Num, window: Num) -> Num:
    """Return keys seen by queries 1..n that look back over at most `window` keys, themselves included."""
    short = np.minimum(n, window)
    return _full(short) + (n - short) * window


def _chunked(n: Num, chunk: Num) -> Num:
    """Return keys seen by queries 1..n when attention restarts at multiples of `chunk`."""
    return n // chunk * _full(chunk) + _full(n % chunk)


def visible_pairs(new: Num, before: Num, *, window: Num | None = None, chunk: Num | None = None) -> Num:
    """Return (query, key) pairs of one sequence under a causal mask.

    Parameters
    ----------
    new
        New tokens per sequence, q.
    before
        Keys the first of them sees besides itself: cached tokens in prefill; seq_len - 1 in decode, where seq_len
        counts the query's own key (L of [Qwen3-FLOPs]).
    window, chunk
        Sliding window or attention chunk in tokens; at most one of the two.

    Returns
    -------
    Num
        Pairs, q*c + q(q+1)/2 without window and chunk (docs/explanation/cost-model.md). A window caps the keys of every
        query, its own included: the difference of two sums of min(i, w). An indexer that keeps k tokens is a window of
        k, since the number of keys is all that counts. Valid for whole numbers.
    """
    if window is not None:
        return _windowed(before + new, window) - _windowed(before, window)
    if chunk is not None:
        return _chunked(before + new, chunk) - _chunked(before, chunk)
    return new * before + _full(new)


def uncausal_pairs(new: Num, cached: Num, *, window: Num | None = None, chunk: Num | None = None) -> Num:
    """Return (query, key) pairs of one sequence without a mask: all keys, `window` of them, or a chunk."""
    keys = cached + new
    if window is not None:
        return new * np.minimum(keys, window)
    if chunk is not None:
        in_whole_chunks = np.maximum(keys // chunk * chunk - cached, 0)
        return in_whole_chunks * chunk + (new - in_whole_chunks) * (keys % chunk)
    return new * keys


def cache_read_decode(seq_len: Num, new: Num, *, window: Num | None = None, chunk: Num | None = None) -> Num:
    """Return cached tokens read in one decode step, once however many drafts: s, or min(s, w + q - 1) in a window."""
    if window is not None:
        return np.minimum(seq_len, window + new - 1)
    if chunk is not None:
        return (seq_len - 1) % chunk + 1
    return seq_len


def cache_read_prefill(cached: Num, *, window: Num | None = None, chunk: Num | None = None) -> Num:
    """Return cached tokens read in one prefill: those some new query still sees."""
    if window is not None:
        return np.minimum(cached, window - 1)
    if chunk is not None:
        return cached % chunk
    return cached


def tokens_in_cache(tokens: Num, *, window: Num | None = None, chunk: Num | None = None) -> Num:
    """Return the tokens of one sequence in the cache: all of them, or at most the window or chunk."""
    limit = window if window is not None else chunk
    return tokens if limit is None else np.minimum(tokens, limit)


def _entries(n: Num, size: Num) -> Num:
    """Return whole entries of `size` tokens seen by queries 1..n: the sum of floor(i / size)."""
    whole = n // size
    return size * whole * (whole - 1) / 2 + whole * (n - size * whole + 1)


def _entries_capped(n: Num, size: Num, most: Num) -> Num:
    """Return whole entries seen by queries 1..n that see at most `most`, as they do from key size*most on."""
    free = size * most - 1
    return _entries(np.minimum(n, free), size) + most * np.maximum(n - free, 0)


def entry_pairs(new: Num, before: Num, size: Num, most: Num | None = None) -> Num:
    """Return (query, compressed entry) pairs under a causal mask: the sum of min(floor(keys / size), most).

    Whole entries only: a query never sees an entry that is not complete. Valid for whole numbers. Source: DeepSeek-V4,
    ``compress_ratios`` and ``index_topk`` of its config.

    Parameters
    ----------
    new, before
        As in :func:`visible_pairs`.
    size
        Tokens behind one entry: a query that sees n keys sees floor(n / size) entries.
    most
        Most entries a query attends to; None is all.

    Returns
    -------
    Num
        Pairs.
    """
    if most is None:
        return _entries(before + new, size) - _entries(before, size)
    return _entries_capped(before + new, size, most) - _entries_capped(before, size, most)


def entry_pairs_uncausal(new: Num, cached: Num, size: Num, most: Num | None = None) -> Num:
    """Return (query, compressed entry) pairs of one sequence without a mask."""
    entries = (cached + new) // size
    return new * (entries if most is None else np.minimum(entries, most))
