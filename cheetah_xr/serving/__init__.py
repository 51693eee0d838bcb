"""Serving in a closed loop: aggregated on one instance, or with disaggregated prefill and decode."""

from .aggregated import serve
from .disaggregated import serve_disaggregated

__all__ = ["serve", "serve_disaggregated"]
