"""Serving: a fixed number of requests under way, on one instance or on pools for prefill and decode."""

from .aggregated import serve
from .disaggregated import serve_disaggregated

__all__ = ["serve", "serve_disaggregated"]
