"""Seed 2, appendix A: the 16 steps of a layer, prefill and decode, beside the operation ledger."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...api import operations
from ...specs import load_model
from ..shared.common import model_name
from ..shared.seeds import Quote, quoted

MODEL, LENGTH = "qwen3-32b", 1000

STEPS: tuple[tuple[str, str, str | tuple[str, str]], ...] = (
    ("attn_norm", "first RMSNorm", "20,480"),
    ("q_proj", "query projection", "83,886,080"),
    ("k_proj", "key projection", "10,485,760"),
    ("v_proj", "value projection", "10,485,760"),
    ("rope", "RoPE on queries and keys", "27,648"),
    ("scores", "attention scores", ("8,192", "16,384")),
    ("softmax", "softmax", ("160", "320")),
    ("attn_values", "attention output", ("8,192", "16,384")),
    ("o_proj", "output projection", "83,886,080"),
    ("attn_residual", "first residual add", "5,120"),
    ("mlp_norm", "second RMSNorm", "20,480"),
    ("gate_proj", "MLP gate projection", "262,144,000"),
    ("up_proj", "MLP up projection", "262,144,000"),
    ("gating", "gating", "153,600"),
    ("down_proj", "MLP down projection", "262,144,000"),
    ("mlp_residual", "second residual add", "5,120"),
)
"""Operation, the seed's name, and the factor it prints: of T in prefill and alone in decode, or of T(T+1) and of L."""


def _rows() -> Iterator[Quote]:
    for phase in ("prefill", "decode"):
        ledger = operations(MODEL, phase, LENGTH)["flops"]
        for number, (name, words, printed) in enumerate(STEPS, 1):
            per, unit = {
                ("prefill", False): (LENGTH, "FLOP per T"),
                ("prefill", True): (LENGTH * (LENGTH + 1), "FLOP per T(T+1)"),
                ("decode", False): (1, "FLOP"),
                ("decode", True): (LENGTH, "FLOP per L"),
            }[phase, isinstance(printed, tuple)]
            shown = printed[phase == "decode"] if isinstance(printed, tuple) else printed
            computed = float(ledger.sel(operation=name)) / per
            yield Quote(f"{phase} {number:>2}. {words}", unit, shown, computed, f"{phase} FLOPs, step {number}")


def data() -> xr.Dataset:
    """Every step as the seed prints it and as the ledger counts it."""
    layers = load_model(MODEL).n_layers
    return quoted(
        _rows(),
        title=f"{model_name(MODEL)}: the 16 steps of a layer",
        shows=f"FLOPs of one of {layers} layers, step by step, as appendix A of seed 2 prints them and as the ledger "
        "counts them. T is the tokens of a prompt, L those of a context.",
        assumptions=f"One sequence; the ledger at T = L = {LENGTH:,}, divided by the seed's variable; small operations "
        "counted as FLOPs.",
    )
