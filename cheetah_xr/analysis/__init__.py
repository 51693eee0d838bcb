"""Analysis: from result datasets to derived metrics. Reads datasets only, never today's catalogue."""

from .accessor import Cheetah
from .best import best
from .derive import DERIVED, derive
from .histogram import flag_labels, histogram
from .latency import mean_ttft, request_latency, ttft_distribution
from .pareto import pareto, pareto_mask
from .regimes import max_batch, regimes

__all__ = [
    "DERIVED",
    "Cheetah",
    "best",
    "derive",
    "flag_labels",
    "histogram",
    "max_batch",
    "mean_ttft",
    "pareto",
    "pareto_mask",
    "regimes",
    "request_latency",
    "ttft_distribution",
]
