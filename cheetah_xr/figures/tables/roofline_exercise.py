"""Tabulate [Roofline]: the exercise on 70B, INT4 on one accelerator against BF16 on two."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import H100, INT4, ideal

MODEL = "70b"
PAIR = H100 | {"link_gb_s": 450, "link_domain": 8}
OUTPUTS = ["step_time", "tps_per_user", "bytes_weights", "ridge", "arithmetic_intensity"]


def _rows() -> Iterator[Quote]:
    one = ideal(MODEL, H100, INT4, outputs=OUTPUTS)
    two = ideal(MODEL, PAIR, tp=2, outputs=OUTPUTS)
    total = 2 * two["bytes_weights"] / 1e9
    yield Quote("INT4 on one: weights", "GB", "35", one["bytes_weights"] / 1e9, "exercise")
    yield Quote("INT4 on one: step", "ms", "10.4", one["step_time"] * 1e3, "answer 1")
    yield Quote("INT4 on one: one stream", "tokens/s", "96", one["tps_per_user"], "answer 1")
    yield Quote("BF16 on two: weights of both", "GB", "140", total, "exercise")
    yield Quote("BF16 on two: step", "ms", "20.9", two["step_time"] * 1e3, "answer 2")
    yield Quote("BF16 on two: one stream", "tokens/s", "48", two["tps_per_user"], "answer 2")
    crossover = one["ridge"] / one["arithmetic_intensity"]
    slip = "slip: 10.4 ms is rounded before it is divided"
    yield Quote("INT4 on one: batch at the crossover", "sequences", "73", crossover, "answer 3", slip)


def data() -> xr.Dataset:
    """Return the answers of the exercise, printed and computed."""
    return quoted(
        _rows(),
        title="[Roofline]: 70B, INT4 on one accelerator is faster for one stream than BF16 on two",
        shows="The three answers of the exercise, as [Roofline] prints them and as the engine computes them.",
        assumptions="A model given as 70e9 parameters; 3.35 TB/s and 989 TFLOP/s in BF16; INT4 is half a byte per "
        "weight without scales; two accelerators in tensor parallelism without communication, which needs a hidden "
        "size that a parameter count lacks.",
    )
