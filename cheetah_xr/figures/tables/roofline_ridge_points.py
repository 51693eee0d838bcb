"""Tabulate [Roofline]: arithmetic intensity of a decode step and the ridge of its three accelerators."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import A100, H100, INT4, RTX_4090, RTX_4090_ROUNDED, ideal

FP8_H100 = H100 | {"peak_fp8_tflops": 1979}


def _rows() -> Iterator[Quote]:
    one = ideal("8b", H100)
    where = "FLOPs and bytes of one decode step"
    yield Quote("8B in BF16: work of a step", "GFLOP", "16", one["flops"] / 1e9, where)
    yield Quote("8B in BF16: weights of a step", "GB", "16", one["bytes_weights"] / 1e9, where)
    for name, precision, printed in (("BF16", "bf16", "1"), ("FP8", "fp8", "2"), ("INT4", INT4, "4")):
        intensity = ideal("8b", FP8_H100, precision, outputs=["arithmetic_intensity"])["arithmetic_intensity"]
        formula = "by its formula, 2/bytes" if name == "FP8" else ""
        yield Quote(f"intensity at batch 1, {name}", "FLOP/B", printed, intensity, where, formula)
    for name, gpu, printed, note in (
        ("A100 80GB", A100, "156", ""),
        ("H100 SXM", H100, "295", ""),
        ("RTX 4090 at the printed 1.0 TB/s", RTX_4090_ROUNDED, "164", "slip: 164 is the ridge at 1.008 TB/s"),
        ("RTX 4090 at 1.008 TB/s", RTX_4090, "164", ""),
    ):
        yield Quote(
            f"ridge, {name}", "FLOP/B", printed, ideal("8b", gpu, outputs=["ridge"])["ridge"], "table of GPUs", note
        )


def data() -> xr.Dataset:
    """Return intensities and ridge points, printed and computed."""
    return quoted(
        _rows(),
        title="[Roofline]: arithmetic intensity of a decode step and the ridge of three accelerators",
        shows="FLOPs per byte of one decode step at batch 1 and the intensity at which compute and memory take the "
        "same time, as [Roofline] prints them and as the engine computes them.",
        assumptions="A model given as 8e9 parameters, without KV cache or activations; bandwidths and peaks as "
        "printed.",
    )
