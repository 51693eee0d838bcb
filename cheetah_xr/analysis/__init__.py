"""Analysis: from result datasets to derived metrics. Reads datasets only, never today's catalogue."""

from .derive import DERIVED, derive

__all__ = ["DERIVED", "derive"]
