"""Kinds of layers: which attention (or recurrent mixer), which MLP, and the widths a kind has of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .attention_kinds import ATTENTION_KINDS, KIND_FIELDS, Attention

Width = Annotated[int, Field(ge=1)]
Optional0 = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]

Mlp = Literal["dense", "moe", "moe+dense", "none"]

ROUTED = ("moe", "moe+dense")
"""MLPs with routed experts."""

NEEDED = {
    "dense": ("intermediate",),
    "moe": ("n_experts", "top_k", "expert_intermediate"),
    "moe+dense": ("n_experts", "top_k", "expert_intermediate", "intermediate"),
    "indexer": ("index_heads", "index_dim", "index_top_k"),
    "none": (),
}
"""Fields each kind of MLP, and the indexer, cannot do without; those of attention are in its record."""

OWN_WIDTHS = ("n_kv_heads", "head_dim", "v_head_dim", "intermediate", "rotary", "norms_per_layer")
"""Numbers a group may have of its own, instead of the model's."""


class LayerGroup(BaseModel):
    """Equal consecutive or interleaved layers: how many, which attention, which MLP.

    Parameters
    ----------
    count
        Layers of this kind.
    attention
        "gqa" (multi-head and multi-query too), "mla", "compressed" (DeepSeek-V4: one vector as key and value, a window
        of raw tokens and compressed entries), the recurrent "deltanet", "kda", "mamba2" and "lightning", or "none".
    mlp
        "dense", "moe", "moe+dense" (experts along with a dense MLP) or "none".
    window, chunk
        Tokens a query looks back over; tokens after which attention restarts.
    compress
        Tokens behind one compressed entry; None is the window only.
    indexer
        Sparse attention: "own" scores every key and selects the top `index_top_k`, "shared" reuses the selection of an
        earlier layer.
    sinks
        One learned logit per head in the softmax.
    k_eq_v
        Values are the keys' projection: no weights of their own.
    kv_shared
        Keys and values are those of an earlier layer: neither weights nor cache of their own.
    hash_routing
        Experts are looked up by token, in a table of its own.
    n_kv_heads, head_dim, v_head_dim, intermediate, rotary, norms_per_layer
        Instead of the model's, in this group.
    extra_parameters
        Parameters of one layer that no other field counts (vectors: neither in memory nor in traffic).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    count: Width
    attention: Attention
    mlp: Mlp
    window: Width | None = None
    chunk: Width | None = None
    compress: Width | None = None
    indexer: Literal["none", "own", "shared"] = "none"
    sinks: bool = False
    k_eq_v: bool = False
    kv_shared: bool = False
    hash_routing: bool = False
    n_kv_heads: Width | None = None
    head_dim: Width | None = None
    v_head_dim: Width | None = None
    intermediate: Width | None = None
    rotary: Fraction | None = None
    norms_per_layer: Optional0 | None = None
    extra_parameters: Optional0 = 0

    @model_validator(mode="after")
    def _fits_together(self) -> LayerGroup:
        if self.window is not None and self.chunk is not None:
            raise ValueError("a layer group has window or chunk, not both")
        for field in KIND_FIELDS:
            kinds = [name for name, kind in ATTENTION_KINDS.items() if field in kind.allowed]
            if getattr(self, field) not in (None, False, "none") and self.attention not in kinds:
                raise ValueError(f"{field} belongs to attention: {' or '.join(kinds)}, not {self.attention}")
        if problem := ATTENTION_KINDS[self.attention].rejected(self):
            raise ValueError(problem)
        if self.hash_routing and self.mlp not in ROUTED:
            raise ValueError("hash_routing belongs to mlp: moe")
        if self.attention == "none" and self.mlp == "none":
            raise ValueError("a layer has an attention or an MLP")
        return self

    @property
    def label(self) -> str:
        """The kind in a few characters, such as "gqa+moe" or "mamba2"."""
        return "+".join(kind for kind in (self.attention, self.mlp) if kind != "none")

    @property
    def is_routed(self) -> bool:
        """Whether tokens go to experts."""
        return self.mlp in ROUTED
