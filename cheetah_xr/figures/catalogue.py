"""Every figure and table by name, in the order of the gallery: name -> module that has ``data`` and ``draw``."""

import difflib
from collections.abc import Sequence

from ..errors import SpecError

SEED_1_FIGURES = {
    "decode-tps": "decode_tps",
    "roofline": "roofline",
    "prefill-share": "prefill_share",
    "prefill-share-attention": "prefill_share_attention",
    "prefill-flops": "prefill_flops",
    "decode-bytes": "decode_bytes",
    "batch-amortisation": "batch_amortisation",
    "regime-map": "regime_map",
    "intensity-map": "intensity_map",
    "moe-batching": "moe_batching",
    "decode-tps-per-gpu": "decode_tps_per_gpu",
    "ttft": "ttft",
    "cpu-overhead": "cpu_overhead",
}

SEED_2_FIGURES: dict[str, str] = {
    "request-timeline": "request_timeline",
    "memory-wall": "memory_wall",
    "roofline-annotated": "roofline_annotated",
    "roofline-ridge": "roofline_ridge",
    "roofline-prefill": "roofline_prefill",
    "roofline-decode": "roofline_decode",
    "serving-metrics": "serving_metrics",
    "memory-budget": "memory_budget",
    "activation-reserve": "activation_reserve",
    "kv-by-context": "kv_by_context",
}

SEED_3_FIGURES: dict[str, str] = {
    "batching-crossover": "batching_crossover",
}

BEYOND_FIGURES: dict[str, str] = {
    "pareto-gpus": "pareto_gpus",
    "cost-interactivity": "cost_interactivity",
    "pareto-tokens-per-mw": "pareto_tokens_per_mw",
    "capacity-frontier": "capacity_frontier",
    "capacity-by-family": "capacity_by_family",
}

CALIBRATED_FIGURES: dict[str, str] = {
    "decode-tps-bands": "decode_tps_bands",
    "decode-tps-per-gpu-bands": "decode_tps_per_gpu_bands",
}

SEED_1_TABLES: dict[str, str] = {
    "levers": "levers",
    "measured": "measured",
}

SEED_2_TABLES = {
    "seed-2-operations": "seed_2_operations",
    "seed-2-totals": "seed_2_totals",
}

SEED_3_TABLES = {
    "seed-3-ridge": "seed_3_ridge",
    "seed-3-decode": "seed_3_decode",
    "seed-3-batching": "seed_3_batching",
    "seed-3-kv": "seed_3_kv",
    "seed-3-exercise": "seed_3_exercise",
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
