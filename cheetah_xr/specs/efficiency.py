"""The efficiency record: what software reaches of each peak, and the overheads it adds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from .record import Record

Fraction = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]

KERNELS = (
    "attn_proj",
    "attn_core",
    "indexer",
    "dense_mlp",
    "router",
    "shared_experts",
    "routed_experts",
    "embedding",
    "lm_head",
    "small_ops",
)
LAUNCHED = {
    "attn_proj": "launch_gemm",
    "dense_mlp": "launch_gemm",
    "shared_experts": "launch_gemm",
    "router": "launch_gemm",
    "attn_core": "launch_attn_core",
    "indexer": "launch_attn_core",
    "routed_experts": "launch_routed_experts",
}
"""Kernel -> the time of one launch of it; the others are launched for nothing."""

COLLECTIVES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""Collective -> how often each rank sends a message to every other one; its fields are link_*, nic_* and latency_*."""


class Efficiency(Record):
    """Fractions of peak HBM bandwidth, peak FLOP/s, link and NIC rate, and latencies and overheads in seconds.

    ``compute_fp8`` and ``compute_fp4`` multiply ``compute_*`` of attn_proj, dense_mlp, shared_experts and
    routed_experts where these multiply in that type: what a GEMM reaches of that peak, over what it reaches of bf16's.
    Routed experts with four-bit weights (below one byte) may have numbers of their own, else None: ``*_fp4`` where they
    are multiplied in fp4 or fp8, ``*_w4`` where they are converted and multiplied in bf16 or fp16.
    ``compute_routed_experts_grouped`` is for experts whose tokens arrive by all-to-all (dp and ep above 1), sorted for
    kernels that multiply one expert after the other; None: as ``compute_routed_experts``.
    ``launch_*`` is paid for each launch of a kernel of its class, ``tau_layer`` per layer, ``tau_layer_prefill`` also
    per layer of a prefill with more than 512 tokens on an attention rank (eager prefill: its kernels are launched one
    by one; decode and smaller forward passes replay CUDA graphs), ``tau_global`` per forward pass, ``tau_batch`` per
    sequence of the instance and forward pass ([CHEETAH], appendix), ``tau_sequence`` per sequence of one attention rank
    and forward pass.
    ``latency_message`` is paid for each message of a collective: 2(n-1) in a ring all-reduce, n-1 otherwise.
    """

    memory_attn_proj: Fraction = 1.0
    memory_attn_core: Fraction = 1.0
    memory_indexer: Fraction = 1.0
    memory_dense_mlp: Fraction = 1.0
    memory_router: Fraction = 1.0
    memory_shared_experts: Fraction = 1.0
    memory_routed_experts: Fraction = 1.0
    memory_routed_experts_w4: Fraction | None = None
    memory_embedding: Fraction = 1.0
    memory_lm_head: Fraction = 1.0
    memory_small_ops: Fraction = 1.0
    compute_attn_proj: Fraction = 1.0
    compute_attn_core: Fraction = 1.0
    compute_indexer: Fraction = 1.0
    compute_dense_mlp: Fraction = 1.0
    compute_router: Fraction = 1.0
    compute_shared_experts: Fraction = 1.0
    compute_routed_experts: Fraction = 1.0
    compute_routed_experts_grouped: Fraction | None = None
    compute_lm_head: Fraction = 1.0
    compute_small_ops: Fraction = 1.0
    compute_fp8: Fraction = 1.0
    compute_fp4: Fraction = 1.0
    link_all_reduce: Fraction = 1.0
    link_all_gather: Fraction = 1.0
    link_reduce_scatter: Fraction = 1.0
    link_all_to_all: Fraction = 1.0
    nic_all_reduce: Fraction = 1.0
    nic_all_gather: Fraction = 1.0
    nic_reduce_scatter: Fraction = 1.0
    nic_all_to_all: Fraction = 1.0
    latency_all_reduce: Seconds = 0.0
    latency_all_gather: Seconds = 0.0
    latency_reduce_scatter: Seconds = 0.0
    latency_all_to_all: Seconds = 0.0
    latency_message: Seconds = 0.0
    launch_gemm: Seconds = 0.0
    launch_attn_core: Seconds = 0.0
    launch_routed_experts: Seconds = 0.0
    launch_routed_experts_fp4: Seconds | None = None
    launch_routed_experts_w4: Seconds | None = None
    tau_layer: Seconds = 0.0
    tau_layer_prefill: Seconds = 0.0
    tau_global: Seconds = 0.0
    tau_batch: Seconds = 0.0
    tau_sequence: Seconds = 0.0

    @model_validator(mode="after")
    def _all_collectives(self) -> Efficiency:
        """Reject a profile that knows some collectives only: the default of the others is their peak."""
        for start in ("link", "nic"):
            missing = [f"{start}_{name}" for name in COLLECTIVES if f"{start}_{name}" not in self.model_fields_set]
            if 0 < len(missing) < len(COLLECTIVES):
                raise ValueError(f"{', '.join(missing)} missing: give {start}_* for every collective, or for none")
        return self
