"""Operations and collectives of one forward pass on one GPU. Work only; no rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ..specs import COLLECTIVES, Options, ParallelDegrees, Precision
from .formulas import collectives
from .formulas.gemm import gemm_activations, gemm_flops

Num: TypeAlias = float | NDArray[Any]
"""A number, or numbers on the axes of a sweep, each of length 1 where it does not vary.

Formulas take and return more: DataArrays and columns of tables too (:data:`cheetah_xr.costmodel.formulas.Num`)."""

Flags: TypeAlias = bool | np.bool_ | NDArray[Any]
"""Whether something is so, on the axes of the numbers it was asked of."""

Architecture: TypeAlias = Any
"""A Model whose numbers may be arrays; pydantic's fields are typed as the numbers a file may give."""

SequenceCount = Literal["instance_micro_batch", "rank_micro_batch", "rank_batch"]
"""Which sequences an amount is per: those of one micro-batch in the whole instance or on one attention rank, or those
of the whole batch on one attention rank (embedding and LM head, which are not cut into micro-batches)."""

SEQUENCE_COUNTS: tuple[SequenceCount, ...] = get_args(SequenceCount)
"""In the order in which times per sequence are added up: it decides the last bits of a sum."""

COMPONENT = {
    "attn_proj": "attn",
    "attn_core": "attn",
    "indexer": "attn",
    "dense_mlp": "mlp",
    "router": "mlp",
    "shared_experts": "mlp",
    "routed_experts": "mlp",
    "embedding": "embedding",
    "lm_head": "lm_head",
}
WEIGHT_CLASS = {
    "attn_proj": "attention",
    "dense_mlp": "dense_mlp",
    "router": "router",
    "shared_experts": "shared_experts",
    "routed_experts": "experts",
    "lm_head": "lm_head",
}
"""Kernel -> class of the precision its GEMMs belong to."""


OUTSIDE = ("embedding", "lm_head")
"""Parts of a forward pass outside the layers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one layer (or of the whole forward pass, outside the layers) on one GPU.

    `flops`, `rows`, `kv` and `activations` are per sequence of the count that `per` names; `weights` is read once per
    micro-batch, however many sequences; `rows` are weight bytes looked up per sequence (the embedding).
    `resident_weights` are the bytes of its weights in the memory of one GPU.
    `launches` are the kernels started for it in one micro-batch, 0 where it is part of another operation's.
    """

    name: str
    kernel: str
    flops: Num = 0.0
    weights: Num = 0.0
    rows: Num = 0.0
    kv: Num = 0.0
    activations: Num = 0.0
    resident_weights: Num = 0.0
    launches: Num = 1
    per: SequenceCount = "rank_micro_batch"
    component: str = ""

    @property
    def part(self) -> str:
        """Component of [CHEETAH] the operation belongs to."""
        return self.component or COMPONENT[self.kernel]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of one layer (or of the LM head): bytes sent by one GPU per sequence of the count `per`.

    `used` is how often it occurs (0 where the layout does not need it), already part of `link` and `nic`. A
    `pipelined` one always uses link and NIC at once.
    """

    name: str
    kind: str
    ranks: Num
    members: Num
    link: Num
    nic: Num
    used: Num = 1.0
    per: SequenceCount = "rank_micro_batch"
    pipelined: bool = False

    @property
    def messages(self) -> Num:
        """Messages one rank sends, one after the other."""
        return COLLECTIVES[self.kind] * (self.ranks - 1)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Count the work of one layer, and how often the layer occurs.

    The option `overlap_ep` overlaps `expert_all_to_all` (dispatch, combine, and the gathers of split experts) with
    computation, `overlap_tp` the `other_collectives`.

    Memory has `count` of them, a forward pass does each `count` * `repeats` times. `part` is its name in the option
    `include`; `is_draft` says that it is the drafter's.
    """

    count: Num
    operations: tuple[Operation, ...]
    expert_all_to_all: tuple[Collective, ...] = ()
    other_collectives: tuple[Collective, ...] = ()
    label: str = ""
    part: str = "layers"
    repeats: Num = 1
    is_draft: bool = False

    @property
    def times(self) -> Num:
        """How often a forward pass does the work of one layer."""
        return self.count * self.repeats


@dataclass(frozen=True, slots=True)
class ForwardPassWork:
    """Work of one forward pass and its drafts: layers by group, and what stands outside them.

    `n_layers` and `n_forward_passes` are those the CPU launches, `n_eager_prefill_layers` the layers launched without
    CUDA graphs when the batch of a prefill is too large for them.
    """

    layers: tuple[LayerWork, ...]
    outside: tuple[LayerWork, ...]
    n_layers: Num
    n_forward_passes: Num = 1
    n_eager_prefill_layers: Num = 0

    @property
    def parts(self) -> tuple[LayerWork, ...]:
        """All of it."""
        return (*self.layers, *self.outside)


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardPass(ParallelDegrees):
    """One forward pass as formulas need it: phase, tokens per sequence, layout.

    `new` tokens per sequence are processed; `before` keys are seen by the first of them besides itself;
    `instance_tokens` are the new tokens of one micro-batch in the whole instance: on batch and length, so often not yet
    computed (an expression of the engine).
    """

    decode: bool
    seq_len: Num
    cached: Num
    new: Num
    before: Num
    instance_tokens: Any
    domain: Num

    @property
    def context(self) -> Num:
        """Tokens of one sequence after the forward pass has read its cache: what must fit in memory."""
        return self.seq_len if self.decode else self.seq_len + self.cached


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """State where a layout breaks a rule of the model: a status by name, and the degrees it depends on."""

    status: str
    degrees: tuple[str, ...]
    broken: Flags


def kv_heads_rule(kv_heads: Num, p: ForwardPass) -> LayoutRule:
    """Return the rule that one of tp and the KV heads (or groups of Mamba-2) divides the other."""
    return LayoutRule("tp_kv_heads", ("tp",), (kv_heads % p.tp != 0) & (p.tp % kv_heads != 0))


def replicated(
    name: str,
    kernel: str,
    p: ForwardPass,
    k: Num,
    n: Num,
    precision: Precision,
    options: Options,
    component: str = "",
    launches: Num = 1,
) -> Operation:
    """Return a GEMM of the new tokens whose weights are replicated across tensor-parallel ranks."""
    counted = options.activation_traffic == "gemm"
    b_in, b_act = getattr(precision, f"{kernel}_input_bytes") * counted, precision.activation_bytes * counted
    weights = k * n * getattr(precision, f"{kernel}_weight_bytes")
    return Operation(
        name,
        kernel,
        flops=gemm_flops(p.new, k, n),
        weights=weights,
        activations=gemm_activations(p.new, k, n, b_in, b_act),
        resident_weights=weights,
        launches=launches,
        component=component,
    )


def tp_all_reduce(name: str, p: ForwardPass, volume: Num, used: Num = 1.0) -> Collective:
    """Return the all-reduce over the tensor-parallel ranks of one attention rank."""
    g = collectives.members(p.tp, p.domain)
    link, nic = collectives.all_reduce(volume * used, p.tp, g)
    return Collective(name, "all_reduce", p.tp, g, link, nic, used)


def ring_gather(name: str, kind: str, n: Num, g: Num, volume: Num, **more: Any) -> Collective:
    """Return an all-gather or reduce-scatter of `volume` bytes over `n` ranks; `used` is 0 where there is none."""
    link, nic = collectives.gather(volume * more.get("used", 1.0), n, g)
    return Collective(name, kind, n, g, link, nic, **more)


def module_tp_gathers(
    name: str,
    p: ForwardPass,
    width: Num,
    tokens: Num,
    hidden: Num,
    b_in: Num,
    b_act: Num,
    per: SequenceCount = "rank_micro_batch",
) -> list[Collective]:
    """Return the gathers of a module with a tensor-parallel degree of its own, `width`.

    It gathers the tokens of width/tp attention ranks, and scatters its results over them.
    """
    r = width / p.tp
    g = collectives.members(r, p.domain, p.tp)
    volume = r * tokens * hidden
    return [
        ring_gather(f"{name}_gather", "all_gather", r, g, volume * b_in, per=per),
        ring_gather(f"{name}_scatter", "reduce_scatter", r, g, volume * b_act, per=per),
    ]
