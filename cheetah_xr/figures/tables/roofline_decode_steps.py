"""Seed 3: batch-1 decode ceilings, the prefill of 2,000 tokens, and what real engines reach."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...api import evaluate
from ..shared.seeds import A100, H100, RTX_4090, RTX_4090_ROUNDED, Quote, ideal, quoted

MODEL, PROMPT = "8b", 2000
REAL = ("llama-3.1-8b", "h100-sxm")
"""What the default efficiencies are asked about."""


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
    """The seed's two bands of practice beside the default efficiencies."""
    decode, prefill = [
        evaluate(*REAL, batch=1, seq_len=PROMPT, phase=phase, efficiency=["ideal", "kernels"], dtype="float64")[
            "step_time"
        ]
        for phase in ("decode", "prefill")
    ]
    share, factor = 100 * decode[0] / decode[1], prefill[1] / prefill[0]
    note = "a band of practice; computed: the default efficiencies"
    yield Quote("real share of the decode ceiling, from", "%", "50", share, "worked example", note)
    yield Quote("real share of the decode ceiling, to", "%", "85", share, "worked example", note)
    yield Quote("real prefill over the ideal, from", "1", "1.5", factor, "prefill: the compute-bound phase", note)
    yield Quote("real prefill over the ideal, to", "1", "3", factor, "prefill: the compute-bound phase", note)


def data() -> xr.Dataset:
    """Ceilings as the seed prints them and as the engine computes them."""
    return quoted(
        _rows(),
        title="8B in BF16: batch-1 decode ceilings and a prefill of 2,000 tokens",
        shows="The least time of a decode step is that of reading the weights once, the least time of a prefill that "
        "of its FLOPs. The last four rows put the seed's bands of practice beside the default efficiencies.",
        assumptions="A model given as 8e9 parameters; the seed's own bandwidths and BF16 peaks; ideal efficiencies, "
        "no cache, no activations. Bands: Llama-3.1-8B on one H100 SXM, one sequence of 2,000 tokens.",
    )
