"""Published large-scale numbers as pure predictions: points that no factor was ever fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...api import evaluate
from ...costmodel.formulas import serving
from ...engine.step_time import PARTS
from ...specs import Efficiency, load_gpu
from .. import measurements as validation
from ..cases import case_of_rows, sequences_that_fit
from ..passes import values_of
from ..predictors import INSTANCE, lengths, make_problem

BAR = 0.25
"""Largest relative error the points are asked to have."""

SETS = {"sglang": "sglang-disaggregated", "deepseek": "sglang-disaggregated", "trtllm": "trtllm", "vllm": "vllm"}
"""Engine -> set of factors; DeepSeek's own engine has no set, its points are predicted with the nearest one."""

COUNTED_FROM_CACHE = {"deepseek-production-prefill-all": True, "deepseek-production-prefill-computed": False}
"""Rows of a day's production -> whether their rate counts prompt tokens that came from the cache."""

CACHED = 0.563
"""Share of prompt tokens from the cache in that production (DeepSeek, inference system overview, 2025)."""

NODES_OF_A_TOKEN = 4
"""Most nodes a token of DeepSeek-V3 is routed to (arXiv 2412.19437, section 2.1.2)."""


def predict(efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    """Every published row that is only predicted.

    Parameters
    ----------
    efficiencies
        A record for each of the values of :data:`SETS`.

    Returns
    -------
    pandas.DataFrame
        id, factors, gpu, layout, mode, batch (sequences of the instance), measured and predicted (tokens/s and GPU),
        ratio, bound (the largest part of the pass), communication (the share of the
        time spent in collectives that nothing hides), within (of :data:`BAR`), source.
    """
    table = validation.published_table()
    found = []
    for _, row in table[table["prediction"]].iterrows():
        name = SETS[row["engine"]]
        how = _served if row["mode"] == "aggregated" else _pass
        found.append({"factors": name, **how(row, efficiencies[name])})
    result = pd.DataFrame(found)
    return result.assign(
        ratio=result["predicted"] / result["measured"],
        within=(result["predicted"] / result["measured"] - 1).abs() <= BAR,
    )


def options_of(row: pd.Series[Any]) -> dict[str, Any]:
    """How a published row ran: micro-batches hide exchange behind compute, routing is limited to nodes in prefill."""
    micro_batches = int(row["micro_batches"])
    found: dict[str, Any] = {
        "redundant_experts": int(row["redundant_experts"]),
        "micro_batches": micro_batches,
        "overlap_ep": 1.0 if micro_batches > 1 else 0.0,
        "on_infeasible": "ignore",
    }
    domain = load_gpu(row["gpu"]).link_domain
    if (
        domain is not None
        and int(row["n_gpus"]) > domain
        and row["mode"] == "prefill"
        and row["model"].startswith("deepseek")
    ):
        found["max_nodes"] = NODES_OF_A_TOKEN
    return found


def shape_of(row: pd.Series[Any]) -> tuple[float, int, int]:
    """Sequences (NaN where the source does not say), tokens computed or kept per sequence, and tokens from the cache.

    A pass of DeepSeek's production has the 16,384 tokens per GPU of the other prefill points, cached ones not counted.
    """
    batch = float("nan") if pd.isna(row["concurrency"]) else float(row["concurrency"])
    tokens = int(row["isl"])
    if row["id"] not in COUNTED_FROM_CACHE:
        return batch, tokens, 0
    new = round(tokens * (1 - CACHED))
    ranks = int(row["dp"])
    return float(max(1, round(batch * tokens / new / ranks)) * ranks), new, tokens - new


def _pass(row: pd.Series[Any], efficiency: Efficiency) -> dict[str, Any]:
    """One pass alone, prefill or decode."""
    batch, tokens, cached = shape_of(row)
    options = options_of(row) | {"cached_tokens": cached}
    given: dict[str, Any] = {
        "phase": row["mode"],
        **{name: int(row[name]) for name in INSTANCE},
        "efficiency": efficiency,
        "options": options,
        "overrides": {"precision.kv_bytes": float(row["kv_bytes"])},
        "dtype": "float64",
    }
    what = (row["model"], row["gpu"], row["precision"])
    if np.isnan(batch):
        most = float(evaluate(*what, **given, batch=int(row["dp"]), seq_len=tokens, outputs=["max_batch"])["max_batch"])
        batch = most // int(row["dp"]) * int(row["dp"])
    ds = evaluate(*what, **given, batch=int(batch), seq_len=tokens)
    seconds = float(ds["step_time"])
    each = 1 if row["mode"] == "decode" else tokens + (cached if COUNTED_FROM_CACHE.get(row["id"]) else 0)
    return _line(row, batch, batch * each / seconds / int(row["n_gpus"])) | {
        "bound": PARTS[int(ds["bottleneck"])],
        "communication": float(ds["time_communication"]) / seconds,
    }


def _served(row: pd.Series[Any], efficiency: Efficiency) -> dict[str, Any]:
    """Prompts and decoding on the same GPUs: requests that decode at once over the time per token."""
    rows = pd.DataFrame([row]).assign(tpot_s=1.0)
    seconds = float(make_problem(rows).seconds(values_of(efficiency))[0, 0])
    isl, osl = lengths(rows)
    context = np.round(isl + osl / 2).astype(int)
    case = case_of_rows(rows, "decode", INSTANCE, rows["concurrency"].to_numpy(int), context)
    running = float(serving.running(rows["concurrency"].to_numpy(float), sequences_that_fit(case, 1), 1)[0])
    return _line(row, running, running / seconds / int(row["n_gpus"])) | {"bound": "", "communication": float("nan")}


def _line(row: pd.Series[Any], batch: float, predicted: float) -> dict[str, Any]:
    kept = {name: row[name] for name in ("id", "model", "gpu", "layout", "mode", "source")}
    return kept | {"batch": int(batch), "measured": float(row["tokens_per_s_gpu"]), "predicted": predicted}
