"""Cost rows of a case: all that takes time, with peak rates and the efficiency fields that say how much.

:func:`cost_rows` is what both the engine (:mod:`cheetah_xr.engine.case_values`) and a calibration
(:mod:`cheetah_xr.calibration.row_table`) turn into seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..costmodel.formulas import Num
from ..costmodel.roofline import LayerRows, layer_rows
from ..costmodel.totals import priced
from .case import Case
from .lazy import apply

MAX_CUDA_GRAPH_TOKENS = 512
"""Most tokens of one attention rank whose forward passes replay CUDA graphs (vLLM, ``max_cudagraph_capture_size``)."""


@dataclass(frozen=True)
class OverheadRow:
    """Time that is paid `count` times, `field` of the efficiency record each.

    In a mixed batch `paid_by` requests pay it in place of the `count` prompts. `eager_only` is paid only where
    :func:`runs_eagerly`.
    """

    field: str
    count: Num
    paid_by: Num | None = None
    eager_only: bool = False


@dataclass(frozen=True)
class CostRows:
    """Rows of one forward pass: of layers, embedding and LM head, then CPU overheads."""

    layers: tuple[LayerRows, ...]
    overheads: tuple[OverheadRow, ...]


def cost_rows(case: Case) -> CostRows:
    """List all that takes time in a forward pass."""
    options, work = case.options, case.work
    layers = tuple(layer_rows(layer, case.rates, options.hierarchy, times) for layer, times in priced(work, options))
    counted = "layers" in options.include
    requests, requests_per_rank = case.scheduled or (None, None)
    overheads = (
        OverheadRow("tau_layer", work.n_layers if counted else 0),
        OverheadRow("tau_global", work.n_forward_passes),
        OverheadRow("tau_layer_prefill", work.n_eager_prefill_layers if counted else 0, eager_only=True),
        OverheadRow("tau_batch", case.batch, requests),
        OverheadRow("tau_sequence", case.sequence_counts["rank_batch"], requests_per_rank),
    )
    return CostRows(layers, overheads)


def runs_eagerly(case: Case, token_ratio: Num = 1.0) -> Num:
    """Return whether the CPU launches every kernel: more tokens than :data:`MAX_CUDA_GRAPH_TOKENS` on a rank.

    Parameters
    ----------
    case
        The forward pass.
    token_ratio
        Tokens on a rank over those of `case`.
    """
    tokens = apply(np.divide, case.p.instance_tokens, case.p.dp)
    if not (isinstance(token_ratio, float) and token_ratio == 1):
        tokens = apply(np.multiply, tokens, token_ratio)
    return apply(np.greater, tokens, MAX_CUDA_GRAPH_TOKENS)
