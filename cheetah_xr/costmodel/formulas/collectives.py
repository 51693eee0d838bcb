"""Collectives: bytes one GPU sends over the link of its domain and over its NIC.

`n` ranks, of which `g` share a link domain; n = 1 costs nothing.
"""

from __future__ import annotations

import numpy as np

from . import Num


def members(n: Num, domain: Num, stride: Num = 1) -> Num:
    """Return the ranks of a group that share a link domain of `domain` GPUs when neighbours are `stride` GPUs apart."""
    return np.minimum(n, np.maximum(domain / stride, 1.0))


def gather(volume: Num, n: Num, g: Num) -> tuple[Num, Num]:
    """Return (link, NIC) bytes of a ring all-gather or reduce-scatter: (g-1)/g*V and (m-1)/m*V/g, m = n/g."""
    return (g - 1) / g * volume, (1 - g / n) * volume / g


def all_reduce(volume: Num, n: Num, g: Num) -> tuple[Num, Num]:
    """Return (link, NIC) bytes of a ring all-reduce: a reduce-scatter and an all-gather."""
    link, nic = gather(volume, n, g)
    return 2 * link, 2 * nic


def all_to_all(volume: Num, n: Num, g: Num) -> tuple[Num, Num]:
    """Return (link, NIC) bytes of an all-to-all in which each GPU sends `volume` bytes spread evenly over `n` ranks."""
    return (g - 1) / n * volume, (n - g) / n * volume


def node_forwarding(volume: Num, g: Num, ranks: Num, nodes: Num, n_nodes: Num) -> tuple[Num, Num]:
    """Return (link, NIC) bytes when a token crosses the NIC once per other node and is forwarded inside it.

    `volume` is one copy of every token, `ranks` and `nodes` the expected distinct ones of a token.
    """
    return ranks * (g - 1) / g * volume, nodes * (n_nodes - 1) / n_nodes * volume


def link_rate(bandwidth: Num, pairwise: Num, g: Num) -> Num:
    """Return the link rate of a group with `g` members in its domain: a mesh offers g-1 of its pairwise links.

    `pairwise` is infinite for a switched domain.
    """
    return np.minimum(bandwidth, np.maximum(g - 1, 1.0) * pairwise)
