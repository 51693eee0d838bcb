"""Compute the time of a single request: its prefill as a fraction of the end-to-end latency."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ...analysis import request_latency
from ...api import evaluate


def prefill_fraction(
    where: dict[str, Any], inputs: list[int], outputs: list[int], batch: int = 1
) -> tuple[xr.DataArray, xr.Dataset]:
    """Return TTFT over request latency on dims ``input_tokens`` and ``output_tokens``, and the prefill result."""
    prefill = evaluate(**where, batch=batch, seq_len=inputs, phase="prefill", outputs=["step_time"])
    fractions = []
    for output in outputs:
        contexts = np.add.outer(inputs, np.arange(1, output))
        lengths, at = np.unique(contexts, return_inverse=True)
        decode = evaluate(**where, batch=batch, seq_len=lengths.tolist(), outputs=["step_time"])["step_time"]
        tpot = decode.transpose(..., "seq_len").values[..., at.reshape(contexts.shape)]
        ttft = prefill["step_time"].transpose(..., "seq_len")
        fractions.append(ttft / request_latency(ttft, tpot, output))
    fraction = xr.concat(fractions, "output_tokens").assign_coords(output_tokens=outputs)
    fraction = fraction.rename(seq_len="input_tokens").reset_coords(drop=True)
    return fraction.assign_attrs(units="1", long_name="prefill as a fraction of the time of a request"), prefill
