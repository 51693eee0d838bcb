"""Convert kernel tables to this package's names, and count work by ``cheetah_xr.costmodel.formulas``.

Each function takes rows as the package holds them, with ``gpu`` and ``engine`` in front, and returns our columns.
``latency`` is in ms. What a row's time includes was read from the public collectors (github.com/ai-dynamo/
aiconfigurator, folder ``collector``); docs/evidence/kernel-tables.md says it per kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ....costmodel.formulas import attention as terms
from ....costmodel.formulas.gemm import gemm_activations, gemm_flops
from ....costmodel.formulas.moe import distinct_mean, unused_probability
from .formats import BF16, ELEMENT_BYTES, FORMATS, SHORT

LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128
"""Widths of DeepSeek-V3's latent attention, the only one in the tables."""

ABSORBED_PREFILL = "flash_attention"
"""SGLang's kernel on Hopper times a prefill on the latent itself (collector/sglang/collect_mla.py)."""


BLACKWELL_KERNELS = "trtllm|^torch_flow$|^default$"
"""Names the engines give to attention kernels of TensorRT-LLM."""


def _formats(labels: pd.Series[str], field: str) -> pd.Series[Any]:
    return labels.map({name: getattr(form, field) for name, form in FORMATS.items()})


def _common(raw: pd.DataFrame) -> dict[str, Any]:
    return {"backend": raw["kernel_source"], "time_s": raw["latency"] / 1e3}


def gemm(raw: pd.DataFrame) -> pd.DataFrame:
    """Count one projection of ``m`` tokens; narrow dtypes first quantise the bf16 input in a memory pass."""
    labels = raw["gemm_dtype"]
    rows, k, n = raw["m"], raw["k"], raw["n"]
    b_in = _formats(labels, "input_bytes")
    return pd.DataFrame(
        {
            "kernel": "gemm",
            **_common(raw),
            "precision": _formats(labels, "name"),
            "compute": _formats(labels, "compute"),
            "tokens": rows,
            "k": k,
            "n": n,
            "flops": gemm_flops(rows, k, n).astype("float64"),
            "bytes": k * n * _formats(labels, "weight_bytes") + gemm_activations(rows, k, n, b_in, BF16),
            "side_bytes": rows * k * (BF16 + b_in) * (b_in < BF16),
        }
    )


def quantize(raw: pd.DataFrame) -> pd.DataFrame:
    """Count the quantisation of m x k activations to fp8 with a known scale: read in bf16, written in fp8."""
    moved = raw["m"] * raw["k"] * (BF16 + raw["quant_dtype"].map(ELEMENT_BYTES))
    return pd.DataFrame(
        {
            "kernel": "quantize",
            **_common(raw),
            "precision": raw["quant_dtype"].map(SHORT),
            "tokens": raw["m"],
            "k": raw["k"],
            "flops": 0.0,
            "bytes": moved,
        }
    )


def _attention(raw: pd.DataFrame, kernel: str, label: pd.Series[str], new: Any, seq_len: Any) -> dict[str, Any]:
    """Return the columns of every attention.

    TensorRT-LLM's kernels for Blackwell, which all three engines call, multiply an fp8 cache in fp8 whatever the
    label: some rows are faster than the peak of bf16 allows.
    """
    narrow = raw["kv_cache_dtype"] != "bfloat16"
    in_fp8 = narrow & ~raw["gpu"].str.startswith("h") & raw["kernel_source"].str.contains(BLACKWELL_KERNELS)
    arithmetic = label.mask(in_fp8, "fp8")
    return {
        "kernel": kernel,
        **_common(raw),
        "precision": arithmetic.map(SHORT) + narrow.map({True: "-kv8", False: ""}),
        "compute": arithmetic.map(SHORT),
        "batch": raw["batch_size"],
        "new": new,
        "seq_len": seq_len,
        "heads": raw["num_heads"],
    }


def _grouped(raw: pd.DataFrame, kernel: str, new: Any, seq_len: Any, read: Any) -> pd.DataFrame:
    """Count grouped-query attention of ``new`` queries: ``read`` cached tokens are read, the new ones written.

    A window of 0 is none.
    """
    heads, kv_heads, d = raw["num_heads"], raw["num_key_value_heads"], raw["head_dim"]
    window = raw["window_size"].where(raw["window_size"] > 0, seq_len)
    pairs = terms.visible_pairs(new, seq_len - new, window=window)
    in_prefill = 2 * kv_heads * (new > 1)
    cache = (read(window) + new) * 2 * kv_heads * d * raw["kv_cache_dtype"].map(ELEMENT_BYTES)
    activations = new * (2 * heads + in_prefill) * d * BF16
    return pd.DataFrame(
        {
            **_attention(raw, kernel, raw["attn_dtype"], new, seq_len),
            "kv_heads": kv_heads,
            "head_dim": d,
            "window": raw["window_size"],
            "flops": (raw["batch_size"] * heads * pairs * 4 * d).astype("float64"),
            "bytes": raw["batch_size"] * (cache + activations),
        }
    )


def attention_prefill(raw: pd.DataFrame) -> pd.DataFrame:
    """Count attention of ``isl`` new tokens on nothing cached, with the write to the cache."""
    return _grouped(raw, "attention_prefill", raw["isl"], raw["isl"], lambda _: 0.0)


def attention_decode(raw: pd.DataFrame) -> pd.DataFrame:
    """Count attention of one new token on ``step`` cached ones and itself."""
    new, seq_len = raw["isl"], raw["step"] + raw["isl"]
    return _grouped(
        raw, "attention_decode", new, seq_len, lambda window: terms.cache_read_decode(seq_len, 1, window=window)
    )


def mla_prefill(raw: pd.DataFrame) -> pd.DataFrame:
    """Count the core of latent attention in a prefill: keys 192 and values 128 wide, or on the latent."""
    new, absorbed = raw["isl"], raw["kernel_source"] == ABSORBED_PREFILL
    key = absorbed.map({True: LATENT + ROPE, False: NOPE + ROPE})
    value = absorbed.map({True: LATENT, False: VALUE})
    return _latent(raw, "mla_prefill", new, new, 0.0, key, value, 1.0 - absorbed)


def mla_decode(raw: pd.DataFrame) -> pd.DataFrame:
    """Count the core of latent attention in decode, in the absorbed form: every head reads the same latent."""
    new, seq_len = raw["isl"], raw["step"] + raw["isl"]
    read = terms.cache_read_decode(seq_len, 1)
    return _latent(raw, "mla_decode", new, seq_len, read, LATENT + ROPE, LATENT, 0.0)


def _latent(
    raw: pd.DataFrame, kernel: str, new: Any, seq_len: Any, read: Any, key: Any, value: Any, rebuilt: Any
) -> pd.DataFrame:
    """Count latent attention; ``rebuilt`` is 1 where keys and values of every head are read, 0 on the latent."""
    heads = raw["num_heads"]
    cache = (read + new) * (LATENT + ROPE) * raw["kv_cache_dtype"].map(ELEMENT_BYTES)
    activations = heads * new * (key + value) * (1 + rebuilt) * BF16
    pairs = terms.visible_pairs(new, seq_len - new)
    return pd.DataFrame(
        {
            **_attention(raw, kernel, raw["mla_dtype"], new, seq_len),
            "head_dim": key,
            "flops": (raw["batch_size"] * heads * pairs * 2 * (key + value)).astype("float64"),
            "bytes": raw["batch_size"] * (cache + activations),
        }
    )


def experts(raw: pd.DataFrame) -> pd.DataFrame:
    """Count routed experts of the first of ``moe_ep_size`` ranks, ``num_tokens`` tokens of all ranks together.

    ``balanced`` rows spread tokens as evenly as possible: T*k/ep rows arrive, and as many distinct experts are read as
    there are rows or experts. Other rows draw their loads; the amounts here are the balanced ones, and a rule keeps
    them out of fits. Passes of their own are the quantisation and permutation of the input, the activation and the
    sum over a token's experts; in SGLang and vLLM they walk over T*k slots whatever the rank holds.
    """
    labels, top_k = raw["moe_dtype"], raw["topk"]
    slots, tokens = raw["num_experts"] / raw["moe_ep_size"], raw["num_tokens"]
    rows = (tokens * top_k / raw["moe_ep_size"]).clip(lower=1.0)
    d, f = raw["hidden_size"], raw["inter_size"] / raw["moe_tp_size"]
    b_in, gate = _formats(labels, "input_bytes"), gates(raw)
    one_way = gemm_activations(rows, d, f, b_in, BF16) + rows * f * BF16 * gate
    back = gemm_activations(rows, f, d, b_in, BF16)
    weights = np.minimum(rows, slots) * (2 + gate) * d * f * _formats(labels, "weight_bytes")
    walked = rows.where(raw["engine"] == "trtllm", tokens * top_k)
    passes = d * (BF16 + b_in) + f * ((1 + gate) * BF16 + b_in) + d * BF16
    return pd.DataFrame(
        {
            "kernel": "experts",
            **_common(raw),
            "precision": _formats(labels, "name"),
            "compute": _formats(labels, "compute"),
            "tokens": tokens,
            "hidden": d,
            "intermediate": raw["inter_size"],
            "top_k": top_k,
            "n_experts": raw["num_experts"],
            "tp": raw["moe_tp_size"],
            "ep": raw["moe_ep_size"],
            "routing": raw["distribution"],
            "distinct": np.minimum(rows, slots),
            "distinct_uniform": distinct_mean(slots, unused_probability(tokens, top_k, raw["num_experts"])),
            "flops": gemm_flops(rows, d, f) * (2 + gate),
            "bytes": weights + one_way + back,
            "side_bytes": walked * passes + tokens * d * BF16,
        }
    )


def experts_grouped(raw: pd.DataFrame) -> pd.DataFrame:
    """Count routed experts of one rank behind DeepEP's all-to-all: DeepGEMM on rows sorted by expert.

    ``experts_contiguous`` (prefill): ``num_tokens`` tokens of all ranks arrive once each, of which the rank's experts
    take T*k/ep rows, as many for every expert; the time holds sorting them and summing the results. ``experts_masked``
    (decode): rows arrive sorted, as many for every expert; below one each, half of all T*k experts get one, up to all
    of the rank (the collector's two processes).
    """
    prefill, labels = raw["op_name"] == "moe_context", raw["moe_dtype"]
    tokens, slots = raw["num_tokens"], raw["num_experts"] / raw["moe_ep_size"]
    each = tokens * raw["topk"] // raw["num_experts"]
    few = np.minimum(tokens * raw["topk"] // 2, slots)
    distinct = slots.where(each > 0, few)
    rows = (each * slots).where(each > 0, few)
    d, f, b_in = raw["hidden_size"], raw["inter_size"] / raw["moe_tp_size"], _formats(labels, "input_bytes")
    weights = distinct * 3 * d * f * _formats(labels, "weight_bytes")
    moved = 2 * gemm_activations(rows, d, f, b_in, BF16) + gemm_activations(rows, f, d, b_in, BF16) - rows * d * b_in
    sorting = tokens * d * (b_in + BF16) + rows * d * (b_in + BF16)
    return pd.DataFrame(
        {
            "kernel": prefill.map({True: "experts_contiguous", False: "experts_masked"}),
            **_common(raw),
            "precision": _formats(labels, "name"),
            "compute": _formats(labels, "compute"),
            "tokens": tokens,
            "hidden": d,
            "intermediate": raw["inter_size"],
            "top_k": raw["topk"],
            "n_experts": raw["num_experts"],
            "tp": raw["moe_tp_size"],
            "ep": raw["moe_ep_size"],
            "routing": raw["distribution"].replace("uniform", "balanced"),
            "distinct": distinct,
            "distinct_uniform": distinct_mean(slots, unused_probability(tokens, raw["topk"], raw["num_experts"])),
            "flops": gemm_flops(rows, d, f) * 3,
            "bytes": weights + moved,
            "side_bytes": rows * f * (2 * BF16 + b_in) + sorting * prefill,
        }
    )


def gates(raw: pd.DataFrame) -> pd.Series[int]:
    """Return 1 for experts with a gate, 0 for the Nemotron-3 models (squared ReLU), known by kernel or by shape."""
    many = (raw["topk"] == 22) & (raw["num_experts"] == 512)
    few = (raw["topk"] == 6) & (raw["inter_size"] == 1856)
    ungated = raw["kernel_source"].str.contains("nongated") | many | few
    return 1 - ungated.astype("int64")
