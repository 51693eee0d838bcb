"""Break forward passes down by kernel, on the whole grid at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from ...costmodel.operations import Num
from ...costmodel.roofline import by_kernel, is_zero
from ...costmodel.totals import priced
from ...specs import KERNELS, Model
from ..case import Case
from ..case_values import forward_pass_seconds
from ..dims import CAUSE, KERNEL
from ..evaluator import Array, Engine, as_dataset, case_of, check_size, prepare
from ..grid import Grid
from ..inputs.arguments import Axes
from ..step_time import CAUSES
from ..validity import CODES, NONE, lowest
from ..variables import EVERYTHING

SOMETIMES = ("indexer", "small_ops")
"""Kernels that are named only where some forward pass has them."""
ALL_CAUSES = (*CAUSES, "link", "nic")
COLUMNS = ("time", "flops", *ALL_CAUSES)


def breakdown_of(axes: Axes, max_bytes: float) -> xr.Dataset:
    """Break the forward passes of a grid down; see :func:`cheetah_xr.breakdown`."""
    engine = prepare(axes, ["step_time", "time_overhead", "status"], "float64")
    kernels = _kernels(engine.grid)
    size = engine.grid.n_points * 8 * len(kernels) * len(COLUMNS)
    check_size(size, max_bytes, "the breakdown")
    values = engine.compute()
    dims = engine.grid.dims_of(EVERYTHING)
    shape = tuple(engine.grid.sizes[dim] for dim in dims)
    # One array for all columns: time, flops, then bytes by cause.
    columns = np.zeros((len(kernels), len(COLUMNS), *shape))
    for part, case in _cases(engine):
        with np.errstate(all="ignore"):
            code = lowest(list(case.conditions))
            parts = {**_times(case), **_work(case)}
        place: tuple[Any, ...] = (*(part[dim] for dim in dims), ...)
        for (kernel, column), value in parts.items():
            columns[(kernels.index(kernel), COLUMNS.index(column), *place)] = _placed(engine, dims, value)
        masked = _placed(engine, dims, (code != NONE) & (code != CODES["clipped"]))
        target = columns[(slice(None), slice(None), *place)]
        np.copyto(target, np.nan, where=masked)
    overlapped = columns[:, 0].sum(axis=0) + values["time_overhead"] - values["step_time"]
    return as_dataset(engine, values, _labelled(kernels, dims, columns, overlapped))


def _labelled(kernels: tuple[str, ...], dims: tuple[str, ...], columns: Array, overlapped: Array) -> dict[str, Any]:
    """Name the columns of a breakdown, with their dims, units and long names."""
    named = (KERNEL, *dims)
    moved = {"units": "B", "long_name": "bytes one GPU moves in one forward pass"}
    return {
        KERNEL: (KERNEL, list(kernels)),
        CAUSE: (CAUSE, list(ALL_CAUSES)),
        "time": (named, columns[:, 0], {"units": "s", "long_name": "time of a kernel on its own, all layers"}),
        "flops": (named, columns[:, 1], {"units": "FLOP", "long_name": "work of one GPU in one forward pass"}),
        "bytes": ((KERNEL, CAUSE, *dims), columns[:, 2:], moved),
        "time_overlapped": (dims, overlapped, {"units": "s", "long_name": "time saved by overlap"}),
    }


def _kernels(grid: Grid) -> tuple[str, ...]:
    """Return the kernels of a breakdown in order."""
    models = (*grid.models.values, grid.options.drafter)
    present = {"small_ops"} if grid.options.small_ops != "none" else set()
    if any(g.indexer == "own" for m in models if isinstance(m, Model) for g in (*m.groups, *m.mtp)):
        present.add("indexer")
    return (*(kernel for kernel in KERNELS if kernel not in SOMETIMES or kernel in present), "collectives")


def _cases(engine: Engine) -> Iterator[tuple[dict[str, slice], Case]]:
    """Yield the case of every model and phase, and the part of the grid it covers."""
    grid = engine.grid
    for model, phase in itertools.product(range(len(grid.models.values)), range(len(grid.phases.values))):
        part = {dim: slice(0, n) for dim, n in grid.sizes.items()}
        part |= {dim: slice(model, model + 1) for dim in grid.models.dims}
        part |= {dim: slice(phase, phase + 1) for dim in grid.phases.dims}
        with np.errstate(all="ignore"):
            yield part, case_of(grid, model, phase, part)


def _placed(engine: Engine, dims: tuple[str, ...], value: Any) -> Any:
    """Return transpose from the order of arrays to the canonical order of dims."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return array.transpose([engine.grid.order.index(dim) for dim in dims])


def _times(case: Case) -> dict[tuple[str, str], Num]:
    """Return the seconds of every kernel: its part of its component's bound when components are the granularity."""
    seconds = forward_pass_seconds(case)
    seconds_by_kernel: dict[tuple[str, str], Num] = {}

    def put(kernel: str, value: Num) -> None:
        seconds_by_kernel[kernel, "time"] = seconds_by_kernel.get((kernel, "time"), 0.0) + value

    for stage in seconds.stages:
        groups: dict[Any, list[Any]] = {}
        for number, k in enumerate(stage.kernels):
            groups.setdefault(k.part if seconds.granularity == "component" else number, []).append(k)
        for group in groups.values():
            memory = [k.weights + case.sequence_counts[k.per] * (k.rows + k.kv + k.activations) for k in group]
            compute = [case.sequence_counts[k.per] * k.compute for k in group]
            bound = np.greater_equal(sum(compute), sum(memory))
            for k, m, c in zip(group, memory, compute, strict=True):
                put(k.kernel, np.where(bound, c, m))
        for sent in (*stage.expert_all_to_all, *stage.other_collectives):
            put("collectives", case.sequence_counts[sent.per] * sent.sent + sent.latency)
    return seconds_by_kernel


def _work(case: Case) -> dict[tuple[str, str], Num]:
    """Count FLOPs and bytes by kernel and cause."""
    amounts: dict[tuple[str, str], Num] = {}

    def put(kernel: str, cause: str, value: Num) -> None:
        if not is_zero(value):
            amounts[kernel, cause] = amounts.get((kernel, cause), 0.0) + value

    for layer, times in priced(case.work, case.options):
        for (kernel, _, per), work in by_kernel(layer.operations).items():
            n = case.sequence_counts[per] * times
            put(kernel, "flops", work.flops * n)
            put(kernel, "weights", work.weights * times + work.rows * n)
            put(kernel, "kv", work.kv * n)
            put(kernel, "activations", work.activations * n)
        for c in (*layer.expert_all_to_all, *layer.other_collectives):
            put("collectives", "link", c.link * case.sequence_counts[c.per] * times)
            put("collectives", "nic", c.nic * case.sequence_counts[c.per] * times)
    return amounts
