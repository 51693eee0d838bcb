"""Predict published large-scale points, to which nothing was fitted."""

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
from ..predictors import INSTANCE, lengths, make_problem
from ..row_table import field_values

TOLERANCE = 0.25
"""Largest relative error that counts as within."""

PROFILES = {"sglang": "sglang-disaggregated", "deepseek": "sglang-disaggregated", "trtllm": "trtllm", "vllm": "vllm"}
"""Engine -> efficiency profile; DeepSeek's own engine has none and is predicted with the nearest one."""

COUNTED_FROM_CACHE = {"deepseek-production-prefill-all": True, "deepseek-production-prefill-computed": False}
"""Rows of a day's production -> whether their rate counts input tokens read from the cache."""

CACHED = 0.563
"""Fraction of input tokens from the cache in that production (DeepSeek, inference system overview, 2025)."""

NODES_OF_A_TOKEN = 4
"""Most nodes a token of DeepSeek-V3 is routed to (arXiv 2412.19437, section 2.1.2)."""


def predict(efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    """Predict every published row that is never fitted.

    Parameters
    ----------
    efficiencies
        A record for each of the values of :data:`PROFILES`.

    Returns
    -------
    pandas.DataFrame
        id, efficiency, gpu, layout, mode, batch (sequences of the instance), measured and predicted (tokens/s and GPU),
        ratio, bound (the largest part of the forward pass), communication (the exposed fraction of
        the time), within (of :data:`TOLERANCE`), source.
    """
    table = validation.published_table()
    lines = []
    for _, row in table[table["prediction"]].iterrows():
        name = PROFILES[row["engine"]]
        predict_row = _served if row["mode"] == "aggregated" else _forward_pass
        lines.append({"efficiency": name, **predict_row(row, efficiencies[name])})
    result = pd.DataFrame(lines)
    return result.assign(
        ratio=result["predicted"] / result["measured"],
        within=(result["predicted"] / result["measured"] - 1).abs() <= TOLERANCE,
    )


def options_of(row: pd.Series[Any]) -> dict[str, Any]:
    """Return the options of a published row: overlap, redundant experts, and in prefill nodes per token."""
    micro_batches = int(row["micro_batches"])
    options: dict[str, Any] = {
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
        options["max_nodes"] = NODES_OF_A_TOKEN
    return options


def shape_of(row: pd.Series[Any]) -> tuple[float, int, int]:
    """Return sequences (NaN where not stated), tokens computed or in context per sequence, and tokens from the cache.

    A forward pass of DeepSeek's production has the 16,384 tokens per GPU of the other prefill points, without
    cached ones.
    """
    batch = float("nan") if pd.isna(row["concurrency"]) else float(row["concurrency"])
    tokens = int(row["isl"])
    if row["id"] not in COUNTED_FROM_CACHE:
        return batch, tokens, 0
    new = round(tokens * (1 - CACHED))
    ranks = int(row["dp"])
    return float(max(1, round(batch * tokens / new / ranks)) * ranks), new, tokens - new


def _forward_pass(row: pd.Series[Any], efficiency: Efficiency) -> dict[str, Any]:
    """Predict one forward pass, prefill or decode."""
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
    """Predict aggregated serving: the requests that decode concurrently over the time per token."""
    rows = pd.DataFrame([row]).assign(tpot_s=1.0)
    seconds = float(make_problem(rows).seconds(field_values(efficiency))[0, 0])
    isl, osl = lengths(rows)
    context = np.round(isl + osl / 2).astype(int)
    case = case_of_rows(rows, "decode", INSTANCE, rows["concurrency"].to_numpy(int), context)
    running = float(serving.running(rows["concurrency"].to_numpy(float), sequences_that_fit(case, 1), 1)[0])
    return _line(row, running, running / seconds / int(row["n_gpus"])) | {"bound": "", "communication": float("nan")}


def _line(row: pd.Series[Any], batch: float, predicted: float) -> dict[str, Any]:
    labels = {name: row[name] for name in ("id", "model", "gpu", "layout", "mode", "source")}
    return labels | {"batch": int(batch), "measured": float(row["tokens_per_s_gpu"]), "predicted": predicted}
