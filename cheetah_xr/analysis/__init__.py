"""Analysis: from result datasets to derived metrics. Reads datasets only, never today's catalogue."""

from .best import best
from .derive import DERIVED, derive
from .latency import mean_ttft, request_latency

__all__ = ["DERIVED", "best", "derive", "mean_ttft", "request_latency"]
