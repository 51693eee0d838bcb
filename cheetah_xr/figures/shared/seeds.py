"""The accounting of seeds 2 and 3, accelerators with the seeds' own numbers, and rows that quote what a seed prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ...api import evaluate
from ...specs import AnyModel, Options, ParameterCountModel, SpecError, load_model
from .common import assumed, described, gpu_name

LAYERS = Options(activation_traffic="none", on_infeasible="ignore", include=("layers",))
"""Seed 2: weights and KV cache of the layers."""

LAYERS_SMALL = LAYERS.model_copy(update={"small_ops": "flops"})
"""The same with the small operations of its appendix."""

BANDWIDTH = Options(activation_traffic="none", on_infeasible="ignore")
"""Seed 3: a parameter-count model, its weights and its FLOPs."""


def accelerator(name: str, tb_s: float, tflops: float) -> dict[str, Any]:
    """An accelerator with a seed's numbers, which differ from the catalogue's."""
    return {"name": name, "memory_gb": 80, "hbm_bandwidth_gb_s": tb_s * 1e3, "peak_bf16_tflops": tflops}


SEED_2_H100 = accelerator("h100-sxm", 3.35, 1000)
A100 = accelerator("a100-sxm-80gb", 2.0, 312)
H100 = accelerator("h100-sxm", 3.35, 989)
RTX_4090 = accelerator("rtx-4090", 1.008, 165)
RTX_4090_ROUNDED = accelerator("rtx-4090", 1.0, 165)

INT4: dict[str, Any] = {
    "name": "int4",
    **{f"{c}_weight_bytes": 0.5 for c in ("attention", "dense_mlp", "experts", "shared_experts")},
    **{f"{c}_input_bytes": 2.0 for c in ("attention", "dense_mlp", "experts", "shared_experts")},
    **{f"{c}_compute": "bf16" for c in ("attention", "dense_mlp", "experts", "shared_experts", "attn_core")},
    "kv_bytes": 2.0,
}
"""Seed 3's INT4: exactly half a byte per weight, no scales, BF16 arithmetic."""


def ideal(model: Any, gpu: Any, precision: Any = "bf16", options: Options = BANDWIDTH, **more: Any) -> xr.Dataset:
    """Evaluate at the peaks, in float64; a batch of 1 and a length of 1 unless said otherwise."""
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
    """A model that has a KV cache.

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
    """An accelerator and the two numbers of its roofline."""
    bandwidth, peak = float(ds["hbm_bandwidth"]) / 1e12, float(ds["peak_bf16"]) / 1e12
    return f"{gpu_name(str(ds['gpu'].values))} with {bandwidth:g} TB/s and {peak:,.6g} TFLOP/s in BF16"


def assumed_on(ds: xr.Dataset) -> str:
    """The assumptions of a result, and the numbers of its accelerator."""
    return f"{assumed(ds)} {machine(ds)}."


class Quote(NamedTuple):
    """A number as a seed prints it (its digits count), where it stands, and the engine's."""

    item: str
    unit: str
    printed: str
    computed: Any
    place: str
    note: str = ""


def half_unit(printed: str) -> float:
    """Half a unit of the last digit that is printed; zeros at the end of a whole number do not count as printed."""
    digits = Decimal(printed.replace(",", ""))
    return 0.5 * 10.0 ** int((digits.normalize() if "." not in printed else digits).as_tuple().exponent)


def verdict(quote: Quote, difference: float) -> str:
    """The note of a quote: its own, else exact or rounded."""
    if quote.note:
        return quote.note
    if difference == 0:
        return "exact"
    return "rounded" if abs(difference) <= half_unit(quote.printed) else "differs"


def quoted(quotes: Iterable[Quote], *, title: str, shows: str, assumptions: str) -> xr.Dataset:
    """A table that puts what a seed prints beside what the engine computes."""
    rows = list(quotes)
    printed = np.array([float(q.printed.replace(",", "")) for q in rows])
    computed = np.array([float(q.computed) for q in rows])
    difference = computed - printed
    difference[np.abs(difference) < 1e-12 * np.abs(printed)] = 0.0  # the last bits of a division
    columns: Mapping[str, Any] = {
        "item": [q.item for q in rows],
        "unit": [q.unit for q in rows],
        "printed": printed,
        "computed": computed,
        "difference": difference,
        "note": [verdict(q, d) for q, d in zip(rows, difference, strict=True)],
        "place": [q.place for q in rows],
    }
    return described(
        {name: ("row", values) for name, values in columns.items()}, title=title, shows=shows, assumptions=assumptions
    )
