"""Tabulate [Roofline]: batch-1 decode limits, the prefill of 2,000 tokens, and the efficiency of serving engines."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...api import evaluate
from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import A100, H100, RTX_4090, RTX_4090_ROUNDED, ideal

MODEL, PROMPT = "8b", 2000
REAL = ("llama-3.1-8b", "h100-sxm")
"""Model and accelerator at which the default efficiencies are evaluated."""


def _rows() -> Iterator[Quote]:
    where = "worked example"
    for name, gpu, ms, rate, notes in (
        ("H100", H100, "4.78", "209", ("", "")),
        ("A100", A100, "8.0", "125", ("", "")),
        ("RTX 4090 at 1.008 TB/s", RTX_4090, "15.9", "63", ("", "")),
        (
            "RTX 4090 at the table's 1.0 TB/s",
            RTX_4090_ROUNDED,
            "15.9",
            "63",
            ("slip: this is the rate of 1.008 TB/s", "slip: the same"),
        ),
    ):
        step = ideal(MODEL, gpu, outputs=["step_time", "tps_per_user"])
        yield Quote(f"decode step, {name}", "ms", ms, step["step_time"] * 1e3, where, notes[0])
        yield Quote(f"one stream, {name}", "tokens/s", rate, step["tps_per_user"], where, notes[1])
    one = ideal(MODEL, H100, outputs=["peak_compute_time"])
    yield Quote("compute time of a step, H100", "ms", "0.016", one["peak_compute_time"] * 1e3, where)
    yield from _prefill()
    yield from _real_engines()


def _prefill() -> Iterator[Quote]:
    where = "prefill: the compute-bound phase"
    ttft = ideal(MODEL, H100, phase="prefill", seq_len=PROMPT, outputs=["ttft"])["ttft"]
    step = ideal(MODEL, H100, outputs=["step_time"])["step_time"]
    yield Quote("prefill of 2,000 tokens, H100", "ms", "32", ttft * 1e3, where)
    yield Quote("the same in decode steps", "steps", "6", ttft / step, where, "cut, not rounded: 6.8")


def _real_engines() -> Iterator[Quote]:
    """Yield the efficiency ranges of serving engines in [Roofline], with those of the default efficiencies."""
    decode, prefill = [
        evaluate(*REAL, batch=1, seq_len=PROMPT, phase=phase, efficiency=["ideal", "kernels"], dtype="float64")[
            "step_time"
        ]
        for phase in ("decode", "prefill")
    ]
    fraction, factor = 100 * decode[0] / decode[1], prefill[1] / prefill[0]
    note = "a range of practice; computed: the default efficiencies"
    yield Quote("fraction of the decode limit, from", "%", "50", fraction, "worked example", note)
    yield Quote("fraction of the decode limit, to", "%", "85", fraction, "worked example", note)
    yield Quote("real prefill over the ideal, from", "1", "1.5", factor, "prefill: the compute-bound phase", note)
    yield Quote("real prefill over the ideal, to", "1", "3", factor, "prefill: the compute-bound phase", note)


def data() -> xr.Dataset:
    """Return the decode limits and the prefill, printed and computed."""
    return quoted(
        _rows(),
        title="[Roofline]: 8B in BF16, batch-1 decode limits and a prefill of 2,000 tokens",
        shows="The lower bound of a decode step is the time of reading the weights once, that of a prefill the time of "
        "its FLOPs. The last four rows compare the ranges [Roofline] gives for serving engines with the default "
        "efficiencies.",
        assumptions="A model given as 8e9 parameters; bandwidths and BF16 peaks as printed; ideal efficiencies, no KV "
        "cache, no activations. Ranges: Llama-3.1-8B on one H100 SXM, one sequence of 2,000 tokens.",
    )
