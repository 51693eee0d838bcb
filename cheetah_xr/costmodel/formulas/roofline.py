"""Work over rates, and how times combine."""

from __future__ import annotations

import numpy as np

from . import Num


def seconds(work: Num, rate: Num, efficiency: Num) -> Num:
    """Return the time of `work` at the achieved fraction of a peak rate, D/(eta*W) of [CHEETAH], appendix."""
    return work / (rate * efficiency)


def mix(x: Num, y: Num, overlap: Num) -> Num:
    """Return the time of two stages when a fraction `overlap` of the shorter is overlapped by the longer."""
    return np.maximum(x, y) + (1 - overlap) * np.minimum(x, y)
