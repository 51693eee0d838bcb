"""Tabulate [Qwen3-FLOPs], appendix A: the 16 steps of a layer in prefill and decode, printed and counted."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...api import operations
from ...specs import load_model
from ..shared.common import model_name
from ..shared.quotations import Quote, quoted

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
"""Operation, its name in [Qwen3-FLOPs], and the printed factor: of T in prefill and 1 in decode, or of T(T+1) and L."""


def _rows() -> Iterator[Quote]:
    for phase in ("prefill", "decode"):
        flops = operations(MODEL, phase, LENGTH)["flops"]
        for number, (name, label, printed) in enumerate(STEPS, 1):
            per, unit = {
                ("prefill", False): (LENGTH, "FLOP per T"),
                ("prefill", True): (LENGTH * (LENGTH + 1), "FLOP per T(T+1)"),
                ("decode", False): (1, "FLOP"),
                ("decode", True): (LENGTH, "FLOP per L"),
            }[phase, isinstance(printed, tuple)]
            shown = printed[phase == "decode"] if isinstance(printed, tuple) else printed
            computed = float(flops.sel(operation=name)) / per
            yield Quote(f"{phase} {number:>2}. {label}", unit, shown, computed, f"{phase} FLOPs, step {number}")


def data() -> xr.Dataset:
    """Return every step, printed and counted."""
    layers = load_model(MODEL).n_layers
    return quoted(
        _rows(),
        title=f"[Qwen3-FLOPs]: the 16 steps of a layer of {model_name(MODEL)}",
        shows=f"FLOPs of one of {layers} layers, step by step, as appendix A of [Qwen3-FLOPs] prints them and as "
        "`cheetah_xr.operations` counts them. T is the tokens of a prompt, L those of a context.",
        assumptions=f"One sequence; counted at T = L = {LENGTH:,} and divided by the variable of the text; elementwise "
        "and normalization operations counted as FLOPs.",
    )
