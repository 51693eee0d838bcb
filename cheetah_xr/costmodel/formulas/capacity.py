"""What fits in the memory of one GPU."""

from __future__ import annotations

import numpy as np

from . import Num


def budget_total(memory: Num, fraction: Num, reserve: Num) -> Num:
    """Return the bytes for weights and cache when the engine takes a fraction of all memory (vLLM)."""
    return fraction * memory - reserve


def budget_free_at_start(memory: Num, fraction: Num, reserve: Num, used: Num) -> Num:
    """Return the bytes for weights and cache when the fraction is of what is free before loading (SGLang)."""
    return fraction * (memory - used) - reserve


def budget_free_after_load(memory: Num, fraction: Num, reserve: Num, used: Num, weights: Num) -> Num:
    """Return the bytes for weights and cache when the fraction is of what the weights leave free (TensorRT-LLM)."""
    return weights + fraction * (memory - used - weights) - reserve


def sequences_that_fit(budget: Num, weights: Num, per_sequence: Num) -> Num:
    """Return the whole sequences that fit: 0 when the weights do not, infinite when a sequence needs no memory."""
    # 0 / 0 is infinite too: the smallest float keeps it from being undefined.
    room = budget - weights + np.finfo(np.float64).tiny * (per_sequence == 0)
    return np.maximum(np.floor(room / per_sequence), 0.0)


def shortfall(budget: Num, weights: Num, sequences: Num, per_sequence: Num) -> Num:
    """Return the bytes missing on one GPU, 0 where everything fits."""
    return np.maximum(weights + sequences * per_sequence - budget, 0.0)
