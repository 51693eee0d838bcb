"""Recurrent mixers: work on a state of fixed size per head, and the size of that state.

A value head has a state of `key_dim` x `value_dim` elements. All amounts are per token and local head, in FLOP or
bytes, and do not depend on the length of the sequence. Sources: Mamba-2 (arXiv 2405.21060, section 6, chunked form),
Gated DeltaNet (arXiv 2412.06464, section 3.3), Kimi Linear (arXiv 2510.26692), MiniMax-01 (arXiv 2501.08313, section
2.2).
"""

from __future__ import annotations

from . import Num

DELTA_RULE = frozenset({"deltanet", "kda"})
"""Mixers that subtract what the state returns for a key before they write to it."""


def step_flops(key_dim: Num, value_dim: Num, *, delta: bool) -> Num:
    """Return FLOPs of one token and head, one after the other.

    Decay of the state 1, rank-one update 2 and read-out 2 per element; the delta rule reads it first: 2 more.
    """
    return (7 if delta else 5) * key_dim * value_dim


def chunk_flops(key_dim: Num, value_dim: Num, chunk: Num, *, delta: bool, key_fraction: Num = 1.0) -> Num:
    """Return FLOPs of one token and head when a prefill works on chunks of `chunk` tokens.

    Between chunks: read-out and update of the state, 2 per element each (delta rule: one more product). Inside a chunk
    every token meets all `chunk`: scores and values, 2(key + value); the delta rule adds the keys among themselves and
    two products with the inverse. `key_fraction` is key heads per value head where the scores of a group are computed
    once (Mamba-2). The inverse itself, and the decay once per chunk, are left out. `chunk` is at most
    the new tokens; kernels pad shorter ones.
    """
    if delta:
        return 6 * key_dim * value_dim + 2 * chunk * (3 * key_dim + 2 * value_dim)
    return 4 * key_dim * value_dim + 2 * chunk * (key_dim * key_fraction + value_dim)


def state_bytes(heads: Num, key_dim: Num, value_dim: Num, width: Num) -> Num:
    """Return the bytes of the states of `heads` local heads, `width` per element (4 where engines use float32)."""
    return heads * key_dim * value_dim * width


def convolution_bytes(channels: Num, taps: Num, width: Num) -> Num:
    """Return bytes of the last `taps` - 1 inputs a causal convolution of `taps` taps keeps per channel."""
    return channels * (taps - 1) * width
