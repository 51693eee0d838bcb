"""Parameters of a fit: the efficiency fields each sets, and what is known of it before any serving measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.inputs.efficiency_rules import filled
from ..specs import COLLECTIVES, Efficiency, load_efficiency

Array = NDArray[Any]

GEMMS = ("attn_proj", "dense_mlp", "shared_experts", "router", "lm_head")
ATTENTION = ("attn_core", "indexer")


@dataclass(frozen=True)
class Parameter:
    """Hold one number of an efficiency profile: the fields it is the value of, its log-normal prior below `most`."""

    name: str
    fields: tuple[str, ...]
    median: float
    spread: float
    most: float
    source: str


def _fraction(name: str, fields: tuple[str, ...], median: float, low: float, high: float, of: str) -> Parameter:
    """Return a fraction of a peak; kernel tables put it between `low` and `high`, two standard deviations apart."""
    return Parameter(name, fields, median, float(np.log(high / low) / 2), 1.0, f"{of}, {low} to {high}")


def _time(name: str, fields: tuple[str, ...], median: float, spread: float, source: str) -> Parameter:
    return Parameter(name, fields, median, spread, 1e-3, source)


KERNELS = "kernel tables of aiconfigurator-core 0.12.0"

PARAMETERS = (
    _fraction(
        "memory_gemm",
        (*(f"memory_{k}" for k in GEMMS), "memory_embedding"),
        0.75,
        0.67,
        0.85,
        f"{KERNELS}: dense GEMM of up to 256 tokens",
    ),
    _fraction(
        "memory_attention",
        tuple(f"memory_{k}" for k in ATTENTION),
        0.85,
        0.76,
        0.92,
        f"{KERNELS}: attention of decode",
    ),
    _fraction("memory_experts", ("memory_routed_experts",), 0.8, 0.62, 0.95, f"{KERNELS}: MoE of up to 256 tokens"),
    _fraction(
        "memory_experts_w4",
        ("memory_routed_experts_w4",),
        0.7,
        0.45,
        1.0,
        "no kernel table: as the other experts, less for unpacking",
    ),
    _fraction(
        "compute_gemm",
        tuple(f"compute_{k}" for k in GEMMS),
        0.65,
        0.64,
        0.79,
        f"{KERNELS}: bf16 GEMM of 1024 and more tokens",
    ),
    _fraction(
        "compute_attention",
        tuple(f"compute_{k}" for k in ATTENTION),
        0.5,
        0.45,
        0.63,
        f"{KERNELS}: causal prefill",
    ),
    _fraction(
        "compute_experts", ("compute_routed_experts",), 0.35, 0.13, 0.7, f"{KERNELS}: MoE of 2048 and more tokens"
    ),
    _time(
        "latency", tuple(f"latency_{c}" for c in COLLECTIVES), 6e-6, 1.0, f"{KERNELS}: all-reduce 3 to 8 us, NCCL to 27"
    ),
    _time("launch_gemm", ("launch_gemm",), 4e-6, 0.9, f"{KERNELS}: bf16 GEMM 3 to 4 us, quantised 6 to 15"),
    _time("launch_attention", ("launch_attn_core",), 8e-6, 0.9, f"{KERNELS}: attention of decode 10 to 17 us"),
    _time(
        "launch_experts", ("launch_routed_experts",), 12e-6, 0.9, f"{KERNELS}: MoE 17 to 45 us in two launches and more"
    ),
    _time("launch_experts_fp4", ("launch_routed_experts_fp4",), 8e-6, 1.2, f"{KERNELS}: as launch_experts"),
    _time("launch_experts_w4", ("launch_routed_experts_w4",), 15e-6, 1.2, f"{KERNELS}: as launch_experts"),
    _time(
        "tau_layer_prefill",
        ("tau_layer_prefill",),
        5e-5,
        1.2,
        "a layer of 10 to 20 kernels without CUDA graphs, 5 to 10 us of the host each; no measurement apart",
    ),
    _time("tau_sequence", ("tau_sequence",), 5e-6, 1.8, "scheduling and sampling of one request; no measurement apart"),
)
"""What is fitted for each engine: 15 numbers."""

KNOWN: dict[str, float] = {
    **{f"link_{c}": 0.6 for c in COLLECTIVES},
    **{f"nic_{c}": 0.8 for c in COLLECTIVES},
    "compute_fp8": 0.75,
    "compute_fp4": 0.55,
    "compute_routed_experts_grouped": 0.65,
}
"""Fields that kernel tables say well enough, the same for every engine: link fractions of all-reduce 0.48 to 0.78, of
all-to-all 0.34 to 0.6; DeepEP over NICs 39 to 46 of 50 GB/s; GEMMs of 1024 and more tokens 0.53 of the fp8 and 0.38 of
the fp4 peak, over 0.70 of the bf16 one; experts behind an all-to-all (DeepGEMM after DeepEP) 0.52 to 0.57 of the
fp8 peak on Hopper and 0.42 to 0.43 on Blackwell, over 0.75."""

NAMES = tuple(parameter.name for parameter in PARAMETERS)


def base_values() -> dict[str, float]:
    """Return the fields before any parameter: those of ``ideal``, and :data:`KNOWN`; none used in place of another."""
    ideal = load_efficiency("ideal")
    fields = {name: getattr(ideal, name) for name in Efficiency.numeric_fields()}
    return {name: float(value) for name, value in fields.items() if value is not None} | KNOWN


def fields_of(points: Array, base: Mapping[str, float] | None = None) -> dict[str, Array]:
    """Return the fields of the efficiency record for parameter sets.

    Parameters
    ----------
    points
        Logarithms of :data:`PARAMETERS`, (sets, parameters).
    base
        Fields that no parameter sets; a field used in place of another one and given by neither has its value.

    Returns
    -------
    dict
        Every numeric field, (sets,).
    """
    points = np.atleast_2d(points)
    values = {name: np.full(len(points), value) for name, value in (base or base_values()).items()}
    for place, parameter in enumerate(PARAMETERS):
        values |= dict.fromkeys(parameter.fields, np.exp(points[:, place]))
    return filled(values)


def log_prior(points: Array) -> Array:
    """Return the log-density of the prior of log-parameters, up to a constant; -inf above a parameter's most."""
    points = np.atleast_2d(points)
    median = np.log([parameter.median for parameter in PARAMETERS])
    spread = np.array([parameter.spread for parameter in PARAMETERS])
    most = np.log([parameter.most for parameter in PARAMETERS])
    log_density = -0.5 * np.sum(((points - median) / spread) ** 2, axis=1)
    return np.where(np.all(points <= most, axis=1), log_density, -np.inf)
