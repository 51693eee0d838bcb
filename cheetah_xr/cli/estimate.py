"""The command ``cheetah-xr estimate``: one forward pass, broken down by cause, kernel and item in memory."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SpecError
from .arguments import (
    DpDegree,
    EfficiencyName,
    EpDegree,
    GpuName,
    ModelName,
    OptionPairs,
    PrecisionName,
    TpDegree,
    parse_options,
)
from .console import out
from .quick_start import quick_start

if TYPE_CHECKING:
    import xarray as xr

    from ..engine.inputs.arguments import Axes


class Phase(StrEnum):
    """Phases of inference."""

    prefill = "prefill"
    decode = "decode"


def estimate(
    model: ModelName,
    gpu: GpuName,
    batch: Annotated[int, typer.Option(help="Concurrent sequences in the instance.")] = 1,
    seq_len: Annotated[int, typer.Option(help="Prompt tokens (prefill) or context tokens (decode).")] = 2048,
    phase: Annotated[Phase, typer.Option(help="Phase.")] = Phase.decode,
    precision: PrecisionName = None,
    efficiency: EfficiencyName = "default",
    tp: TpDegree = 1,
    dp: DpDegree = 1,
    ep: EpDegree = 1,
    option: OptionPairs = None,
    explain_memory: Annotated[
        bool,
        typer.Option("--explain-memory", help="First list the memory of one GPU by item, and the KV-cache capacity."),
    ] = False,
) -> None:
    """Estimate one point: a readable breakdown; an invalid point is an error.

    Example: `cheetah-xr estimate --model llama-3.1-70b --gpu h100-sxm --tp 8 --batch 64 --seq-len 8192`

    Example: `cheetah-xr estimate --model gemma-3-27b --gpu h100-sxm --seq-len 32768 --explain-memory`
    """
    with quick_start():
        from ..engine.inputs.arguments import Axes
        from ..specs import load_model
        from .estimate_tables import memory_tables, point_tables

        loaded = load_model(model)
        scheme = precision or loaded.default_precision
        options = parse_options(option or [])
        axes = Axes(loaded, gpu, scheme, efficiency, phase.value, batch, seq_len, tp, dp, ep, options)
        if explain_memory:
            out.print(memory_tables(axes), highlight=False)
        out.print(point_tables(*evaluate_point(axes)), highlight=False)


def evaluate_point(axes: Axes) -> tuple[xr.Dataset, xr.Dataset]:
    """Return the result of one point, with the metrics of its phase, and its breakdown by kernel.

    Raises
    ------
    SpecError
        When the point cannot run: the reason, the bytes missing, and what would be valid.
    """
    from ..analysis.derive import DERIVED, derive
    from ..engine.alternatives import explain_rejection
    from ..engine.breakdowns.kernels import breakdown_of
    from ..engine.evaluator import evaluate_axes

    ds = evaluate_axes(axes, None, "float64", 1e9)
    reason = explain_rejection(axes, ds)
    if reason is not None:
        raise SpecError(reason)
    metrics = [name for name, metric in DERIVED.items() if metric.phase in (None, str(ds["phase"].values))]
    kernels = breakdown_of(axes, 4e9)
    return derive(ds, metrics), kernels
