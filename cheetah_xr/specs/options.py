"""Accounting options of the cost model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from ..errors import SpecError
from .loading import load_model
from .model import Model, ParameterCountModel
from .record import Frozen

Overlap = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Degree = Annotated[int, Field(ge=1)] | None
Part = Literal["layers", "embedding", "lm_head"]


def _drafter(value: Any) -> Any:
    """A draft model by name, path or mapping; "free" and "mtp" are kept."""
    if isinstance(value, str) and value in ("free", "mtp"):
        return value
    try:
        return load_model(value)
    except SpecError as error:
        raise ValueError(f"drafter is free, mtp or a model of its own: {error}") from None


Drafter = Annotated[
    Literal["free", "mtp"] | Model | ParameterCountModel,
    BeforeValidator(_drafter),
    WithJsonSchema({"type": ["string", "object"], "description": "free, mtp, or a draft model"}),
]


class Options(Frozen):
    """How work is counted and combined; every default is the one of the cost model (docs/explanation/cost-model.md).

    Parameters
    ----------
    granularity
        "kernel": the roofline maximum of each kernel, then the sum. "component": of attention, MLP, embedding and
        LM head as wholes ([CHEETAH]).
    activation_traffic
        "gemm" counts inputs and outputs of every GEMM, "none" leaves them out ([Qwen3-FLOPs], [Roofline]).
    small_ops
        Elementwise and normalization operations: "none", "flops" (norms, RoPE, softmax, gating, residuals as in the
        appendix of [Qwen3-FLOPs]) or "memory" (their traffic).
    causal
        Causal mask in prefill.
    mla
        Form of multi-head latent attention in decode.
    include
        Parts of the forward pass that are priced. Capacity always counts the whole model.
    cached_tokens
        Tokens per sequence already in the cache before a prefill.
    overlap_tp
        Overlap of all-reduces and gathers with the rest of a layer: the fraction of the smaller side that is
        overlapped.
    overlap_ep
        Overlap of expert dispatch and combine (and gathers of split experts) with the kernels of a layer: the
        fraction of the smaller side that is overlapped.
    micro_batches
        Micro-batches a forward pass is cut into; the layers' weights are read once for each.
    expert_comm
        "all_to_all", or "all_reduce" for tokens replicated on all ranks (needs dp = 1).
    dispatch_copies
        Copies of a token sent: one per "expert", per distinct "rank", or per distinct "node" and then inside it;
        "auto" is expert in decode and node in prefill.
    max_nodes
        Most nodes a token may be routed to; None is no limit.
    redundant_experts
        Extra expert slots (replicas).
    expert_load
        "mean" expected distinct experts of a rank, or those of the "busiest" rank.
    imbalance
        Tokens of the slowest rank over the mean.
    distinct_factor
        Distinct experts over those of uniform independent routing.
    dense_tp
        Tensor-parallel degree of dense MLPs; None is tp.
    shared_tp
        Tensor-parallel degree of shared experts; None is tp.
    lm_head_tp
        Tensor-parallel degree of the LM head; None is tp.
    hierarchy
        "max": link and NIC stages of a ring collective are pipelined; "sum": one after the other.
    on_infeasible
        Points that do not fit in memory: "mask" (NaN with a status), "clip" (run at the largest batch that fits) or
        "ignore" (memory is not looked at).
    memory_base
        What `memory_fraction` is a fraction of: "total" (vLLM), "free_at_start" (SGLang), "free_after_load"
        (TensorRT-LLM).
    memory_fraction
        Fraction of that memory the engine may use.
    reserve_bytes
        Bytes of one GPU kept for activations and workspaces.
    used_at_start_bytes
        Bytes of one GPU in use before the engine starts; lowers "free_at_start" and "free_after_load".
    draft_tokens
        Tokens drafted and verified per sequence and decode step.
    acceptance
        Acceptance rate: probability that a drafted token is accepted.
    drafter
        What drafts: "free" costs nothing, "mtp" is the model's own MTP module, anything else a
        draft model (catalogue name, path, mapping or record) in the same layout.
    """

    granularity: Literal["kernel", "component"] = "kernel"
    activation_traffic: Literal["gemm", "none"] = "gemm"
    small_ops: Literal["none", "flops", "memory"] = "none"
    causal: bool = True
    mla: Literal["absorbed", "expanded"] = "absorbed"
    include: Annotated[
        tuple[Part, ...], Field(strict=False, description="a list of parts: layers, embedding, lm_head")
    ] = ("layers", "embedding", "lm_head")
    cached_tokens: Count = 0
    overlap_tp: Overlap = 0.0
    overlap_ep: Overlap = 1.0
    micro_batches: Annotated[int, Field(ge=1)] = 1
    expert_comm: Literal["all_to_all", "all_reduce"] = "all_to_all"
    dispatch_copies: Literal["auto", "expert", "rank", "node"] = "auto"
    max_nodes: Degree = None
    redundant_experts: Count = 0
    expert_load: Literal["mean", "busiest"] = "mean"
    imbalance: Annotated[float, Field(ge=1)] = 1.0
    distinct_factor: Annotated[float, Field(gt=0, le=1)] = 1.0
    dense_tp: Degree = None
    shared_tp: Degree = None
    lm_head_tp: Degree = None
    hierarchy: Literal["max", "sum"] = "max"
    on_infeasible: Literal["mask", "clip", "ignore"] = "mask"
    memory_base: Literal["total", "free_at_start", "free_after_load"] = "total"
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reserve_bytes: Annotated[float, Field(ge=0)] = 0.0
    used_at_start_bytes: Annotated[float, Field(ge=0)] = 0.0
    draft_tokens: Count = 0
    acceptance: Annotated[float, Field(ge=0, le=1)] = 0.0
    drafter: Drafter = "free"

    @property
    def counts_memory(self) -> bool:
        """Whether points that do not fit in memory are masked or clipped."""
        return self.on_infeasible != "ignore"

    @property
    def clips(self) -> bool:
        """Whether a batch that does not fit runs at the largest that does."""
        return self.on_infeasible == "clip"

    def ignoring_memory(self) -> Options:
        """Return the options with which every point runs, whether or not it fits in memory."""
        return self.model_copy(update={"on_infeasible": "ignore"})

    def canonical(self) -> dict[str, Any]:
        """Return the options as plain JSON data, a draft model as its own."""
        own = super().canonical()
        return own if isinstance(self.drafter, str) else {**own, "drafter": self.drafter.canonical()}
