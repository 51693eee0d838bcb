"""The model record: an architecture as layer groups, or a lumped parameter count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .record import Record

Width = Annotated[int, Field(ge=1)]
Optional0 = Annotated[int, Field(ge=0)]


class LayerGroup(BaseModel):
    """Equal consecutive or interleaved layers: how many, which attention, which MLP."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    count: Width
    attention: Literal["gqa", "mla"]
    mlp: Literal["dense", "moe"]
    window: Width | None = None
    chunk: Width | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> LayerGroup:
        if self.window is not None and self.chunk is not None:
            raise ValueError("a layer group has window or chunk, not both")
        if self.attention == "mla" and (self.window is not None or self.chunk is not None):
            raise ValueError("window and chunk belong to attention: gqa")
        return self


NEEDED = {
    "gqa": ("n_heads", "n_kv_heads", "head_dim"),
    "mla": ("n_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "dense": ("intermediate",),
    "moe": ("n_experts", "top_k", "expert_intermediate"),
}
"""Fields each kind of attention and MLP cannot do without."""


GROUP_NUMBERS = {"n_layers": "count", "window": "window", "chunk": "chunk"}
"""Numbers of a model that live in its layer groups: name as an axis -> field of a group."""


class Model(Record):
    """An architecture. Widths in elements; one group per kind of layer.

    ``shared_intermediate`` is the summed width of the shared experts; ``q_lora_rank`` 0 means queries are projected
    directly; ``gated`` MLPs have three matrices, others two.
    """

    hidden: Width
    vocab: Width
    tie_embeddings: bool = False
    max_seq_len: Width | None = None
    n_heads: Width
    n_kv_heads: Width | None = None
    head_dim: Width | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    intermediate: Width | None = None
    gated: bool = True
    n_experts: Width | None = None
    top_k: Width | None = None
    expert_intermediate: Width | None = None
    shared_intermediate: Optional0 = 0
    router_bias: bool = False
    kv_lora_rank: Width | None = None
    q_lora_rank: Optional0 = 0
    qk_nope_head_dim: Width | None = None
    qk_rope_head_dim: Width | None = None
    v_head_dim: Width | None = None
    groups: Annotated[tuple[LayerGroup, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _complete(self) -> Model:
        for group in self.groups:
            for kind in (group.attention, group.mlp):
                missing = [f for f in NEEDED[kind] if getattr(self, f) is None]
                if missing:
                    raise ValueError(f"{kind} layers need {', '.join(missing)}")
        if self.top_k is not None and self.n_experts is not None and self.top_k > self.n_experts:
            raise ValueError(f"top_k {self.top_k} is above n_experts {self.n_experts}")
        return self

    def with_numbers(self, numbers: Mapping[str, Any]) -> Self:
        """Copy with some fields replaced by arrays; numbers of layer groups go to the groups that have them."""
        fields = dict(numbers)
        groups = self.groups
        for name, field in GROUP_NUMBERS.items():
            if name in fields:
                value = fields.pop(name)
                groups = tuple(g if getattr(g, field) is None else g.model_copy(update={field: value}) for g in groups)
        return super().with_numbers({**fields, "groups": groups})

    @property
    def n_layers(self) -> int:
        """Layers of all groups."""
        return sum(group.count for group in self.groups)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(group.mlp == "moe" for group in self.groups)

    @property
    def n_parameters(self) -> int:
        """Every parameter of the text model: norms and biases too, tied embeddings once."""
        return self._count(active=False)

    @property
    def n_parameters_active(self) -> int:
        """Parameters one token meets: `top_k` of the routed experts, all the rest, embeddings included."""
        return self._count(active=True)

    def _count(self, *, active: bool) -> int:
        embeddings = self.vocab * self.hidden * (1 if self.tie_embeddings else 2)
        layers = sum(
            g.count * (self._attention_parameters(g) + self._mlp_parameters(g, active) + 2 * self.hidden)
            for g in self.groups
        )
        return embeddings + layers + self.hidden

    def _attention_parameters(self, group: LayerGroup) -> int:
        m: Any = self  # the validator has seen to it that the fields of the group's kinds are given
        if group.attention == "mla":
            query_out = m.n_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
            query = (m.hidden + query_out + 1) * m.q_lora_rank if m.q_lora_rank else m.hidden * query_out
            down = m.hidden * (m.kv_lora_rank + m.qk_rope_head_dim)
            up = m.kv_lora_rank * (m.n_heads * (m.qk_nope_head_dim + m.v_head_dim) + 1)
            return int(query + down + up + m.n_heads * m.v_head_dim * m.hidden)
        qkv_width = (m.n_heads + 2 * m.n_kv_heads) * m.head_dim
        biases = (qkv_width if m.qkv_bias else 0) + (m.hidden if m.o_bias else 0)
        norms_and_biases = (2 * m.head_dim if m.qk_norm else 0) + biases
        return int(m.hidden * (qkv_width + m.n_heads * m.head_dim) + norms_and_biases)

    def _mlp_parameters(self, group: LayerGroup, active: bool) -> int:
        m: Any = self
        matrices = 3 if m.gated else 2
        if group.mlp == "dense":
            return int(matrices * m.hidden * m.intermediate)
        experts = m.top_k if active else m.n_experts
        router = m.n_experts * (m.hidden + (1 if m.router_bias else 0))
        return int(matrices * m.hidden * (experts * m.expert_intermediate + m.shared_intermediate) + router)


class LumpedModel(Record):
    """A parameter count instead of an architecture ("8B"), with the cache's shape and hidden size if known.

    Without ``n_kv_heads`` it has no KV cache, without ``hidden`` no collectives, without ``n_layers`` neither, and no
    per-layer overhead.
    """

    n_parameters: Annotated[float, Field(gt=0)]
    n_layers: Optional0 = 0
    n_kv_heads: Width | None = None
    head_dim: Width | None = None
    hidden: Width | None = None
    max_seq_len: Width | None = None

    @model_validator(mode="after")
    def _complete(self) -> LumpedModel:
        if (self.n_kv_heads is None) != (self.head_dim is None):
            raise ValueError("n_kv_heads and head_dim are given together")
        if (self.n_kv_heads is not None or self.hidden is not None) and not self.n_layers:
            raise ValueError("n_layers is needed with n_kv_heads or hidden")
        return self

    @property
    def is_moe(self) -> bool:
        """A lumped model is dense."""
        return False

    @property
    def n_parameters_active(self) -> float:
        """All of them."""
        return self.n_parameters
