"""The precision record: bytes and compute type of every class of weights."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .record import Record

ComputeType = Literal["bf16", "fp16", "fp8", "fp4", "int8"]
Bytes = Annotated[float, Field(gt=0)]

WEIGHT_CLASSES = ("attention", "dense_mlp", "experts", "shared_experts", "router", "embedding", "lm_head")
"""Classes of weights that may have bytes of their own."""

GEMM_CLASSES = tuple(c for c in WEIGHT_CLASSES if c != "embedding")
"""Classes that are multiplied, and so have a compute type and input bytes."""


class Precision(Record):
    """Bytes per element of weights, GEMM inputs, KV cache and activations, and the compute type per class.

    ``*_weight_bytes`` and ``*_input_bytes`` include block scales. The embedding is looked up, never multiplied.
    ``index_bytes`` are those of an indexer's keys, ``state_bytes`` of recurrent states (engines keep them in float32).
    """

    attention_weight_bytes: Bytes
    attention_input_bytes: Bytes
    attention_compute: ComputeType
    attn_core_compute: ComputeType
    indexer_compute: ComputeType = "bf16"
    dense_mlp_weight_bytes: Bytes
    dense_mlp_input_bytes: Bytes
    dense_mlp_compute: ComputeType
    experts_weight_bytes: Bytes
    experts_input_bytes: Bytes
    experts_compute: ComputeType
    shared_experts_weight_bytes: Bytes
    shared_experts_input_bytes: Bytes
    shared_experts_compute: ComputeType
    router_weight_bytes: Bytes = 2.0
    router_input_bytes: Bytes = 2.0
    router_compute: ComputeType = "bf16"
    embedding_weight_bytes: Bytes = 2.0
    lm_head_weight_bytes: Bytes = 2.0
    lm_head_input_bytes: Bytes = 2.0
    lm_head_compute: ComputeType = "bf16"
    kv_bytes: Bytes
    index_bytes: Bytes = 2.0
    state_bytes: Bytes = 4.0
    activation_bytes: Bytes = 2.0
