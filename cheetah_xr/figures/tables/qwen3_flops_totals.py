"""Tabulate [Qwen3-FLOPs]: totals of its text and appendix, printed and computed."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...analysis import derive
from ...api import operations
from ...specs import Options
from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import LAYERS, LAYERS_SMALL, QWEN3_H100, assumed_on, ideal

MODEL, T = "qwen3-32b", 1000
SUMS = {
    "attention projections": (("q_proj", "k_proj", "v_proj", "o_proj"), "188,743,680"),
    "MLP projections": (("gate_proj", "up_proj", "down_proj"), "786,432,000"),
    "RMSNorms": (("attn_norm", "mlp_norm"), "40,960"),
    "residual adds": (("attn_residual", "mlp_residual"), "10,240"),
}
PAIRS = ("scores", "softmax", "attn_values")
DERIVED = ["flops", "arithmetic_intensity", "bytes_weights", "bytes_kv", "ridge"]


def _collected() -> Iterator[Quote]:
    """Yield the sums of appendix A, "Collecting those terms"."""
    for phase, per, pairs, matmuls, layer_pairs, model_pairs in (
        ("prefill", T, T * (T + 1), "16,384", "16,544", "1,058,816"),
        ("decode", 1, T, "32,768", "33,088", "2,117,632"),
    ):
        counted = operations(MODEL, phase, T)
        flops = counted["flops"].where(counted["group"] != counted["operation"], drop=True)  # of the layers
        token, pair = ("FLOP per T", "FLOP per T(T+1)") if phase == "prefill" else ("FLOP", "FLOP per L")
        where = f"{phase} FLOPs, collected"
        for name, (members, printed) in SUMS.items():
            total = flops.sel(operation=list(members)).sum() / per
            yield Quote(f"{phase}: {name}, one layer", token, printed, total, where)
        core = flops.sel(operation=["scores", "attn_values"]).sum() / pairs
        yield Quote(f"{phase}: attention products, one layer", pair, matmuls, core, where)
        quadratic = flops.sel(operation=list(PAIRS)).sum()
        linear, layers = (flops.sum() - quadratic) / per, int(counted["count"].max())
        yield Quote(f"{phase}: terms per token, one layer", token, "975,408,128", linear, where)
        yield Quote(f"{phase}: terms per token pair, one layer", pair, layer_pairs, quadratic / pairs, where)
        yield Quote(f"{phase}: terms per token, {layers} layers", token, "62,426,120,192", layers * linear, where)
        yield Quote(
            f"{phase}: terms per token pair, {layers} layers", pair, model_pairs, layers * quadratic / pairs, where
        )


def _forward_passes() -> Iterator[Quote]:
    core = ideal(MODEL, QWEN3_H100, options=LAYERS, seq_len=T, phase="prefill", outputs=DERIVED)
    full = ideal(MODEL, QWEN3_H100, options=LAYERS_SMALL, seq_len=T, phase="prefill", outputs=DERIVED)
    step = ideal(MODEL, QWEN3_H100, options=LAYERS_SMALL, seq_len=[T, 2 * T], outputs=DERIVED)
    at, slope = step.isel(seq_len=0), step.diff("seq_len").isel(seq_len=0)
    intensity, unit, example = "arithmetic_intensity", "FLOP/B", "example: Qwen3-32B"
    yield Quote("ridge of the H100", unit, "298.5", core["ridge"], example)
    yield Quote("prefill T=1000: core", "TFLOP", "63.46", core["flops"] / 1e12, example)
    yield Quote("prefill T=1000: core intensity", unit, "1,012.6", core[intensity], example)
    yield Quote("prefill T=1000: with small_ops", "FLOP", "63,485,995,008,000", full["flops"], "prefill FLOPs")
    yield Quote("prefill T=1000: with small_ops", "TFLOP", "63.49", full["flops"] / 1e12, "prefill FLOPs")
    cut = "cut, not rounded: 1,012.967"
    yield Quote("prefill T=1000: full intensity", unit, "1,012.9", full[intensity], "prefill arithmetic intensity", cut)
    slip = "slip: its formula at L=1"
    yield Quote("decode L=1000: a step", "FLOP", "62,428,237,824", at["flops"], "decode FLOPs", slip)
    yield Quote("decode L=1000: intensity", unit, "1.03", at[intensity], "decode arithmetic intensity")
    limit = slope["flops"] / slope["bytes_kv"]
    yield Quote("decode, long contexts: intensity", unit, "8.08", limit, "decode arithmetic intensity")


def _bytes() -> Iterator[Quote]:
    ds = ideal(MODEL, QWEN3_H100, options=LAYERS, seq_len=[1, 2048])
    head = ideal(MODEL, QWEN3_H100, options=LAYERS.model_copy(update={"include": ("layers", "lm_head")}))
    moved, kv, where = ds["bytes_weights"][0], ds["kv_bytes_per_sequence"], "bytes moved during prefill"
    layers, width = int(operations(MODEL, "decode", 1)["count"].max()), 2  # bytes of a BF16 number
    norms = operations(MODEL, "decode", 1)["flops"].sel(operation=["attn_norm", "mlp_norm"]).sum() / 4
    yield Quote("weights: one layer", "parameters", "487,587,840", moved / width / layers, where)
    yield Quote("weights: 64 layers", "parameters", "31,205,621,760", moved / width, where)
    yield Quote("weights: 64 layers", "B", "62,411,243,520", moved, where)
    yield Quote("norm vectors: two per layer", "B", "1,310,720", norms * layers * width, where)
    yield Quote("KV cache: one token", "B", "262,144", kv[0], where)
    yield Quote("KV cache: 2,048 tokens", "B", "536,870,912", kv[1], "serving one request")
    yield Quote("KV cache: 2,048 tokens", "GB", "0.54", kv[1] / 1e9, "serving one request")
    yield Quote("LM head: one token", "FLOP", "1,555,824,640", head["flops"] - ds["flops"][0], "decode FLOPs")
    yield Quote("LM head: weights", "B", "1,555,824,640", head["bytes_weights"] - moved, "bytes moved during decode")


def _budget() -> Iterator[Quote]:
    whole = Options(memory_fraction=1.0)
    count_model = ideal("32b", QWEN3_H100, options=whole)
    real = ideal(MODEL, QWEN3_H100, options=whole)
    weights, free = count_model["weight_bytes"] / 1e9, (count_model["memory_bytes"] - count_model["weight_bytes"]) / 1e9
    where, note = "how much memory is needed", "32B is short for 32.8e9 parameters"
    yield Quote("memory: weights of 32e9 parameters", "GB", "64", weights, where)
    yield Quote("memory: weights of Qwen3-32B", "GB", "64", real["weight_bytes"] / 1e9, where, note)
    yield Quote("memory: headroom on 80 GB, 32e9 parameters", "GB", "16", free, where)


def data() -> xr.Dataset:
    """Return every total, printed and computed."""
    ds = derive(ideal(MODEL, QWEN3_H100, options=LAYERS_SMALL, seq_len=T), "ridge")
    return quoted(
        (*_forward_passes(), *_collected(), *_bytes(), *_budget()),
        title="[Qwen3-FLOPs]: totals of Qwen3-32B on one H100",
        shows="FLOPs, bytes and intensities of one prefill of T tokens and of one decode step at L tokens, as "
        "[Qwen3-FLOPs] prints them and as the engine computes them.",
        assumptions=f"{assumed_on(ds)} Core numbers leave out elementwise and normalization operations (`small_ops`).",
    )
