"""Convert tables of collectives to this package's names, and count bytes by ``cheetah_xr.costmodel.formulas``.

``message_size`` counts elements, of the whole buffer as the NCCL tests define it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ....costmodel.formulas import collectives as terms
from ....costmodel.formulas.moe import distinct_ranks
from ....specs import load_gpu
from .formats import BF16, ELEMENT_BYTES, FORMATS, SHORT

NODE = {"gb200-nvl72": 4, "gb300-nvl72": 4}
"""GPUs of a node where they are not 8."""

NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
FORMULAS: dict[str, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    "all_reduce": terms.all_reduce,
    "all_gather": terms.gather,
    "reduce_scatter": terms.gather,
    "all_to_all": terms.all_to_all,
}
FP8_BYTES = 1 + 4 / 128
"""Bytes of a dispatched element: DeepEP sends fp8 with one fp32 scale per 128 (and 16 bytes per token)."""


def domain(gpus: pd.Series[str]) -> pd.Series[Any]:
    """Return the GPUs of the scale-up domain."""
    return gpus.map({gpu: load_gpu(gpu).link_domain for gpu in gpus.unique()})


def _collective(raw: pd.DataFrame, kernel: Any, dtype: str) -> pd.DataFrame:
    volume = raw["message_size"] * raw[dtype].map(ELEMENT_BYTES)
    ranks = raw["num_gpus"]
    inside = terms.members(ranks, domain(raw["gpu"]))
    tidied = pd.DataFrame(
        {
            "kernel": kernel,
            "backend": raw["kernel_source"],
            "precision": raw[dtype].map(SHORT),
            "ranks": ranks,
            "message_bytes": volume,
            "time_s": raw["latency"] / 1e3,
        }
    )
    both = {name: formula(volume, ranks, inside) for name, formula in FORMULAS.items()}
    for i, column in enumerate(("link_bytes", "nic_bytes")):
        tidied[column] = np.select([tidied["kernel"] == name for name in both], [pair[i] for pair in both.values()])
    return tidied


def engine_all_reduce(raw: pd.DataFrame) -> pd.DataFrame:
    """Convert all-reduces of an engine's own kernels; a compute graph replayed alone is already taken off."""
    return _collective(raw, "all_reduce", "allreduce_dtype")


def nccl(raw: pd.DataFrame) -> pd.DataFrame:
    """Convert NCCL's collectives, timed by the NCCL tests."""
    return _collective(raw, raw["op_name"].map(NAMES), "nccl_dtype")


def _expert_all_to_all(
    raw: pd.DataFrame, kernel: str, time_s: Any, ranks: Any, copies: Any, width: Any
) -> pd.DataFrame:
    volume = raw["num_tokens"] * copies * raw["hidden_size"] * width
    link, nic = terms.all_to_all(volume, ranks, terms.members(ranks, domain(raw["gpu"])))
    return pd.DataFrame(
        {
            "kernel": kernel,
            "backend": raw["backend"],
            "tokens": raw["num_tokens"],
            "hidden": raw["hidden_size"],
            "top_k": raw["topk"],
            "n_experts": raw["num_experts"],
            "ranks": ranks,
            "message_bytes": volume,
            "link_bytes": link,
            "nic_bytes": nic,
            "time_s": time_s,
        }
    )


def _deepep(raw: pd.DataFrame, copies: Any, time: str) -> pd.DataFrame:
    """Convert dispatch in fp8 and combine in bf16, each timed as a kernel; columns of time are in us."""
    ranks = raw["node_num"] * raw["gpu"].map(NODE).fillna(8)
    parts = [
        _expert_all_to_all(raw, kernel, raw[f"{kernel}_{time}"] / 1e6, ranks, copies(ranks), width).assign(
            precision=precision
        )
        for kernel, width, precision in (("dispatch", FP8_BYTES, "fp8"), ("combine", BF16, "bf16"))
    ]
    return pd.concat(parts, ignore_index=True)


def deepep_low_latency(raw: pd.DataFrame) -> pd.DataFrame:
    """Convert DeepEP's kernels for decode: one copy of a token per expert."""
    raw = raw.rename(columns={"num_token": "num_tokens", "num_topk": "topk"}).assign(backend="deepep-low-latency")
    return _deepep(raw, lambda _: raw["topk"], "avg_t_us")


def deepep_normal(raw: pd.DataFrame) -> pd.DataFrame:
    """Convert DeepEP's kernels for prefill on a number of SMs: one copy of a token per rank with one of its experts.

    Between nodes a token crosses once per node, which the bytes of these rows do not say.
    """
    raw = raw.rename(columns={"num_token": "num_tokens", "num_topk": "topk"})
    raw = raw.assign(backend="deepep-normal-" + raw["dispatch_sms"].astype("string") + "sm")
    return _deepep(raw, lambda ranks: distinct_ranks(ranks, raw["topk"]), "transmit_us")


def nvlink_all_to_all(raw: pd.DataFrame) -> pd.DataFrame:
    """Convert TensorRT-LLM's all-to-all over NVLink: one copy of a token per rank; a combine is in bf16
    unless it says otherwise.

    The all-to-all of indices before it (``alltoall_prepare``) carries no tokens and is left out.
    """
    raw = raw[raw["op_name"] != "alltoall_prepare"]
    name = raw["op_name"].str.removeprefix("alltoall_")
    kernel = name.str.removesuffix("_low_precision")
    ranks = raw["moe_ep_size"]
    dispatched = raw["moe_dtype"].map({label: form.input_bytes for label, form in FORMATS.items()})
    width = dispatched.where(name != "combine", BF16)
    tidied = _expert_all_to_all(
        raw.assign(backend=raw["kernel_source"] + name.str.removeprefix("combine").where(kernel == "combine", "")),
        "dispatch",
        raw["latency"] / 1e3,
        ranks,
        distinct_ranks(ranks, raw["topk"]),
        width,
    )
    return tidied.assign(kernel=kernel, precision=raw["moe_dtype"].map({k: v.name for k, v in FORMATS.items()}))
