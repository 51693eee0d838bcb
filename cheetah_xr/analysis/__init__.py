"""Analysis: from result datasets to derived metrics. Reads datasets only, never today's catalogue."""

from .best import best
from .derive import DERIVED, derive
from .histogram import flag_labels, histogram
from .latency import mean_ttft, request_latency

__all__ = ["DERIVED", "best", "derive", "flag_labels", "histogram", "mean_ttft", "request_latency"]
