"""Define the dtypes of the kernel tables: bytes per element of weights and inputs, and the dtype of compute."""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.precision import ComputeType

BF16 = 2.0
"""Bytes of an activation before it is quantised, and of every output."""


@dataclass(frozen=True)
class Format:
    """One dtype of a GEMM, block scales included, as the precisions of the catalogue count them."""

    name: str
    weight_bytes: float
    input_bytes: float
    compute: ComputeType


FORMATS = {
    "bfloat16": Format("bf16", 2.0, 2.0, "bf16"),
    "fp8": Format("fp8", 1.0, 1.0, "fp8"),
    "fp8_block": Format("fp8-block", 1 + 4 / 128**2, 1 + 4 / 128, "fp8"),
    "nvfp4": Format("nvfp4", 0.5 + 1 / 16, 0.5 + 1 / 16, "fp4"),
    "int4_wo": Format("int4", 0.5 + 2 / 128, 2.0, "bf16"),
    "w4a16_mxfp4": Format("mxfp4", 0.5 + 1 / 32, 2.0, "bf16"),
    "w4a8_mxfp4_mxfp8": Format("mxfp4-mxfp8", 0.5 + 1 / 32, 1 + 1 / 32, "fp8"),
}
"""By the tables' names: scales per tensor (fp8), per 128x128 weights and 128 inputs in fp32, per 16 (nvfp4), 128 (int4,
bf16 scales) and 32 elements (mxfp, one byte)."""

ELEMENT_BYTES = {"bfloat16": 2.0, "half": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of an element of a cache, of attention's arithmetic or of a message."""

SHORT = {"bfloat16": "bf16", "half": "bf16", "fp8": "fp8", "int8": "int8"}
