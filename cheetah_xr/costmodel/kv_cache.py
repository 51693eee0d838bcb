"""KV-cache footprint of one sequence on one GPU: states, windows, and caches that grow with every token."""

from __future__ import annotations

from dataclasses import dataclass

from ..specs import LayerGroup, ParameterCountModel, Precision
from .formulas.attention import local_kv_heads, tokens_in_cache
from .operations import Architecture, ForwardPass, Num


@dataclass(frozen=True)
class CacheFootprint:
    """Footprint of one sequence in one layer: `fixed_bytes`, or `bytes_per_token` for up to `max_tokens`.

    There is one entry for every `tokens_per_entry` tokens; without `max_tokens` there is no limit.
    """

    what: str
    fixed_bytes: Num = 0.0
    bytes_per_token: Num = 0.0
    max_tokens: Num | None = None
    tokens_per_entry: Num = 1.0

    def bytes_at(self, tokens: Num) -> Num:
        """Return the bytes at a length in tokens."""
        kept = tokens_in_cache(tokens, window=self.max_tokens)
        whole = (
            kept
            if isinstance(self.tokens_per_entry, float) and self.tokens_per_entry == 1.0
            else kept // self.tokens_per_entry
        )
        return self.fixed_bytes + self.bytes_per_token * whole


def parameter_count_bytes_per_token(m: ParameterCountModel, precision: Precision, p: ForwardPass) -> Num:
    """Return the cache bytes of one token on one GPU, 0 when the cache's shape is not known."""
    if m.n_kv_heads is None:
        return 0.0
    return 2 * m.n_layers * local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim * precision.kv_bytes


def index_keys(m: Architecture, group: LayerGroup, precision: Precision) -> list[CacheFootprint]:
    """Return the footprint of the keys an indexer of the layer's own scores."""
    if group.indexer != "own":
        return []
    return [CacheFootprint("index keys", bytes_per_token=m.index_dim * precision.index_bytes)]
