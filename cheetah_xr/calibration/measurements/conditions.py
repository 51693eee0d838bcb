"""Test rows for copies, concurrency, draft tokens, and times that contradict each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...specs import Model, list_models, load_model
from .silicon import DATABASE, INFERENCEX
from .table import WORKERS

DRAFTED_SINCE = {"deepseek-r1": "2026-01-14", "qwen3.5-397b-a17b": "2026-03-20"}
"""First day on which the public benchmark may have measured a single-node recipe with draft tokens, by model."""

SETUP = ["model", "gpu", "engine", "precision", "layout", "mode", "isl", "osl"]


def has_experts(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the model of a row has experts."""
    names = sorted(set(table["model"].dropna()) & set(list_models()))
    models = {name: load_model(name) for name in names}
    return table["model"].map({name: isinstance(m, Model) and m.is_moe for name, m in models.items()}).eq(True)


def copies(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a better export, or an earlier row of the same, has the same measurement."""
    rank = table["collection"].map({name: i for i, name in enumerate(INFERENCEX)}).fillna(len(INFERENCEX))
    ordered = table.assign(rank=rank).sort_values("rank", kind="stable")
    return ordered.duplicated("measurement").reindex(table.index)


def drafts(table: pd.DataFrame) -> pd.Series[str]:
    """Return whether draft tokens are possible: not in the database's export, nor before the first recipe."""
    in_database = (table["collection"] == DATABASE).groupby(table["measurement"]).transform("any")
    since = table["model"].map(DRAFTED_SINCE).astype("string")
    late = (table["date"].astype("string") >= since).fillna(False).astype(bool)
    disaggregated = since.notna() & (table["mode"] == "disaggregated")
    possible = table["collection"].isin(INFERENCEX) & (late | disaggregated) & ~in_database
    return possible.groupby(table["measurement"]).transform("any").map({True: "possible", False: "none"})


def ambiguous_concurrency(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether requests exceed batch times ranks: there are replicas or ranks that no field gives."""
    ranks = table["labelled_dp"].where(table["labelled_dp"] > 0).fillna(1.0)
    return (table["mode"] == "aggregated") & table["batch"].notna() & (table["batch"] * ranks < table["concurrency"])


def waiting(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether concurrent requests exceed the ranks that prefill, so that one may wait for another."""
    ranks = table["dp"].where(table["mode"] != "disaggregated", table["prefill_workers"] * table["prefill_dp"])
    served = table["mode"].isin(["aggregated", "disaggregated"])
    return served & ~(table["concurrency"] <= ranks).fillna(False).astype(bool)


def no_workers(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the prefill or decode workers are not stated."""
    return (table["mode"] == "disaggregated") & table[list(WORKERS)].isna().any(axis=1)


def fp8_8b_on_h200(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a row is Llama-3.1-8B in FP8 on H200."""
    return (table["model"] == "llama-3.1-8b") & (table["gpu"] == "h200-sxm") & (table["label"] == "fp8")


def stalled(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a batch with at least as much of everything took less than half the time on the same setup."""
    time = table["elapsed_s"].fillna(table["ttft_s"]).where(table["mode"].isin(["static", "prefill"]))
    flags = pd.Series(False, table.index)
    for _, rows in table[time.notna()].groupby(["model", "gpu", "engine", "precision", "layout"]):
        seconds = time[rows.index].to_numpy()
        larger = seconds[None] * 2 < seconds[:, None]
        for name in ("isl", "osl", "concurrency"):
            values = rows[name].to_numpy("float64")
            larger = larger & (values[None] >= values[:, None])
        flags.loc[rows.index] = pd.DataFrame(larger, rows.index).any(axis=1)
    return flags


def falls_with_load(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the next lighter load, at most half as many requests, took more than twice as long per token."""
    flags = pd.Series(False, table.index)
    for _, rows in table[(table["rule"] == "") & table["tpot_s"].notna()].groupby(SETUP):
        loads = rows.groupby("concurrency")["tpot_s"].median()
        lighter = np.searchsorted(loads.index.to_numpy("float64"), rows["concurrency"].to_numpy("float64") / 2, "right")
        before = np.append(0.0, loads.to_numpy())[lighter]
        flags.loc[rows.index] = rows["tpot_s"] * 2 < before
    return flags


def repeats_differ(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether repeats of one point differ by more than half in time per token."""
    eligible = (table["rule"] == "") & table["tpot_s"].notna()
    times = table[eligible].groupby([*SETUP, "concurrency"])["tpot_s"]
    return (times.transform("max") > 1.5 * times.transform("min")).reindex(table.index, fill_value=False)
