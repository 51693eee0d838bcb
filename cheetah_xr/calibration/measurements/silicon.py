"""Read the public table of measurements in the package aiconfigurator-core, in this package's names and units.

Nothing is copied: the file is read where the package is installed. The meaning of its columns was determined by
comparing the exports it is made of with each other and with the public recipes of the benchmark behind most rows:
docs/evidence/measurements.md describes it.
"""

from __future__ import annotations

import importlib
from importlib import resources
from typing import Any

import pandas as pd

from ...specs import SpecError
from .table import POOLS

PACKAGE = "aiconfigurator_core"
SOURCE = "PyPI aiconfigurator-core 0.12.0, systems/silicon_sample.csv"
EXTRA = "pip install 'cheetah_xr[validation]'"

MODELS = {
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3.1",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "zhipuai/GLM-5": "glm-5",
}
GPUS = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}
MODES = {"agg": "aggregated", "disagg": "disaggregated"}
DATABASE = "inferencex-2026-04-27"
INFERENCEX = (DATABASE, "inferencex-2026-03-25", "inferencex-2026-04-06")
"""Exports of one public benchmark, best first: the latest is of its database and states workers of pools."""

COLLECTIONS = (
    ("db-dump/2026-04-27", DATABASE),
    ("source_file=2026-03-25", INFERENCEX[1]),
    ("source_file=2026-04-06", INFERENCEX[2]),
    ("gtl_task_id", "nvidia-jobs"),
    ("gap-analysis.csv", "rounded-copies"),
    ("", "nvidia-sweeps"),
)
"""What a row's note contains, and the collection it stands for; the first that fits."""


def read() -> pd.DataFrame:
    """Read the file as it is, text columns as text and blanks as missing.

    Raises
    ------
    SpecError
        When the package is not installed, naming the extra that brings it.
    """
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError:
        raise SpecError(f"the public measurements come with the package aiconfigurator-core: {EXTRA}") from None
    with resources.as_file(resources.files(package) / "systems" / "silicon_sample.csv") as path:
        return pd.read_csv(path, low_memory=False)


def harmonise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the file's rows with this package's names and units, labels unchanged.

    Degrees and labels that rules may repair keep the file's meaning: ``moe_tp`` and ``moe_ep`` are the tensor- and
    expert-parallel degrees of experts (tp*dp = moe_tp*moe_ep), ``batch`` is requests per attention rank.
    """
    note = rows["silicon_data_source"]
    harmonised = pd.DataFrame(
        {
            "id": rows["id"],
            "source": SOURCE,
            "collection": _collection(note),
            "model": rows["model_path"].map(MODELS),
            "gpu": rows["system"].map(GPUS),
            "engine": rows["backend"],
            "engine_version": rows["backend_version"],
            "date": pd.to_datetime(_noted(note, "measured"), format="ISO8601", utc=True).dt.strftime("%Y-%m-%d"),
            "label": rows["precision"].fillna(""),
            "published_as": rows["model_path"],
            "mode": rows["mode"].map(MODES),
            "isl": rows["isl"],
            "osl": rows["osl"],
            "concurrency": pd.to_numeric(_noted(note, "silicon_concurrency")),
            "batch": rows["batch_size"],
            "redundant_experts": 0,
            "micro_batches": 1,
            "prediction": False,
            "assumed": "",
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
        }
    )
    harmonised = pd.concat([harmonised, _degrees(rows)], axis=1)
    harmonised["length_fraction"] = (
        harmonised["collection"].isin([*INFERENCEX, "rounded-copies"]).map({True: 0.9, False: 1.0})
    )
    return harmonised.assign(
        drafts="none", repairs="", reported="", rule="", ttft_rule="", measurement=_same(harmonised)
    )


def _degrees(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the degrees of the instance and of one prefill and one decode worker."""
    columns: dict[str, Any] = {}
    for ours, theirs in (("", ""), *((f"{pool}_", f"{pool}_") for pool in POOLS)):
        columns[f"{ours}tp"] = rows[f"{theirs}tp_size"]
        columns[f"{ours}dp"] = rows[f"{theirs}attention_dp_size"]
        columns[f"{ours}moe_tp"] = rows[f"{theirs}moe_tp_size"]
        columns[f"{ours}moe_ep"] = rows[f"{theirs}moe_ep_size"]
        columns[f"{ours}pp"] = rows[f"{theirs}pp_size"]
        if ours:
            columns[f"{ours}workers"] = rows[f"{theirs}num_workers"]
    return pd.DataFrame(columns)


def _noted(note: pd.Series[str], key: str) -> pd.Series[str]:
    """Extract the value of ``key=value`` in the notes, missing where there is none."""
    return note.str.extract(rf"(?:^|; ){key}=([^;]*)")[0]


def _collection(note: pd.Series[str]) -> pd.Series[str]:
    names = pd.Series("", index=note.index)
    for text, name in reversed(COLLECTIONS):
        names = names.mask(note.str.contains(text, regex=False), name)
    return names


def _same(table: pd.DataFrame) -> pd.Series[str]:
    """Return one label for all copies of a measurement: its setup and its times to a hundredth of a millisecond."""
    parts = [table[name].astype("string").fillna("?") for name in ("gpu", "engine", "isl", "osl", "concurrency")]
    times = [(table[name] * 1e3).round(2).map("{:.2f}".format) for name in ("ttft_s", "tpot_s")]
    label = parts[0]
    for part in [*parts[1:], *times]:
        label = label + "|" + part
    return label
