"""Mixed batches (chunked prefill): prefill and decode in one forward pass, priced kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..costmodel.formulas.serving import mixed_batch_token_ratio
from ..costmodel.operations import (
    SEQUENCE_COUNTS,
    Collective,
    ForwardPassWork,
    LayerWork,
    Num,
    Operation,
    SequenceCount,
)
from ..costmodel.roofline import is_zero
from ..costmodel.speculative import forward_pass_work
from .case import Case
from .dims import BATCH, SEQ_LEN
from .evaluator import Selection, as_dataset, case_of, check_size, prepare
from .grid import Grid
from .inputs.arguments import Axes
from .inputs.axes import Labelled

Factors = Mapping[SequenceCount, Num]
"""Factor on what is per sequence of each count."""

CORE = ("attn_core", "indexer")
"""Kernels that work on each request's own cache: prefill and decode do not share them."""


def evaluate_mixed(axes: Axes, running: xr.DataArray, context: xr.DataArray, max_bytes: float) -> xr.Dataset:
    """Return times of mixed batches: the prompts of a prefill, and a decode step of `running` requests.

    Parameters
    ----------
    axes
        The prefill: prompts as batch, tokens of each in this forward pass as seq_len.
    running, context
        Requests that decode, and tokens of each in the cache, on dims of the prefill.
    max_bytes
        Largest result.

    Returns
    -------
    xarray.Dataset
        ``step_time`` (s) and ``status``.
    """
    engine = prepare(axes, ["step_time", "status"], "float64")
    check_size(engine.nbytes(), max_bytes, f"the result of {engine.grid.n_points:,} points")
    inputs = {
        **engine.grid.inputs,
        BATCH: _aligned(engine.grid, running),
        SEQ_LEN: _aligned(engine.grid, context),
    }
    decode = replace(engine.grid, inputs=inputs, phases=Labelled((), ("decode",)))

    def case(grid: Grid, model: int, phase: int, part: Selection) -> Case:
        return mixed_case(case_of(grid, model, phase, part), case_of(decode, model, 0, part))

    engine = replace(engine, case=case)
    return as_dataset(engine, engine.compute())


def _aligned(grid: Grid, values: xr.DataArray) -> NDArray[np.float64]:
    """Return values laid out as the grid's arrays are."""
    order = [dim for dim in grid.order if dim in values.dims]
    shape = [grid.sizes[dim] if dim in values.dims else 1 for dim in grid.order]
    return np.asarray(values.transpose(*order).values, dtype=np.float64).reshape(shape)


def mixed_case(prefill: Case, decode: Case) -> Case:
    """Return the case of a mixed batch: a prefill that also does a decode step.

    Linear kernels and collectives work on the tokens of both, the LM head on one token of each prompt and on every new
    token that is decoded; each kind keeps its attention core. CPU overhead per request is paid by those
    that decode. Drafts of the decode step are forward passes of their own.
    """
    m = prefill.options.micro_batches
    tokens = decode.batch * decode.p.new
    p = replace(prefill.p, instance_tokens=(prefill.batch * prefill.p.new + tokens) / m)
    work = forward_pass_work(prefill.model, prefill.precision, prefill.options, p)
    of_both = mixed_batch_token_ratio(tokens, prefill.batch, prefill.p.new)
    logits = 1 + decode.sequence_counts["rank_batch"] * decode.p.new / prefill.sequence_counts["rank_batch"]
    every: Factors = {per: of_both for per in SEQUENCE_COUNTS}  # noqa: C420
    head: Factors = {per: logits for per in SEQUENCE_COUNTS}  # noqa: C420
    ratio = {per: decode.sequence_counts[per] / prefill.sequence_counts[per] for per in prefill.sequence_counts}
    layers = [layer if layer.is_draft else _linear(layer, every) for layer in work.layers]
    outside = [
        layer if layer.is_draft else _linear(layer, head if layer.part == "lm_head" else every)
        for layer in work.outside
    ]
    mixed = ForwardPassWork(
        (*layers, *_own(decode.work.layers, ratio)),
        (*outside, *_own(decode.work.outside, ratio)),
        work.n_layers + decode.work.n_layers - prefill.model.n_layers,
        work.n_forward_passes + decode.work.n_forward_passes - 1,
        work.n_eager_prefill_layers,
    )
    return replace(scheduled_by(prefill, decode), work=mixed)


def scheduled_by(prefill: Case, decode: Case) -> Case:
    """Return a prefill whose CPU time per request is paid by the decoding requests."""
    return replace(prefill, scheduled=(decode.batch, decode.sequence_counts["rank_batch"]))


def _linear(layer: LayerWork, factors: Factors) -> LayerWork:
    """Return a layer with more tokens, all but its attention core."""
    operations = tuple(op if op.kernel in CORE else _more(op, factors) for op in layer.operations)
    return replace(
        layer,
        operations=operations,
        expert_all_to_all=_sent(layer.expert_all_to_all, factors),
        other_collectives=_sent(layer.other_collectives, factors),
    )


def _own(layers: Sequence[LayerWork], factors: Factors) -> Iterator[LayerWork]:
    """Yield what decode does by itself: drafts, attention cores, other reading of the cache (parameter counts)."""
    for layer in layers:
        draft = layer.is_draft
        kept = [op if draft else _core(op) if op.kernel in CORE else _cache_only(op) for op in layer.operations]
        operations = tuple(_more(op, factors, "kv") for op in kept if op is not None)
        expert_all_to_all, other_collectives = (
            (_sent(layer.expert_all_to_all, factors), _sent(layer.other_collectives, factors)) if draft else ((), ())
        )
        if operations or expert_all_to_all or other_collectives:
            yield replace(
                layer, operations=operations, expert_all_to_all=expert_all_to_all, other_collectives=other_collectives
            )


def _core(op: Operation) -> Operation:
    """Return an attention core that is launched together with that of the prompts."""
    return replace(op, launches=0)


def _cache_only(op: Operation) -> Operation | None:
    """Return the cache an operation reads besides what else it does; None if it reads none."""
    if is_zero(op.kv):
        return None
    return Operation(op.name, op.kernel, kv=op.kv, per=op.per, component=op.component)


def _more(op: Operation, factors: Factors, *others: str) -> Operation:
    """Return an operation with more tokens or sequences: its weights stay as they are."""
    names = [name for name in ("flops", "rows", "activations", *others) if not is_zero(getattr(op, name))]
    return replace(op, **{name: getattr(op, name) * factors[op.per] for name in names})


def _sent(collectives: Sequence[Collective], factors: Factors) -> tuple[Collective, ...]:
    return tuple(replace(c, link=c.link * factors[c.per], nic=c.nic * factors[c.per]) for c in collectives)
