"""Define accounting options and accelerators of [Qwen3-FLOPs] and [Roofline], with the numbers those texts use."""

from __future__ import annotations

from typing import Any

import xarray as xr

from ...api import evaluate
from ...specs import AnyModel, Options, ParameterCountModel, SpecError, load_model
from .common import assumed, gpu_name

LAYERS = Options(activation_traffic="none", on_infeasible="ignore", include=("layers",))
"""[Qwen3-FLOPs]: weights and KV cache of the layers."""

LAYERS_SMALL = LAYERS.model_copy(update={"small_ops": "flops"})
"""[Qwen3-FLOPs], appendix: with the elementwise and normalization operations too."""

BANDWIDTH = Options(activation_traffic="none", on_infeasible="ignore")
"""[Roofline]: a parameter-count model, its weights and its FLOPs."""


def accelerator(name: str, tb_s: float, tflops: float) -> dict[str, Any]:
    """Return an accelerator with the numbers of a source text, which differ from those of the catalogue."""
    return {"name": name, "memory_gb": 80, "hbm_bandwidth_gb_s": tb_s * 1e3, "peak_bf16_tflops": tflops}


QWEN3_H100 = accelerator("h100-sxm", 3.35, 1000)
A100 = accelerator("a100-sxm-80gb", 2.0, 312)
H100 = accelerator("h100-sxm", 3.35, 989)
RTX_4090 = accelerator("rtx-4090", 1.008, 165)
RTX_4090_ROUNDED = accelerator("rtx-4090", 1.0, 165)

RULE_LOW, RULE_HIGH = 0.1, 0.3
"""[Qwen3-FLOPs], rule of thumb: memory of activations as fractions of the weights."""

RULE_CONTEXT = 2048
"""[Qwen3-FLOPs]: cached tokens of a request in its memory budget."""

INT4: dict[str, Any] = {
    "name": "int4",
    **{f"{c}_weight_bytes": 0.5 for c in ("attention", "dense_mlp", "experts", "shared_experts")},
    **{f"{c}_input_bytes": 2.0 for c in ("attention", "dense_mlp", "experts", "shared_experts")},
    **{f"{c}_compute": "bf16" for c in ("attention", "dense_mlp", "experts", "shared_experts", "attn_core")},
    "kv_bytes": 2.0,
}
"""INT4 of [Roofline]: exactly half a byte per weight, no scales, BF16 arithmetic."""


def ideal(model: Any, gpu: Any, precision: Any = "bf16", options: Options = BANDWIDTH, **more: Any) -> xr.Dataset:
    """Evaluate at ideal efficiencies in float64; batch and length are 1 unless given."""
    return evaluate(
        model,
        gpu,
        precision,
        options=options,
        efficiency="ideal",
        dtype="float64",
        **{"batch": 1, "seq_len": 1, **more},
    )


def with_cache(model: Any) -> AnyModel:
    """Load a model that has a KV cache.

    Raises
    ------
    SpecError
        For a parameter-count model without one.
    """
    record = load_model(model)
    if isinstance(record, ParameterCountModel) and record.n_kv_heads is None:
        raise SpecError(f"figures: {record.name} is a parameter count without a KV cache, which this figure is about")
    return record


def machine(ds: xr.Dataset) -> str:
    """Return the name of an accelerator with its memory bandwidth and BF16 peak."""
    bandwidth, peak = float(ds["hbm_bandwidth"]) / 1e12, float(ds["peak_bf16"]) / 1e12
    return f"{gpu_name(str(ds['gpu'].values))} with {bandwidth:g} TB/s and {peak:,.6g} TFLOP/s in BF16"


def assumed_on(ds: xr.Dataset) -> str:
    """Return the assumptions of a result and the numbers of its accelerator."""
    return f"{assumed(ds)} {machine(ds)}."
