"""Read kernel timings as one tidy table and fit the fraction of the peaks they reach.

>>> from cheetah_xr.calibration.measurements import kernels
>>> kernels.KERNELS[:3]
('gemm', 'quantize', 'attention_prefill')
"""

from __future__ import annotations

from .fits import curves, efficiencies, fit
from .forms import FORMS
from .tables import COLUMNS, KERNELS, RULES, counts, kernel_table

__all__ = ["COLUMNS", "FORMS", "KERNELS", "RULES", "counts", "curves", "efficiencies", "fit", "kernel_table"]
