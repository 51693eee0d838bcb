"""Tabulate [Roofline]: step time and output over batch, the crossover, and the output of its script."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ...analysis import flag_labels
from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import A100, H100, ideal

MODEL = "8b"
BATCHES = {
    1: ("4.78", "209"),
    8: ("4.78", "1,675"),
    64: ("4.78", "13,400"),
    256: ("4.78", "53,600"),
    512: ("8.28", "61,800"),
}
"""Batch -> milliseconds and tokens/s of the table of [Roofline] for the H100."""

SCRIPT = (
    ("A100-80GB", A100, {1: ("8.00", "125"), 64: ("8.00", "8,000"), 512: ("26.26", "19,500")}),
    ("H100-SXM", H100, {1: ("4.78", "209"), 64: ("4.78", "13,400"), 512: ("8.28", "61,812")}),
)
"""What the script of [Roofline] prints when it is run."""

OUTPUTS = ["step_time", "throughput", "bottleneck"]


def _rows() -> Iterator[Quote]:
    table = ideal(MODEL, H100, batch=list(BATCHES), outputs=OUTPUTS)
    bound = flag_labels(table["bottleneck"])
    for batch, (ms, rate) in BATCHES.items():
        at = table.sel(batch=batch)
        label = f"B={batch}, bound by {bound.sel(batch=batch).item()}"
        yield Quote(f"H100 step, {label}", "ms", ms, at["step_time"] * 1e3, "what batching does")
        yield Quote(f"H100 output, {label}", "tokens/s", rate, at["throughput"], "what batching does")
    gain = table["throughput"].sel(batch=256) / table["throughput"].sel(batch=1)
    yield Quote("H100: output at B=256 over B=1", "1", "256", gain, "what batching does")
    for name, gpu, printed in (("H100", H100, "295"), ("A100", A100, "156")):
        one = ideal(MODEL, gpu, outputs=["ridge", "arithmetic_intensity"])
        crossover = one["ridge"] / one["arithmetic_intensity"]
        yield Quote(f"{name}: batch at the crossover", "sequences", printed, crossover, "what batching does")
    for name, gpu, shown in SCRIPT:
        ran = ideal(MODEL, gpu, batch=list(shown), outputs=OUTPUTS)
        for batch, (ms, rate) in shown.items():
            at = ran.sel(batch=batch)
            yield Quote(f"script: {name} {batch}", "ms", ms, at["step_time"] * 1e3, "run the numbers yourself")
            yield Quote(f"script: {name} {batch}", "tokens/s", rate, at["throughput"], "run the numbers yourself")


def data() -> xr.Dataset:
    """Return the batching table, the crossovers and the output of the script, printed and computed."""
    return quoted(
        _rows(),
        title="[Roofline]: 8B in BF16, throughput grows with batch up to the ridge",
        shows="A decode step takes the larger of reading the weights once and computing for every sequence; the two "
        "are equal at a batch of ridge over intensity at batch 1.",
        assumptions="A model given as 8e9 parameters, without KV cache or activations; bandwidths and peaks as "
        "printed.",
    )
