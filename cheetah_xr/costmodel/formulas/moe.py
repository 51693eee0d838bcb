"""Routed experts: how many are read, how many tokens arrive, how many copies travel."""

from __future__ import annotations

import numpy as np

from . import Num


def unused_probability(tokens: Num, top_k: Num, slots: Num) -> Num:
    """Return the chance that an expert slot is used by none of `tokens` tokens under uniform routing, (1 - k/E)^T.

    As an exponential, several times faster than a power; below e^-60 it is negligible.
    """
    return np.exp(np.maximum(np.log1p(-top_k / slots) * tokens, -60.0))


def distinct_mean(slots_per_rank: Num, unused: Num) -> Num:
    """Return expected distinct experts a rank reads."""
    return slots_per_rank * (1 - unused)


def distinct_busiest(slots_per_rank: Num, unused: Num, ep: Num) -> Num:
    """Return expected distinct experts of the most loaded of `ep` ranks, slots used independently.

    The mean of the maximum of `ep` binomials: the sum over j of 1 - BinomCDF(j)^ep.
    """
    from scipy.special import betainc  # only this option needs it, and it takes long to import

    total = 0.0 * unused
    for j in range(int(np.max(slots_per_rank))):
        cdf = betainc(np.maximum(slots_per_rank - j, 1), j + 1.0, unused)
        total = total + (1 - cdf**ep) * (j < slots_per_rank)
    return total


def distinct_ranks(ep: Num, top_k: Num) -> Num:
    """Return expected distinct expert-parallel ranks among a token's experts."""
    return ep * (1 - (1 - 1 / ep) ** top_k)


def distinct_nodes(n_experts: Num, top_k: Num, nodes: Num, reachable: Num) -> Num:
    """Return expected distinct nodes among a token's experts when it may reach `reachable` of `nodes` nodes.

    M*(1 - C(Er - Er/M, k)/C(Er, k)) with Er = E*M/N; 3.63 for N=8, M=4, k=8, E=256. The quotient is the chance that k
    draws without replacement all miss one node.
    """
    experts = n_experts * reachable / nodes
    elsewhere = experts - experts / reachable
    missed: Num = 1.0
    for drawn in range(int(np.max(top_k))):
        chance = np.maximum(elsewhere - drawn, 0.0) / np.maximum(experts - drawn, 1.0)
        missed = missed * chance ** (drawn < top_k)
    return reachable * (1 - missed)
