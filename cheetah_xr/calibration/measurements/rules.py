"""List the rules by which measured rows are repaired, excluded or reported separately, with reasons."""

from __future__ import annotations

import pandas as pd

from ...specs import list_gpus, list_models
from . import conditions, layouts
from .precisions import assign_precisions
from .rule import Rule, apply
from .silicon import DATABASE
from .status import layout_status
from .table import WHOLE, layout_label, tidy, total_gpus

REPAIRS = (
    Rule(
        "r1_named_v3",
        "repair",
        "The database's export names DeepSeek-V3 where ids, recipes and the same measurements in other exports say R1.",
        lambda t: (t["collection"] == DATABASE) & (t["model"] == "deepseek-v3"),
        lambda t: t.assign(model="deepseek-r1"),
    ),
    Rule(
        "blank_dp",
        "repair",
        "Attention's data-parallel degree is blank, and the experts' degrees give more GPUs than tp.",
        lambda t: (t["mode"] == "aggregated") & conditions.has_experts(t) & layouts.blank_dp(t),
        layouts.fill_dp,
    ),
    Rule(
        "squared_degrees",
        "repair",
        "A recipe of T GPUs with T expert-parallel ranks is labelled as T*T GPUs: 16 or 64 on a node of 8, and every "
        "measurement that the export of 2026-03-25 holds too has T there.",
        layouts.squared,
        layouts.unsquare,
    ),
    Rule(
        "squared_vllm",
        "repair",
        "vLLM recipes of T GPUs with expert parallelism are labelled tp = dp = T and ep = T*T; the recipes keep "
        "attention tensor parallel, as the export of 2026-03-25 labels them.",
        layouts.squared_vllm,
        layouts.tensor_parallel_attention,
    ),
    Rule(
        "unlabelled_ep",
        "repair",
        "The vLLM recipe of MiniMax-M2.5 on 8 H200 turns expert parallelism on whatever the label says.",
        layouts.unlabelled_expert_parallel,
        layouts.expert_parallel,
    ),
)
"""Repairs of labels, in the order they are applied."""

EXCLUSIONS = (
    Rule("unknown_model", "exclusion", "The model is not in the catalogue.", lambda t: ~t["model"].isin(list_models())),
    Rule("unknown_gpu", "exclusion", "The accelerator is not in the catalogue.", lambda t: ~t["gpu"].isin(list_gpus())),
    Rule(
        "copy",
        "exclusion",
        "The same measurement stands in another row, to a hundredth of a millisecond.",
        conditions.copies,
    ),
    Rule(
        "unknown_precision",
        "exclusion",
        "No published checkpoint fits the label.",
        lambda t: t["precision"].isna(),
    ),
    Rule("no_concurrency", "exclusion", "The concurrency is not stated.", lambda t: t["concurrency"].isna()),
    Rule(
        "no_length",
        "exclusion",
        "The input or the output length is not stated.",
        lambda t: t[["isl", "osl"]].isna().any(axis=1),
    ),
    Rule(
        "ambiguous_concurrency",
        "exclusion",
        "More requests than the batch of a rank times the ranks: replicas, or ranks, that no field gives.",
        conditions.ambiguous_concurrency,
    ),
    Rule(
        "no_workers",
        "exclusion",
        "The prefill and decode workers are not stated, and so neither are their batches.",
        conditions.no_workers,
    ),
    Rule(
        "pools_as_tp",
        "exclusion",
        "An aggregated row with more tensor-parallel GPUs than a node: the label counts the GPUs of the prefill and "
        "decode pools.",
        layouts.pools_as_tp,
    ),
    Rule(
        "either_attention",
        "exclusion",
        "MiniMax-M2.5 FP4 with expert parallelism: one label for recipes of tensor- and of data-parallel attention.",
        layouts.either_attention,
    ),
    Rule(
        "contradicting_degrees",
        "exclusion",
        "Attention and experts are labelled with different numbers of GPUs, or there are pipeline stages.",
        lambda t: t["contradicting"],
    ),
    Rule(
        "stalled",
        "exclusion",
        "A static batch that took more than twice as long as one with at least as many requests and tokens: a stall, "
        "which the source averages in.",
        conditions.stalled,
    ),
    Rule(
        "draft_tokens",
        "exclusion",
        "Reported separately: several tokens per step may have been drafted.",
        lambda t: t["drafts"] == "possible",
    ),
    Rule(
        "invalid_layout",
        "exclusion",
        "The engine does not accept the layout (the column `status` says why).",
        lambda t: ~t["status"].isin(["", "ok"]),
    ),
)
"""Exclusions; a row bears the name of the first that concerns it."""

REMARKS = (
    Rule(
        "ttft_queueing",
        "ttft",
        "More concurrent requests than attention ranks that prefill: the mean time to first token contains waiting.",
        conditions.waiting,
    ),
    Rule(
        "llama_8b_fp8_h200",
        "report",
        "Predictors find some of these rows wrong by about 2x; nothing in their fields says why, so they stay.",
        conditions.fp8_8b_on_h200,
    ),
    Rule(
        "falls_with_load",
        "report",
        "The next lighter load of the same setup, at most half as many requests, took over twice as long per token.",
        conditions.falls_with_load,
    ),
    Rule(
        "repeats_differ",
        "report",
        "Repeats of the same point differ by more than half in time per token.",
        conditions.repeats_differ,
    ),
)
"""Remarks, which do not decide whether a row is eligible."""

RULES = (*REPAIRS, *EXCLUSIONS, *REMARKS)


def of_silicon(rows: pd.DataFrame) -> pd.DataFrame:
    """Tidy the rows of the package's table: repairs, precisions, degrees as in this package, and every other rule."""
    repaired = apply(rows.assign(labelled_dp=rows["dp"], elapsed_s=float("nan")), REPAIRS)
    experts = conditions.has_experts(repaired)
    contradicting = layouts.contradicting_experts(repaired, experts)
    repaired = layouts.degrees_of_ours(assign_precisions(repaired), experts)
    return _with_rules(repaired.assign(contradicting=contradicting, drafts=conditions.drafts(repaired)))


def of_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Tidy the rows of the project's own file: precisions and degrees are stated there, all rules but repairs apply."""
    return _with_rules(rows.assign(labelled_dp=rows["dp"]))


def _with_rules(table: pd.DataFrame) -> pd.DataFrame:
    tidied = table.astype({name: "Int64" for name in WHOLE if name in table})
    tidied = tidied.assign(n_gpus=total_gpus(tidied), layout=layout_label(tidied))
    return tidy(apply(tidied.assign(status=layout_status(tidied)), [*EXCLUSIONS, *REMARKS]))
