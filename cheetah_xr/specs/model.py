"""The model record: an architecture as layer groups, or a parameter count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from . import parameters
from .attention_kinds import ATTENTION_KINDS, RECURRENT
from .layers import NEEDED, OWN_WIDTHS, Fraction, LayerGroup, Optional0, Width
from .record import Record

GROUP_NUMBERS = {"n_layers": "count", "window": "window", "chunk": "chunk", "compress": "compress"}
"""Numbers of a model that live in its layer groups: name as an axis -> field of a group."""

Groups = Annotated[tuple[LayerGroup, ...], Field(strict=False)]


class Model(Record):
    """An architecture. Widths in elements; one group per kind of layer.

    Parameters
    ----------
    hidden, vocab, tie_embeddings, max_seq_len
        Width of the residual stream, size of the vocabulary, LM head shared with the embedding, longest sequence.
    residual_streams
        Parallel residual streams that are mixed before every block (hyper-connections).
    parallel_blocks
        Attention and MLP read the same input and are added together: one all-reduce for both.
    norms_per_layer
        Norm vectors of width `hidden` in a layer; None is one per block. A norm with a bias has two.
    n_heads, n_kv_heads, head_dim, v_head_dim
        Query heads, KV heads, width of queries and keys, width of values (None: as keys).
    rotary
        Fraction of the head (of the rotary part in multi-head latent attention) that is rotated.
    qk_norm
        Norm on queries and keys: "head" has one vector per head width, "full" one over all heads.
    qkv_bias, o_bias, mlp_bias, router_bias
        Bias vectors of the matrices of those names.
    output_gate
        A gate on the output of attention, as wide as its values.
    kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim
        Multi-head latent attention; `q_lora_rank` 0 means queries are projected directly.
    o_groups, o_lora_rank
        Low-rank output projection in groups of heads (compressed attention).
    index_heads, index_dim, index_top_k
        Indexer of sparse attention: its heads, their width, the tokens (or compressed entries) it selects.
    linear_key_heads, linear_value_heads, linear_key_dim, linear_value_dim
        Recurrent mixers: every value head has a state of key width times value width. In Mamba-2 these are groups,
        heads, state size and head width.
    linear_conv, linear_conv_bias, linear_chunk, linear_gate_rank
        Width of the causal convolution (0: none) and its bias, tokens per chunk of a prefill, rank of the output gate
        (0: full; "kda" only).
    intermediate, gated
        Width of the dense MLP; three matrices with a gate, two without.
    n_experts, top_k, expert_intermediate, expert_hidden
        Routed experts, how many a token meets, their width, and the width they read (None: `hidden`, else tokens are
        projected to it first).
    shared_intermediate, shared_gate
        Summed width of the shared experts; a sigmoid gate on their output.
    groups
        Kinds of layers.
    mtp, mtp_embeddings
        Layers of the multi-token-prediction (MTP) module, counted apart; whether the checkpoint repeats embedding and
        LM head in it.
    vision_parameters
        Parameters of vision tower and projector: they take memory and, in this model, no time.
    extra_parameters
        Parameters outside the layers that no other field counts (vectors, position tables).
    default_precision
        Precision of the published checkpoint, by catalogue name.
    status
        How the config was seen: "full" as published, "reconstructed" from several named sources, "partial" with fields
        cut away. Not part of the architecture.
    """

    hidden: Width
    vocab: Width
    tie_embeddings: bool = False
    max_seq_len: Width | None = None
    residual_streams: Width = 1
    parallel_blocks: bool = False
    norms_per_layer: Optional0 | None = None
    n_heads: Width | None = None
    n_kv_heads: Width | None = None
    head_dim: Width | None = None
    v_head_dim: Width | None = None
    rotary: Fraction = 1.0
    qk_norm: Literal["none", "head", "full"] = "none"
    qkv_bias: bool = False
    o_bias: bool = False
    output_gate: bool = False
    kv_lora_rank: Width | None = None
    q_lora_rank: Optional0 = 0
    qk_nope_head_dim: Width | None = None
    qk_rope_head_dim: Width | None = None
    o_groups: Width | None = None
    o_lora_rank: Width | None = None
    index_heads: Width | None = None
    index_dim: Width | None = None
    index_top_k: Width | None = None
    linear_key_heads: Width | None = None
    linear_value_heads: Width | None = None
    linear_key_dim: Width | None = None
    linear_value_dim: Width | None = None
    linear_conv: Optional0 = 0
    linear_conv_bias: bool = False
    linear_chunk: Width = 64
    linear_gate_rank: Optional0 = 0
    intermediate: Width | None = None
    gated: bool = True
    mlp_bias: bool = False
    n_experts: Width | None = None
    top_k: Width | None = None
    expert_intermediate: Width | None = None
    expert_hidden: Width | None = None
    shared_intermediate: Optional0 = 0
    shared_gate: bool = False
    router_bias: bool = False
    groups: Annotated[Groups, Field(min_length=1)]
    mtp: Groups = ()
    mtp_embeddings: bool = False
    vision_parameters: Optional0 = 0
    extra_parameters: Optional0 = 0
    default_precision: Annotated[str, Field(min_length=1)] = "bf16"
    status: Literal["full", "reconstructed", "partial"] = "full"

    @model_validator(mode="after")
    def _complete(self) -> Model:
        for group in (*self.groups, *self.mtp):
            merged, kind = self.of(group), ATTENTION_KINDS[group.attention]
            indexer = NEEDED["indexer"] if group.indexer != "none" else ()
            for name, needed in ((group.attention, kind.needed), (group.mlp, NEEDED[group.mlp]), ("indexer", indexer)):
                missing = [f for f in needed if not getattr(merged, f)]
                if missing:
                    raise ValueError(f"{name} layers need {', '.join(missing)}")
            field = kind.heads_multiple_of
            if field is not None and merged.n_heads % getattr(merged, field):
                raise ValueError(f"n_heads {merged.n_heads} is not a multiple of {field} {getattr(merged, field)}")
            if problem := kind.rejected_model(merged, group):
                raise ValueError(problem)
        if self.top_k is not None and self.n_experts is not None and self.top_k > self.n_experts:
            raise ValueError(f"top_k {self.top_k} is above n_experts {self.n_experts}")
        if self.linear_key_heads and self.linear_value_heads and self.linear_value_heads % self.linear_key_heads:
            raise ValueError(
                f"linear_value_heads {self.linear_value_heads} is not a multiple of linear_key_heads "
                f"{self.linear_key_heads}"
            )
        return self

    def of(self, group: LayerGroup) -> Self:
        """Return the model as a group of its layers sees it: the group's own widths in place of the model's."""
        own = {name: value for name in OWN_WIDTHS if (value := getattr(group, name)) is not None}
        return self.model_copy(update=own) if own else self

    def with_numbers(self, numbers: Mapping[str, Any]) -> Self:
        """Copy with some fields replaced by arrays; numbers of layer groups go to the groups that have them."""
        fields = dict(numbers)
        given = {field: fields.pop(name) for name, field in GROUP_NUMBERS.items() if name in fields}

        def changed(group: LayerGroup, numbers: Mapping[str, Any]) -> LayerGroup:
            own = {field: value for field, value in numbers.items() if getattr(group, field) is not None}
            return group.model_copy(update=own) if own else group

        module = {field: value for field, value in given.items() if field != "count"}
        groups = tuple(changed(group, given) for group in self.groups)
        return super().with_numbers({**fields, "groups": groups, "mtp": tuple(changed(g, module) for g in self.mtp)})

    @property
    def n_layers(self) -> int:
        """Count the layers of all groups."""
        return sum(group.count for group in self.groups)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(group.is_routed for group in self.groups)

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer keeps a state instead of a cache."""
        return any(group.attention in RECURRENT for group in self.groups)

    @property
    def n_parameters(self) -> int:
        """Count every parameter of the text model: norms and biases too, tied embeddings once, the MTP module apart."""
        return self._layers(self.groups, self.n_experts or 0) + parameters.outside_parameters(self)

    @property
    def n_parameters_active(self) -> int:
        """Count the parameters one token meets: `top_k` of the routed experts, all the rest, embeddings included."""
        return self._layers(self.groups, self.top_k or 0) + parameters.outside_parameters(self)

    @property
    def n_parameters_mtp(self) -> int:
        """Count the parameters of the MTP module, without embedding and LM head, which are those of the model."""
        return parameters.mtp_parameters(self, self._layers(self.mtp, self.n_experts or 0)) if self.mtp else 0

    @property
    def n_parameters_checkpoint(self) -> int:
        """Count everything a checkpoint holds: text model, MTP module (with its repeated embeddings), vision tower."""
        repeated = 2 * self.vocab * self.hidden if self.mtp_embeddings else 0
        return self.n_parameters + self.n_parameters_mtp + repeated + self.vision_parameters

    def _layers(self, groups: tuple[LayerGroup, ...], experts: int) -> int:
        return sum(group.count * parameters.layer_parameters(self.of(group), group, experts) for group in groups)


class ParameterCountModel(Record):
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
    def _complete(self) -> ParameterCountModel:
        if (self.n_kv_heads is None) != (self.head_dim is None):
            raise ValueError("n_kv_heads and head_dim are given together")
        if (self.n_kv_heads is not None or self.hidden is not None) and not self.n_layers:
            raise ValueError("n_layers is needed with n_kv_heads or hidden")
        return self

    @property
    def default_precision(self) -> str:
        """Precision by catalogue name where none is given: there is no published checkpoint."""
        return "bf16"

    @property
    def is_moe(self) -> bool:
        """Whether tokens are routed to experts: never, all parameters are read."""
        return False

    @property
    def n_parameters_active(self) -> float:
        """All of them."""
        return self.n_parameters


AnyModel = Model | ParameterCountModel
