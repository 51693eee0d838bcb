"""Every figure and table by name, in the order of the gallery: name -> module that has ``data`` and ``draw``."""

import difflib
from collections.abc import Sequence

from ..errors import SpecError

SEED_1_FIGURES = {
    "decode-tps": "plots.decode_tps",
    "roofline": "plots.roofline",
    "prefill-share": "plots.prefill_share",
    "prefill-share-attention": "plots.prefill_share_attention",
    "prefill-flops": "plots.prefill_flops",
    "decode-bytes": "plots.decode_bytes",
    "batch-amortisation": "plots.batch_amortisation",
    "regime-map": "plots.regime_map",
    "intensity-map": "plots.intensity_map",
    "moe-batching": "plots.moe_batching",
    "decode-tps-per-gpu": "plots.decode_tps_per_gpu",
    "ttft": "plots.ttft",
    "cpu-overhead": "plots.cpu_overhead",
}

SEED_2_FIGURES: dict[str, str] = {
    "request-timeline": "plots.request_timeline",
    "memory-wall": "plots.memory_wall",
    "roofline-annotated": "plots.roofline_annotated",
    "roofline-ridge": "plots.roofline_ridge",
    "roofline-prefill": "plots.roofline_prefill",
    "roofline-decode": "plots.roofline_decode",
    "serving-metrics": "plots.serving_metrics",
    "memory-budget": "plots.memory_budget",
    "activation-reserve": "plots.activation_reserve",
    "kv-by-context": "plots.kv_by_context",
}

SEED_3_FIGURES: dict[str, str] = {
    "batching-crossover": "plots.batching_crossover",
}

BEYOND_FIGURES: dict[str, str] = {
    "pareto-gpus": "plots.pareto_gpus",
    "cost-interactivity": "plots.cost_interactivity",
    "pareto-tokens-per-mw": "plots.pareto_tokens_per_mw",
    "capacity-frontier": "plots.capacity_frontier",
    "capacity-by-family": "plots.capacity_by_family",
}

CALIBRATED_FIGURES: dict[str, str] = {
    "decode-tps-bands": "plots.decode_tps_bands",
    "decode-tps-per-gpu-bands": "plots.decode_tps_per_gpu_bands",
}

SEED_1_TABLES: dict[str, str] = {
    "levers": "tables.levers",
    "measured": "tables.measured",
}

SEED_2_TABLES = {
    "seed-2-operations": "tables.qwen3_flops_operations",
    "seed-2-totals": "tables.qwen3_flops_totals",
}

SEED_3_TABLES = {
    "seed-3-ridge": "tables.roofline_ridge_points",
    "seed-3-decode": "tables.roofline_decode_steps",
    "seed-3-batching": "tables.roofline_batching",
    "seed-3-kv": "tables.roofline_kv_cache",
    "seed-3-exercise": "tables.roofline_exercise",
}

FIGURES: dict[str, str] = SEED_1_FIGURES | SEED_2_FIGURES | SEED_3_FIGURES | BEYOND_FIGURES | CALIBRATED_FIGURES

TABLES: dict[str, str] = SEED_1_TABLES | SEED_2_TABLES | SEED_3_TABLES


def names() -> list[str]:
    """Names of all figures and tables, in the order of the gallery."""
    return [*FIGURES, *TABLES]


def chosen(wanted: Sequence[str]) -> list[str]:
    """Check names; none is all.

    Raises
    ------
    SpecError
        For a name that is not known.
    """
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        close = difflib.get_close_matches(unknown[0], names(), n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise SpecError(f"figures: unknown {', '.join(unknown)}; {hint}known: {', '.join(names())}")
    return [name for name in names() if not wanted or name in wanted]
