"""Register every figure and table: name -> module that has ``data`` (and ``draw``), by the source it shows."""

import difflib
from collections.abc import Sequence

from ..errors import SpecError

CHEETAH, QWEN3_FLOPS, ROOFLINE = "[CHEETAH]", "[Qwen3-FLOPs]", "[Roofline]"
"""Tags of the source texts in docs/references.md."""

FURTHER, INTERVALS = "Further comparisons", "[CHEETAH], with credible intervals"

FIGURES_BY_SOURCE: dict[str, dict[str, str]] = {
    CHEETAH: {
        "decode-tps": "plots.decode_tps",
        "roofline": "plots.roofline",
        "prefill-fraction": "plots.prefill_fraction",
        "prefill-fraction-attention": "plots.prefill_fraction_attention",
        "prefill-flops": "plots.prefill_flops",
        "decode-bytes": "plots.decode_bytes",
        "batch-amortisation": "plots.batch_amortisation",
        "regime-map": "plots.regime_map",
        "intensity-map": "plots.intensity_map",
        "moe-batching": "plots.moe_batching",
        "decode-tps-per-gpu": "plots.decode_tps_per_gpu",
        "ttft": "plots.ttft",
        "cpu-overhead": "plots.cpu_overhead",
    },
    QWEN3_FLOPS: {
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
    },
    ROOFLINE: {
        "batching-crossover": "plots.batching_crossover",
    },
    FURTHER: {
        "pareto-gpus": "plots.pareto_gpus",
        "cost-interactivity": "plots.cost_interactivity",
        "pareto-tokens-per-mw": "plots.pareto_tokens_per_mw",
        "capacity-frontier": "plots.capacity_frontier",
        "capacity-by-family": "plots.capacity_by_family",
    },
    INTERVALS: {
        "decode-tps-intervals": "plots.decode_tps_intervals",
        "decode-tps-per-gpu-intervals": "plots.decode_tps_per_gpu_intervals",
    },
}

TABLES_BY_SOURCE: dict[str, dict[str, str]] = {
    CHEETAH: {
        "levers": "tables.levers",
        "measured": "tables.measured",
    },
    QWEN3_FLOPS: {
        "qwen3-flops-operations": "tables.qwen3_flops_operations",
        "qwen3-flops-totals": "tables.qwen3_flops_totals",
    },
    ROOFLINE: {
        "roofline-ridge-points": "tables.roofline_ridge_points",
        "roofline-decode-steps": "tables.roofline_decode_steps",
        "roofline-batching": "tables.roofline_batching",
        "roofline-kv-cache": "tables.roofline_kv_cache",
        "roofline-exercise": "tables.roofline_exercise",
    },
}

FIGURES = {name: module for group in FIGURES_BY_SOURCE.values() for name, module in group.items()}
TABLES = {name: module for group in TABLES_BY_SOURCE.values() for name, module in group.items()}


def by_source() -> dict[str, list[str]]:
    """Return the names of figures and tables under each source, in the order of the gallery."""
    return {
        source: [*figures, *TABLES_BY_SOURCE.get(source, ())] for source, figures in FIGURES_BY_SOURCE.items()
    }  # fmt: skip


def names() -> list[str]:
    """Return the names of all figures and tables, in the order of the gallery."""
    return [name for group in by_source().values() for name in group]


def source_of(name: str) -> str:
    """Return the source a figure or table shows."""
    return next(source for source, group in by_source().items() if name in group)


def select(requested: Sequence[str]) -> list[str]:
    """Check names and put them in the order of the gallery; no name selects all.

    Raises
    ------
    SpecError
        For an unknown name.
    """
    unknown = [name for name in requested if name not in names()]
    if unknown:
        close = difflib.get_close_matches(unknown[0], names(), n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise SpecError(f"figures: unknown {', '.join(unknown)}; {hint}known: {', '.join(names())}")
    return [name for name in names() if not requested or name in requested]
