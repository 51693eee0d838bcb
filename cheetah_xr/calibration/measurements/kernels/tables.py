"""Read the kernel timings as one tidy table: its columns, its rules, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from ....specs import SpecError
from ..rule import Rule, apply
from ..silicon import GPUS
from . import files, wire, work

COLUMNS = {
    "kernel": "what is timed, one of KERNELS",
    "gpu": "catalogue name",
    "generation": "hopper or blackwell",
    "engine": "trtllm, sglang, vllm or nccl",
    "engine_version": "folder the table stands in",
    "backend": "library or mode, as the table names it",
    "precision": "number format of weights, of attention (-kv8: an fp8 cache) or of a message",
    "compute": "type whose peak bounds the FLOPs",
    "tokens": "rows of a GEMM; tokens of all ranks (experts); tokens of one rank (dispatch, combine)",
    "k": "width of the input",
    "n": "width of the output",
    "batch": "sequences",
    "new": "new tokens of a sequence",
    "seq_len": "keys of its last query, its own included",
    "heads": "query heads of the rank",
    "kv_heads": "key-value heads of the rank",
    "head_dim": "width of a key",
    "window": "keys a query looks back over, 0 for all",
    "hidden": "width of a token",
    "intermediate": "width of an expert, before it is split over tp",
    "top_k": "experts of a token",
    "n_experts": "routed experts",
    "tp": "ranks an expert is split over",
    "ep": "ranks the experts are spread over",
    "routing": "how the synthetic tokens choose experts",
    "distinct": "experts read by the rank when tokens are spread evenly",
    "distinct_uniform": "the same under uniform random routing, as the cost model counts",
    "ranks": "GPUs of a collective",
    "message_bytes": "bytes of the buffer, or sent by one rank",
    "flops": "FLOPs of the kernel",
    "bytes": "HBM bytes of its weights, cache, inputs and outputs",
    "side_bytes": "HBM bytes of memory passes around it: quantising and permuting inputs, activations, summing experts",
    "link_bytes": "bytes one GPU sends over its link",
    "nic_bytes": "bytes one GPU sends over its NIC",
    "time_s": "measured time, s",
    "rule": "rule that keeps the row out of fits, blank if none",
}
"""Every column and its meaning; blank where it does not apply to the kernel."""

AMOUNTS = ("flops", "bytes", "side_bytes", "link_bytes", "nic_bytes")
WHOLE = tuple(
    name
    for name in list(COLUMNS)[list(COLUMNS).index("tokens") : list(COLUMNS).index("message_bytes")]
    if not name.startswith(("routing", "distinct"))
)
TEXT = ("kernel", "gpu", "generation", "engine", "engine_version", "backend", "precision", "compute", "routing", "rule")


@dataclass(frozen=True)
class Table:
    """One kind of file: its name, the kernels it times, its conversion, and whether all its versions are read."""

    file: str
    kernels: tuple[str, ...]
    convert: Callable[[pd.DataFrame], pd.DataFrame]
    engine: str | None = None
    every_version: bool = False


DISPATCH_COMBINE = ("dispatch", "combine")
TABLES = (
    Table("gemm_perf", ("gemm",), work.gemm),
    Table("scale_matrix_perf", ("quantize",), work.quantize),
    Table("context_attention_perf", ("attention_prefill",), work.attention_prefill),
    Table("generation_attention_perf", ("attention_decode",), work.attention_decode),
    Table("context_mla_perf", ("mla_prefill",), work.mla_prefill),
    Table("generation_mla_perf", ("mla_decode",), work.mla_decode),
    Table("moe_perf", ("experts",), work.experts),
    Table("wideep_context_moe_perf", ("experts_contiguous",), work.experts_grouped, engine="sglang"),
    Table("wideep_generation_moe_perf", ("experts_masked",), work.experts_grouped, engine="sglang"),
    Table("custom_allreduce_perf", ("all_reduce",), wire.engine_all_reduce),
    Table("nccl_perf", tuple(wire.FORMULAS), wire.nccl, engine="nccl"),
    Table("wideep_deepep_ll_perf", DISPATCH_COMBINE, wire.deepep_low_latency, every_version=True),
    Table("wideep_deepep_normal_perf", DISPATCH_COMBINE, wire.deepep_normal, every_version=True),
    Table("trtllm_alltoall_perf", DISPATCH_COMBINE, wire.nvlink_all_to_all),
)
"""Left out: whole modules (projections and core in one time), recurrent and sparse mixers, ``moe_a2a_perf`` (calls with
host waits inside, in us), and the ``computescale`` and ``*_topk_calib`` tables (signed differences)."""

KERNELS = tuple(dict.fromkeys(kernel for table in TABLES for kernel in table.kernels))
SHORTEST, MOST_SEQUENCES, MOST_QUERIES, NARROWEST, FEWEST_ROWS = 256, 512, 16, 512, 16384

RULES = (
    Rule(
        "eager",
        "exclusion",
        "Not a replay of a CUDA graph: the time holds the launches of the host. The collector of vLLM turns graphs off "
        "for fp8_block GEMMs, and all-reduces of the mode eager say so.",
        lambda t: (
            t["backend"].str.endswith("_eager")
            | ((t["kernel"] == "gemm") & (t["engine"] == "vllm") & (t["precision"] == "fp8-block"))
        ),
    ),
    Rule(
        "unfused",
        "exclusion",
        "A chain of PyTorch operations in place of the kernel that engines run.",
        lambda t: (t["kernel"] == "quantize") & (t["engine"] == "sglang"),
    ),
    Rule(
        "narrow",
        "exclusion",
        f"A matrix with a side below {NARROWEST}, which no projection of a catalogue model has once fused.",
        lambda t: (t["kernel"] == "gemm") & ((t["k"] < NARROWEST) | (t["n"] < NARROWEST)),
    ),
    Rule(
        "short",
        "exclusion",
        f"Fewer than {SHORTEST} keys, or more than {MOST_SEQUENCES} sequences in decode: outside what is served.",
        lambda t: (t["seq_len"] < SHORTEST) | (t["kernel"].str.endswith("_decode") & (t["batch"] > MOST_SEQUENCES)),
    ),
    Rule(
        "many_queries",
        "exclusion",
        f"More than {MOST_QUERIES} query heads per KV head, as one of sixty catalogue models has.",
        lambda t: t["heads"] > MOST_QUERIES * t["kv_heads"],
    ),
    Rule(
        "group_limited",
        "exclusion",
        "The kernel routes to 4 of 8 groups of experts, which the synthetic choice does not respect: half of the "
        "experts are read, and the timed rank gets far more tokens than the mean. Kernels of the mode min_latency, "
        "and DeepSeek-V3's shape in SGLang and vLLM.",
        lambda t: (
            t["backend"].str.endswith("min_latency")
            | (
                (t["kernel"] == "experts")
                & (t["engine"] != "trtllm")
                & (t["hidden"] == 7168)
                & (t["intermediate"] == 2048)
                & (t["n_experts"] == 256)
            )
        ),
    ),
    Rule(
        "host_bound",
        "exclusion",
        "The collector launches the kernels of experts_contiguous from the host, some 0.4 ms for all: with fewer than "
        f"{FEWEST_ROWS:,} rows on the rank that is the time.",
        lambda t: (t["kernel"] == "experts_contiguous") & (t["tokens"] * t["top_k"] < FEWEST_ROWS * t["ep"]),
    ),
    Rule(
        "skewed",
        "exclusion",
        "Loads of experts are drawn from a power law; how many tokens and experts the draw gave is not in the table.",
        lambda t: t["routing"].notna() & (t["routing"] != "balanced"),
    ),
    Rule(
        "other_sms",
        "exclusion",
        "DeepEP's kernels for prefill on another number of SMs than the 20 it takes by default.",
        lambda t: t["backend"].str.startswith("deepep-normal") & (t["backend"] != "deepep-normal-20sm"),
    ),
    Rule(
        "across_hosts",
        "exclusion",
        "The all-reduce kernels of SGLang and vLLM serve one host; beyond it the time is that of NCCL.",
        lambda t: (
            (t["kernel"] == "all_reduce")
            & t["engine"].isin(["sglang", "vllm"])
            & (t["ranks"] > t["gpu"].map(wire.NODE).fillna(8))
        ),
    ),
    Rule(
        "across_nodes",
        "exclusion",
        "More than one node: DeepEP forwards inside the node, which these rows' bytes do not say.",
        lambda t: t["kernel"].isin(DISPATCH_COMBINE) & (t["nic_bytes"] > 0),
    ),
)
"""Exclusions look at fields and at what the public collectors do, never at how well a row fits."""


def kernel_table(
    kernels: Iterable[str] | None = None, gpus: Iterable[str] | None = None, engines: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return the kernel timings of the package, a row each, with the columns of :data:`COLUMNS`.

    Parameters
    ----------
    kernels
        Some of :data:`KERNELS`; all by default, which is seven million rows.
    gpus
        Catalogue names of accelerators; all six of the package by default.
    engines
        trtllm, sglang, vllm, nccl; all by default.

    Returns
    -------
    pandas.DataFrame
        Text columns as categories, whole numbers as nullable integers, amounts and times in SI units.

    Raises
    ------
    SpecError
        When the package is not installed, a name is not known, or nothing was measured.
    """
    requested = _chosen("kernels", kernels, KERNELS)
    where = _chosen("gpus", gpus, tuple(GPUS.values()))
    by = _chosen("engines", engines, ("trtllm", "sglang", "vllm", "nccl"))
    parts = [
        _converted(table, file)
        for table in TABLES
        if requested.intersection(table.kernels)
        for file in _files(table)
        if file.gpu in where and (table.engine or file.engine) in by
    ]
    if not parts:
        what = [", ".join(sorted(names)) for names in (requested, by, where)]
        raise SpecError(f"kernel_table: no table of {what[0]} for {what[1]} on {what[2]}")
    return tidy(pd.concat([part[part["kernel"].isin(requested)] for part in parts], ignore_index=True))


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in order with their types, every row naming the first rule that concerns it."""
    tidied = rows.reindex(columns=list(COLUMNS)).assign(rule="")
    tidied["generation"] = tidied["gpu"].str.startswith("h").map({True: "hopper", False: "blackwell"})
    tidied[list(AMOUNTS)] = tidied[list(AMOUNTS)].fillna(0.0).astype("float64")
    tidied = apply(tidied, RULES)
    return tidied.astype(dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(TEXT, "category"))


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count the rows of every kernel by the rule that keeps them out of fits, those in fits in the first column."""
    named = table["rule"].astype("string").replace("", "in fits")
    counted = pd.crosstab(table["kernel"].astype("string"), named)
    rules = ["in fits", *(rule.name for rule in RULES)]
    return counted.reindex(columns=[name for name in rules if name in counted])


def _chosen(what: str, names: Iterable[str] | None, known: tuple[str, ...]) -> frozenset[str]:
    chosen = frozenset(known if names is None else names)
    if unknown := sorted(chosen - set(known)):
        raise SpecError(f"kernel_table: {what}: {unknown[0]!r} is not one of {', '.join(known)}")
    return chosen


def _files(table: Table) -> Iterable[files.KernelFile]:
    tables = files.find(table.file)
    if table.engine:
        tables = [file for file in tables if file.engine == table.engine]
    return tables if table.every_version else files.newest(tables)


def _converted(table: Table, file: files.KernelFile) -> pd.DataFrame:
    raw = file.read().assign(gpu=file.gpu, engine=table.engine or file.engine)
    return table.convert(raw).assign(gpu=file.gpu, engine=table.engine or file.engine, engine_version=file.version)
