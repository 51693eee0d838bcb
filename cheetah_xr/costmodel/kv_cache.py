"""What one sequence keeps in the memory of one GPU: states, windows, and caches that grow with every token."""

from __future__ import annotations

from dataclasses import dataclass

from ..specs import RECURRENT, AnyModel, LayerGroup, ParameterCountModel, Precision
from .attention import value_width
from .formulas import Num
from .formulas.attention import local_kv_heads, tokens_held
from .linear_attention import state_bytes
from .operations import Architecture, Pass


@dataclass(frozen=True)
class Held:
    """What one layer keeps per sequence: `fixed` bytes, or `per_token` for up to `most` tokens, one entry each `every`.

    `most` None is no cap.
    """

    what: str
    fixed: Num = 0.0
    per_token: Num = 0.0
    most: Num | None = None
    every: Num = 1.0

    def total(self, tokens: Num) -> Num:
        """Bytes at a length."""
        kept = tokens_held(tokens, window=self.most)
        whole = kept if isinstance(self.every, float) and self.every == 1.0 else kept // self.every
        return self.fixed + self.per_token * whole


def held_by_layer(m: Architecture, group: LayerGroup, precision: Precision, p: Pass) -> list[Held]:
    """What one layer of a group keeps; `m` has the group's own widths."""
    if group.attention in RECURRENT:
        return [Held("recurrent state", fixed=state_bytes(m, group, precision, p))]
    if group.attention == "compressed":
        return _compressed(m, group, precision)
    if group.attention == "none" or group.kv_shared:
        return []
    index = [Held("index keys", per_token=m.index_dim * precision.index_bytes)] if group.indexer == "own" else []
    if group.attention == "mla":
        # The latent is copied on every tensor-parallel rank.
        return [Held("latent cache", per_token=(m.kv_lora_rank + m.qk_rope_head_dim) * precision.kv_bytes), *index]
    width = local_kv_heads(m.n_kv_heads, p.tp) * (m.head_dim + value_width(m)) * precision.kv_bytes
    if group.window is not None:
        return [Held("window cache", per_token=width, most=group.window)]
    if group.chunk is not None:
        return [Held("chunk cache", per_token=width, most=group.chunk)]
    return [Held("KV cache", per_token=width), *index]


def _compressed(m: Architecture, group: LayerGroup, precision: Precision) -> list[Held]:
    width = m.head_dim * precision.kv_bytes
    found = [Held("window cache", per_token=width, most=group.window)]
    if group.compress is not None:
        found.append(Held("compressed cache", per_token=width, every=group.compress))
        if group.indexer == "own":
            found.append(Held("index keys", per_token=m.index_dim * precision.index_bytes, every=group.compress))
    return found


def parameter_count_bytes_per_token(m: ParameterCountModel, precision: Precision, p: Pass) -> Num:
    """Cache bytes of one token on one GPU, 0 when the cache's shape is not known."""
    if m.n_kv_heads is None:
        return 0.0
    return 2 * m.n_layers * local_kv_heads(m.n_kv_heads, p.tp) * m.head_dim * precision.kv_bytes


def held(
    model: AnyModel, precision: Precision, p: Pass, groups: tuple[LayerGroup, ...] | None = None
) -> list[tuple[Num, Held]]:
    """How many layers keep what, for every group of a model, or for some of its groups."""
    if isinstance(model, ParameterCountModel):
        return [(1, Held("KV cache", per_token=parameter_count_bytes_per_token(model, precision, p)))]
    chosen = model.groups if groups is None else groups
    return [(g.count, item) for g in chosen for item in held_by_layer(model.of(g), g, precision, p)]


def cache_bytes(model: AnyModel, precision: Precision, p: Pass, groups: tuple[LayerGroup, ...] | None = None) -> Num:
    """Bytes of one sequence on one GPU, all layers of a model or of some of its groups."""
    total: Num = 0.0
    for count, item in held(model, precision, p, groups):
        total = total + count * item.total(p.context)
    return total
