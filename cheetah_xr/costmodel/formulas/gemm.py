"""Matrix multiplications: FLOPs, weight elements and activation traffic."""

from __future__ import annotations

from . import Num


def gemm_flops(rows: Num, k: Num, n: Num) -> Num:
    """Return FLOPs of a ``rows x k`` by ``k x n`` product, 2 per multiply-add ([CHEETAH], footnote 2)."""
    return 2 * rows * k * n


def gemm_activations(rows: Num, k: Num, n: Num, input_bytes: Num, output_bytes: Num) -> Num:
    """Return the bytes of inputs and outputs, ``b*(MK + MN)`` of [CHEETAH], footnote 2, with a width for each."""
    return rows * (k * input_bytes + n * output_bytes)
