"""Repair the parallel degrees of measured instances whose labels contradict themselves."""

from __future__ import annotations

import pandas as pd

from .silicon import INFERENCEX
from .table import POOLS

NODE = 8
"""Most GPUs of an aggregated instance of the public benchmark."""


def _inferencex(table: pd.DataFrame) -> pd.Series[bool]:
    return table["collection"].isin(INFERENCEX) & (table["mode"] == "aggregated")


def _root(table: pd.DataFrame) -> pd.Series[float]:
    """Return the square root of moe_tp*moe_ep, the number of GPUs the labels of experts give."""
    return (table["moe_tp"] * table["moe_ep"]) ** 0.5


def blank_dp(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether attention's data-parallel degree is blank where the experts' degrees say it is above 1."""
    return table["dp"].isna() & (table["moe_tp"] * table["moe_ep"] > table["tp"])


def fill_dp(table: pd.DataFrame) -> pd.DataFrame:
    """Fill the degree that makes attention and experts use the same GPUs."""
    return table.assign(dp=table["moe_tp"] * table["moe_ep"] / table["tp"])


def squared(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether all degrees are those of T*T GPUs, with T for both degrees of the experts."""
    root = _root(table)
    gpus = table["tp"] * table["dp"]
    return _inferencex(table) & (table["moe_tp"] == table["moe_ep"]) & (root > 1) & (gpus == root**2)


def unsquare(table: pd.DataFrame) -> pd.DataFrame:
    """Set T GPUs, all of them expert parallel."""
    root = _root(table)
    return table.assign(
        tp=root.where(table["dp"] == 1, 1.0), dp=root.where(table["dp"] > 1, 1.0), moe_tp=1.0, moe_ep=root
    )


def squared_vllm(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a row of vLLM has T for tp and for dp, and T*T expert-parallel ranks."""
    return (
        _inferencex(table)
        & (table["engine"] == "vllm")
        & (table["tp"] > 1)
        & (table["dp"] == table["tp"])
        & (table["moe_ep"] == table["tp"] ** 2)
    )


def tensor_parallel_attention(table: pd.DataFrame) -> pd.DataFrame:
    """Set T GPUs with tensor-parallel attention and T expert-parallel ranks."""
    return table.assign(dp=1.0, moe_ep=table["tp"])


def either_attention(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the label fits two recipes, one with tensor- and one with data-parallel attention."""
    recipe = (table["model"] == "minimax-m2.5") & (table["label"] == "fp4")
    return recipe & table["repairs"].str.contains("squared_vllm")


def unlabelled_expert_parallel(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a row is MiniMax-M2.5 on 8 H200, labelled tensor parallel."""
    where = (table["model"] == "minimax-m2.5") & (table["engine"] == "vllm") & (table["gpu"] == "h200-sxm")
    return _inferencex(table) & where & (table["tp"] == NODE) & (table["moe_ep"] == 1)


def expert_parallel(table: pd.DataFrame) -> pd.DataFrame:
    """Make every GPU an expert-parallel rank."""
    return table.assign(moe_tp=1.0, moe_ep=table["tp"] * table["dp"])


def pools_as_tp(table: pd.DataFrame) -> pd.Series[bool]:
    """Return whether an aggregated row has more GPUs than a node, all of them tensor parallel."""
    return _inferencex(table) & (table["tp"] > NODE) & (table["ep"] == 1)


def degrees_of_ours(table: pd.DataFrame, moe: pd.Series[bool]) -> pd.DataFrame:
    """Return the table with ``ep`` as in this package and blank degrees where the mode has none.

    The experts' tensor-parallel degree follows from tp*dp and ep, so it is dropped. Dense models have ep = 1.
    """
    degrees = table.copy()
    single = table["mode"] != "disaggregated"
    for pool in ("", *(f"{name}_" for name in POOLS)):
        ours = single if not pool else ~single
        degrees[f"{pool}dp"] = table[f"{pool}dp"].where(table[f"{pool}dp"] > 0).fillna(1.0).where(ours)
        degrees[f"{pool}tp"] = table[f"{pool}tp"].where(ours)
        experts = table[f"{pool}moe_ep"].where(table[f"{pool}moe_ep"] > 0)
        degrees[f"{pool}ep"] = experts.where(moe, 1.0).where(ours)
    return degrees


def contradicting_experts(table: pd.DataFrame, moe: pd.Series[bool]) -> pd.Series[bool]:
    """Return whether attention and experts have different numbers of GPUs, or there are pipeline stages."""
    wrong = (table[["pp", *(f"{name}_pp" for name in POOLS)]] > 1).any(axis=1)
    for pool in ("", *(f"{name}_" for name in POOLS)):
        ours = (table["mode"] == "disaggregated") == bool(pool)
        same = table[f"{pool}tp"] * table[f"{pool}dp"].fillna(1.0) == table[f"{pool}moe_tp"] * table[f"{pool}moe_ep"]
        wrong |= ours & moe & ~same
    return wrong
