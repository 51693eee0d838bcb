"""Define the columns of the table of measurements and the labels made of them."""

from __future__ import annotations

import pandas as pd

DEGREES = ("tp", "dp", "ep")
POOLS = ("prefill", "decode")
WORKERS = tuple(f"{pool}_workers" for pool in POOLS)
POOL_DEGREES = tuple(f"{pool}_{degree}" for pool in POOLS for degree in DEGREES)
TIMES = ("ttft_s", "tpot_s", "elapsed_s", "tokens_per_s_gpu")
WHOLE = (*DEGREES, *POOL_DEGREES, *WORKERS, "n_gpus", "isl", "osl", "concurrency", "redundant_experts", "micro_batches")
"""Columns of whole numbers, blank where the source does not say."""

COLUMNS = {
    "id": "name of the row in its source",
    "source": "where the number stands",
    "collection": "one campaign or export of measurements",
    "model": "catalogue name",
    "gpu": "catalogue name",
    "engine": "trtllm, sglang, vllm or another",
    "engine_version": "as the source names it",
    "date": "day of the measurement or of its publication",
    "precision": "catalogue name",
    "kv_bytes": "bytes per element of the KV cache, which replace the precision's",
    "kv_source": "stated, recipe, checkpoint or assumed: how the cache's width is known",
    "mode": "aggregated, disaggregated, prefill or decode (one phase alone), static (one batch from start to end)",
    "tp": "tensor-parallel degree of attention (blank in disaggregated rows)",
    "dp": "data-parallel degree of attention",
    "ep": "expert-parallel degree; an instance has tp*dp GPUs and ep divides them",
    "n_gpus": "GPUs of the instance, or of all prefill and decode workers",
    "prefill_tp": "tensor-parallel degree of one prefill worker",
    "prefill_dp": "data-parallel degree of attention of one prefill worker",
    "prefill_ep": "expert-parallel degree of one prefill worker",
    "prefill_workers": "prefill workers",
    "decode_tp": "tensor-parallel degree of one decode worker",
    "decode_dp": "data-parallel degree of attention of one decode worker",
    "decode_ep": "expert-parallel degree of one decode worker",
    "decode_workers": "decode workers",
    "redundant_experts": "replicas of experts",
    "micro_batches": "micro-batches of a forward pass",
    "isl": "nominal input tokens, or cached tokens of a decode-only row",
    "osl": "nominal output tokens",
    "length_fraction": "mean length over the nominal one: 0.9 where lengths are drawn from 80 to 100 % of it",
    "concurrency": "concurrent requests of the whole instance, or of all prefill and decode workers",
    "drafts": "none, or possible: whether several tokens per step may have been drafted",
    "prediction": "whether the row is only ever predicted",
    "assumed": "fields the source does not state, assumed here",
    "ttft_s": "mean time to first token, or time of a prefill batch, s",
    "tpot_s": "mean time per output token after the first, s",
    "elapsed_s": "time of a static batch from start to end, s",
    "tokens_per_s_gpu": "input tokens (prefill) or output tokens (otherwise) per second and GPU",
    "layout": "the degrees in one label",
    "status": "status of the layout in the engine, without the memory check; blank where fields are missing",
    "repairs": "names of the repairs applied, comma separated",
    "reported": "names of the reasons to report the row separately, comma separated",
    "ttft_rule": "rule that keeps the time to first token out of fits, blank if none",
    "rule": "rule that excludes the row, blank if it is eligible",
}
"""Every column of the table and what it holds."""


def pool_label(table: pd.DataFrame, pool: str = "") -> pd.Series[str]:
    """Return ``tp8-dp1-ep8`` of an instance, or of one worker of a pool."""
    parts = [f"{pool}_{name}" if pool else name for name in DEGREES]
    degrees = [degree + table[part].astype("string").fillna("?") for degree, part in zip(DEGREES, parts, strict=True)]
    return degrees[0] + "-" + degrees[1] + "-" + degrees[2]


def layout_label(table: pd.DataFrame) -> pd.Series[str]:
    """Return every layout as text: ``tp8-dp1-ep8``, or ``1x(tp1-dp4-ep4)+5x(tp8-dp1-ep8)`` where disaggregated."""
    pools = []
    for pool in POOLS:
        workers = table[f"{pool}_workers"].astype("string").fillna("?")
        pools.append(workers + "x(" + pool_label(table, pool) + ")")
    return pool_label(table).where(table["mode"] != "disaggregated", pools[0] + "+" + pools[1])


def total_gpus(table: pd.DataFrame) -> pd.Series[int]:
    """Return the GPUs of every row: tp*dp of an instance, those of all prefill and decode workers."""
    prefill, decode = (table[f"{pool}_tp"] * table[f"{pool}_dp"] * table[f"{pool}_workers"] for pool in POOLS)
    return (table["tp"] * table["dp"]).where(table["mode"] != "disaggregated", prefill + decode)


def tidy(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in order, whole numbers as nullable integers."""
    return table.reindex(columns=list(COLUMNS)).astype(dict.fromkeys(WHOLE, "Int64")).reset_index(drop=True)
