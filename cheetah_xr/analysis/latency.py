"""Latency of requests from the times of forward passes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr

from ..errors import SpecError

Num = Any


def mean_ttft(prefill_time: Num, batch: Num, schedule: Literal["together", "in_turn"]) -> Num:
    """Return the mean time to first token of equal prompts that arrive at once on compute-bound prefill.

    Parameters
    ----------
    prefill_time
        Seconds of one prompt's prefill.
    batch
        Prompts.
    schedule
        "together": one batched forward pass, B*t for everybody. "in_turn": one after another, (B + 1)/2*t on average
        ([CHEETAH], "Be cautious with average TTFT numbers").

    Returns
    -------
    Num
        Seconds, of the shape `prefill_time` and `batch` broadcast to.

    Raises
    ------
    SpecError
        For an unknown schedule or a batch below 1.

    Examples
    --------
    >>> mean_ttft(0.1, 4, "together"), mean_ttft(0.1, 4, "in_turn")
    (0.4, 0.25)
    """
    if np.any(np.less(batch, 1)):
        raise SpecError(f"batch: expected at least 1, got {batch}")
    if schedule == "together":
        return batch * prefill_time
    if schedule == "in_turn":
        return (batch + 1) / 2 * prefill_time
    raise SpecError(f"schedule {schedule!r}: allowed are together and in_turn")


def request_latency(ttft: Num, tpot: Num, output_tokens: int) -> Num:
    """Return the end-to-end latency of a request: ttft + tpot * (output_tokens - 1).

    Parameters
    ----------
    ttft
        Seconds to the first token.
    tpot
        Seconds per output token: a number, or one for every token after the first as the context grows (last axis of
        length ``output_tokens - 1``), which is averaged.
    output_tokens
        Output tokens, the first included.

    Returns
    -------
    Num
        Seconds.

    Raises
    ------
    SpecError
        When `output_tokens` is below 1.

    Examples
    --------
    >>> request_latency(0.5, 0.02, 101)
    2.5
    """
    if output_tokens < 1:
        raise SpecError(f"output_tokens: expected at least 1, got {output_tokens}")
    mean = tpot if np.ndim(tpot) == 0 else np.mean(tpot, axis=-1)
    return ttft + mean * (output_tokens - 1)


def ttft_distribution(prefill_time: float, batch: int, schedule: Literal["together", "in_turn"]) -> xr.DataArray:
    """Return the time to first token of each of B equal prompts that arrive at once.

    Parameters
    ----------
    prefill_time
        Seconds of one prompt's prefill.
    batch
        Prompts.
    schedule
        "together" or "in_turn", as for :func:`mean_ttft`.

    Returns
    -------
    xarray.DataArray
        Seconds on dim ``request`` (1 to B, in order of service); its mean is :func:`mean_ttft`.

    Raises
    ------
    SpecError
        For an unknown schedule, or a batch that is not a whole number of at least 1.

    Examples
    --------
    >>> ttft_distribution(0.5, 4, "in_turn").values.tolist()
    [0.5, 1.0, 1.5, 2.0]
    """
    if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
        raise SpecError(f"batch: expected a whole number of at least 1, got {batch!r}")
    request = np.arange(1, batch + 1)
    served = {"together": np.full(batch, batch), "in_turn": request}
    if schedule not in served:
        raise SpecError(f"schedule {schedule!r}: allowed are together and in_turn")
    described = {"units": "s", "long_name": "time to first token"}
    return xr.DataArray(served[schedule] * float(prefill_time), {"request": request}, "request", "ttft", described)
