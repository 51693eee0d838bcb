"""Work over rates, and how times combine."""

from __future__ import annotations

import numpy as np

from . import Num


def seconds(work: Num, rate: Num, efficiency: Num) -> Num:
    """Time of `work` at the achieved share of a peak rate, D/(eta*W) of seed 1's appendix."""
    return work / (rate * efficiency)


def mix(x: Num, y: Num, overlap: Num) -> Num:
    """Time of two stages of which a share `overlap` of the smaller hides behind the larger."""
    return np.maximum(x, y) + (1 - overlap) * np.minimum(x, y)
