"""The public functions: labelled arguments in, xarray Datasets out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import xarray as xr

from .analysis.derive import DERIVED, derive
from .engine.breakdowns.kernels import breakdown_of
from .engine.breakdowns.operations import ANY_GPU, operations_of
from .engine.evaluator import evaluate_axes
from .engine.inputs.arguments import (
    Dtype,
    GpuLike,
    InstanceArguments,
    IntsLike,
    Layout,
    ModelLike,
    OptionsLike,
    PhaseLike,
    PrecisionLike,
    Source,
    spelled_out,
)
from .engine.inputs.gather import axes_of, options_of
from .engine.layouts import valid_layouts
from .engine.variables import VARIABLES
from .specs import AnyModel, Options, SpecError, load_model


@spelled_out(InstanceArguments, after="phase")
def evaluate(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    batch: IntsLike,
    seq_len: IntsLike,
    phase: PhaseLike = "decode",
    outputs: Sequence[str] | str | None = None,
    dtype: Dtype = "float32",
    max_bytes: float = 4e9,
    **arguments: Unpack[InstanceArguments],
) -> xr.Dataset:
    """Evaluate the cost model on a grid, in memory.

    A scalar argument becomes a scalar coordinate, a list an axis, a DataArray keeps its own dims (so tp, dp and ep can
    lie on one dim ``layout``).

    Parameters
    ----------
    model, gpu, precision, efficiency
        Catalogue name, path, mapping or record; or a list of them. As efficiency also a posterior of
        :func:`cheetah_xr.load_posterior`, whose samples become the axis ``draw``.
    batch
        Concurrent sequences in the whole instance.
    seq_len
        Prompt tokens (prefill) or cached context tokens (decode).
    phase
        "prefill", "decode", or both.
    tp, dp, ep
        Tensor-parallel degree, data-parallel degree of attention, expert-parallel degree; the instance has tp*dp GPUs.
    options
        Accounting options.
    overrides
        Numbers that replace those of the records, by "record.field" in SI: ``{"gpu.hbm_bandwidth": [1e12, 2e12]}``.
        A list makes a dim named after the field.
    scales
        Factors on each record's own number, by "record.field"; a list makes a dim ``<field>_scale``.
    outputs
        Variables to return, stored or derived; None is every stored one.
    dtype
        Dtype of times, "float32" or "float64". Work and capacity are float64.
    max_bytes
        Largest result.

    Returns
    -------
    xarray.Dataset
        Each variable on the dims it depends on, with units and long_name. Points that cannot run are NaN with a reason
        in ``status``.

    Raises
    ------
    SpecError
        Naming the argument or file, its value and what is allowed; when the result is above `max_bytes`.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-70b", "h100-sxm", tp=4, batch=[1, 32], seq_len=2048, efficiency="ideal")
    >>> [round(float(t) * 1e3, 3) for t in ds.step_time]
    [10.436, 12.367]
    """
    axes = axes_of(model, gpu, precision, batch=batch, seq_len=seq_len, phase=phase, **arguments)
    if outputs is None:
        return evaluate_axes(axes, None, dtype, max_bytes)
    requested = _names(outputs)
    stored = stored_for(requested, clipped=axes.options.clips)
    derived = [name for name in requested if name in DERIVED]
    ds = evaluate_axes(axes, stored, dtype, max_bytes)
    return derive(ds, derived)[requested] if derived else ds


def _names(outputs: Any) -> list[str]:
    names = [outputs] if isinstance(outputs, str) else outputs
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"outputs: expected names of variables, got {outputs!r}")
    return list(names)


def stored_for(outputs: Sequence[str], *, clipped: bool = False) -> list[str]:
    """Return the stored variables behind outputs; unknown names are kept, for the engine to reject."""
    names: list[str] = []
    for name in outputs:
        names += [n for n in DERIVED[name].needs if n in VARIABLES] if name in DERIVED else [name]
        if clipped and name in DERIVED:
            names.append("max_batch")
    return list(dict.fromkeys(names))


@spelled_out(InstanceArguments, after="phase")
def breakdown(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    batch: IntsLike,
    seq_len: IntsLike,
    phase: PhaseLike = "decode",
    max_bytes: float = 4e9,
    **arguments: Unpack[InstanceArguments],
) -> xr.Dataset:
    """Break a forward pass down by kernel.

    Parameters
    ----------
    model, gpu, precision, batch, seq_len, phase, tp, dp, ep, efficiency, options, overrides, scales, max_bytes
        As in :func:`evaluate`.

    Returns
    -------
    xarray.Dataset
        Dim ``kernel`` (attn_proj, attn_core, dense_mlp, router, shared_experts, routed_experts, embedding, lm_head,
        collectives; small_ops when they are priced): ``time`` (s, a kernel on its own, not reduced by overlap),
        ``flops`` (FLOP) and ``bytes`` (B) by ``cause`` (weights, kv, activations, link, nic) of one GPU, all layers;
        and ``step_time``, ``time_overhead`` of the whole forward pass and ``time_overlapped``, what overlap saves.

    Raises
    ------
    SpecError
        As :func:`evaluate`.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.breakdown("llama-3.1-8b", "h100-sxm", batch=1, seq_len=2048, efficiency="ideal")
    >>> round(float(ds.time.sel(kernel="dense_mlp")) * 1e3, 3)
    3.366
    """
    axes = axes_of(model, gpu, precision, batch=batch, seq_len=seq_len, phase=phase, **arguments)
    return breakdown_of(axes, max_bytes)


@spelled_out(Layout, after="batch")
def operations(
    model: ModelLike,
    phase: PhaseLike = "prefill",
    seq_len: IntsLike = 1,
    *,
    precision: PrecisionLike = "bf16",
    batch: IntsLike = 1,
    options: OptionsLike = None,
    **layout: Unpack[Layout],
) -> xr.Dataset:
    """List the operations of one layer of each group and of what stands outside the layers.

    Parameters
    ----------
    model
        As in :func:`evaluate`.
    phase
        "prefill" or "decode".
    seq_len
        Prompt tokens (prefill) or cached context tokens (decode).
    precision, batch, tp, dp, ep
        As in :func:`evaluate`.
    options
        Accounting options; by default elementwise and normalization operations are counted as FLOPs.

    Returns
    -------
    xarray.Dataset
        Dim ``operation`` with coordinates ``kernel``, ``group`` and ``count`` (layers of that group, times
        micro-batches): ``flops``, ``bytes_weights``, ``bytes_kv``, ``bytes_activations`` and kernel ``launches`` of one
        layer and micro-batch on one GPU ([Qwen3-FLOPs], appendix A).

    Raises
    ------
    SpecError
        As :func:`evaluate`.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> table = cx.operations("qwen3-32b", "decode", 1000)
    >>> int(table.flops.sel(operation="q_proj"))
    83886080
    """
    chosen = options_of(options, Options(small_ops="flops"))
    axes = axes_of(
        model,
        ANY_GPU,
        precision,
        batch=batch,
        seq_len=seq_len,
        phase=phase,
        efficiency="ideal",
        options=chosen,
        **layout,
    )
    return operations_of(axes)


def layouts(n_gpus: int, model: Source | AnyModel, options: OptionsLike = None) -> xr.Dataset:
    """List every valid layout of a number of GPUs.

    Parameters
    ----------
    n_gpus
        GPUs of the instance, tp*dp.
    model
        As in :func:`evaluate`.
    options
        Options that change what is valid (redundant experts, expert_comm, per-module tensor-parallel degrees).

    Returns
    -------
    xarray.Dataset
        ``tp``, ``dp`` and ``ep`` as variables over the dim ``layout``: pass them to :func:`evaluate` as they are.

    Raises
    ------
    SpecError
        For a number of GPUs that is not a positive integer.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> valid = cx.layouts(4, "llama-3.1-8b")
    >>> valid.tp.values.tolist(), valid.dp.values.tolist()
    ([1, 2, 4], [4, 2, 1])
    """
    return valid_layouts(n_gpus, load_model(model), options_of(options))
