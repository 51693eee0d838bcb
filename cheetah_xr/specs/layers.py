"""Kinds of layers: which attention (or recurrent mixer), which MLP, and the widths a kind has of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Width = Annotated[int, Field(ge=1)]
Optional0 = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

Attention = Literal["gqa", "mla", "compressed", "deltanet", "kda", "mamba2", "lightning", "none"]
Mlp = Literal["dense", "moe", "moe+dense", "none"]

RECURRENT = ("deltanet", "kda", "mamba2", "lightning")
"""Mixers that keep a state of fixed size instead of a cache."""

ROUTED = ("moe", "moe+dense")
"""MLPs with routed experts."""

NEEDED = {
    "gqa": ("n_heads", "n_kv_heads", "head_dim"),
    "mla": ("n_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "compressed": ("n_heads", "head_dim", "q_lora_rank", "qk_rope_head_dim", "o_groups", "o_lora_rank"),
    **dict.fromkeys(
        RECURRENT, ("linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim", "linear_chunk")
    ),
    "dense": ("intermediate",),
    "moe": ("n_experts", "top_k", "expert_intermediate"),
    "moe+dense": ("n_experts", "top_k", "expert_intermediate", "intermediate"),
    "indexer": ("index_heads", "index_dim", "index_top_k"),
    "none": (),
}
"""Fields each kind of attention and MLP, and the indexer, cannot do without."""

ALLOWED_WITH = {
    "window": ("gqa", "compressed"),
    "chunk": ("gqa",),
    "compress": ("compressed",),
    "indexer": ("gqa", "mla", "compressed"),
    "sinks": ("gqa",),
    "k_eq_v": ("gqa",),
    "kv_shared": ("gqa",),
}
"""Field of a group -> kinds of attention it may be given with."""

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
        of raw tokens beside compressed entries), the recurrent "deltanet", "kda", "mamba2" and "lightning", or "none".
    mlp
        "dense", "moe", "moe+dense" (experts beside a dense MLP) or "none".
    window, chunk
        Tokens a query looks back over; tokens after which attention restarts.
    compress
        Tokens behind one compressed entry; None keeps the window only.
    indexer
        Sparse attention: "own" scores every key and keeps the best `index_top_k`, "shared" reuses the choice of an
        earlier layer.
    sinks
        One learned logit per head in the softmax.
    k_eq_v
        Values are the keys' projection: no weights of their own.
    kv_shared
        Keys and values are those of an earlier layer: neither weights nor cache of their own.
    hash_routing
        Experts are looked up by token, in a table beside the router.
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
    rotary: Share | None = None
    norms_per_layer: Optional0 | None = None
    extra_parameters: Optional0 = 0

    @model_validator(mode="after")
    def _fits_together(self) -> LayerGroup:
        if self.window is not None and self.chunk is not None:
            raise ValueError("a layer group has window or chunk, not both")
        for field, kinds in ALLOWED_WITH.items():
            if getattr(self, field) not in (None, False, "none") and self.attention not in kinds:
                raise ValueError(f"{field} belongs to attention: {' or '.join(kinds)}, not {self.attention}")
        if self.attention == "compressed" and self.window is None:
            raise ValueError("attention: compressed needs a window")
        if self.attention == "compressed" and self.indexer == "own" and self.compress is None:
            raise ValueError("an indexer of compressed attention chooses among compressed entries: compress is missing")
        if self.attention == "compressed" and self.indexer == "shared":
            raise ValueError(
                "indexer: shared belongs to attention: gqa or mla; compressed layers choose for themselves"
            )
        if self.kv_shared and self.indexer == "own":
            raise ValueError("kv_shared layers keep nothing: an indexer of their own has no keys to score")
        if self.attention == "gqa" and self.indexer != "none" and (self.window or self.chunk):
            raise ValueError("indexer and window or chunk do not go together")
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
