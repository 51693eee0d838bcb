"""What one sequence keeps in the memory of one GPU: states, windows, and caches that grow with every token."""

from __future__ import annotations

from dataclasses import dataclass

from ..specs import RECURRENT, AnyModel, LayerGroup, ParameterCountModel, Precision
from .attention import value_width
from .formulas import Num
from .formulas.attention import local_kv_heads, tokens_in_cache
from .linear_attention import state_bytes
from .operations import Architecture, ForwardPass


@dataclass(frozen=True)
class CacheFootprint:
    """What one layer keeps per sequence: `fixed` bytes, or `per_token` for up to `most` tokens, one entry each `every`.

    `most` None is no cap.
    """

    what: str
    fixed_bytes: Num = 0.0
    bytes_per_token: Num = 0.0
    max_tokens: Num | None = None
    tokens_per_entry: Num = 1.0

    def bytes_at(self, tokens: Num) -> Num:
        """Bytes at a length."""
        kept = tokens_in_cache(tokens, window=self.max_tokens)
        whole = (
            kept
            if isinstance(self.tokens_per_entry, float) and self.tokens_per_entry == 1.0
            else kept // self.tokens_per_entry
        )
        return self.fixed_bytes + self.bytes_per_token * whole


def layer_cache_footprints(
    m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass
) -> list[CacheFootprint]:
    """What one layer of a group keeps; `m` has the group's own widths."""
    if group.attention in RECURRENT:
        return [CacheFootprint("recurrent state", fixed_bytes=state_bytes(m, group, precision, p))]
    if group.attention == "compressed":
        return _compressed(m, group, precision)
    if group.attention == "none" or group.kv_shared:
        return []
    index = (
        [CacheFootprint("index keys", bytes_per_token=m.index_dim * precision.index_bytes)]
        if group.indexer == "own"
        else []
    )
    if group.attention == "mla":
        # The latent is copied on every tensor-parallel rank.
        return [
            CacheFootprint("latent cache", bytes_per_token=(m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes),
            *index,
        ]
    width = local_kv_heads(m.n_kv_heads, p.tp) * (m.head_dim + value_width(m)) * precision.kv_bytes
    if group.window is not None:
        return [CacheFootprint("window cache", bytes_per_token=width, max_tokens=group.window)]
    if group.chunk is not None:
        return [CacheFootprint("chunk cache", bytes_per_token=width, max_tokens=group.chunk)]
    return [CacheFootprint("KV cache", bytes_per_token=width), *index]


def _compressed(m: Architecture, group: LayerGroup, precision: Precision) -> list[CacheFootprint]:
    width = m.head_dim * precision.kv_bytes
    footprints = [CacheFootprint("window cache", bytes_per_token=width, max_tokens=group.window)]
    if group.compress is not None:
        footprints.append(CacheFootprint("compressed cache", bytes_per_token=width, tokens_per_entry=group.compress))
        if group.indexer == "own":
            footprints.append(
                CacheFootprint(
                    "index keys", bytes_per_token=m.index_dim * precision.index_bytes, tokens_per_entry=group.compress
                )
            )
    return footprints


def parameter_count_bytes_per_token(m: ParameterCountModel, precision: Precision, p: ForwardPass) -> Num:
    """Cache bytes of one token on one GPU, 0 when the cache's shape is not known."""
    if m.n_kv_heads is None:
        return 0.0
    return 2 * m.n_layers * local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim * precision.kv_bytes


def cache_footprints(
    model: AnyModel, precision: Precision, p: ForwardPass, groups: tuple[LayerGroup, ...] | None = None
) -> list[tuple[Num, CacheFootprint]]:
    """How many layers keep what, for every group of a model, or for some of its groups."""
    if isinstance(model, ParameterCountModel):
        return [(1, CacheFootprint("KV cache", bytes_per_token=parameter_count_bytes_per_token(model, precision, p)))]
    chosen = model.groups if groups is None else groups
    return [(g.count, footprint) for g in chosen for footprint in layer_cache_footprints(model.of(g), g, precision, p)]


def cache_bytes(
    model: AnyModel, precision: Precision, p: ForwardPass, groups: tuple[LayerGroup, ...] | None = None
) -> Num:
    """Bytes of one sequence on one GPU, all layers of a model or of some of its groups."""
    total: Num = 0.0
    for count, footprint in cache_footprints(model, precision, p, groups):
        total = total + count * footprint.bytes_at(p.context)
    return total
