"""A pass broken down by kernel, on the whole grid at once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import xarray as xr

from .accounting import priced
from .combine import CAUSES
from .dims import CAUSE, KERNEL
from .engine import Engine, as_dataset, case_of, prepare
from .grid import Axes
from .rates import by_kernel, is_zero
from .specs import SpecError
from .status import CODES, lowest
from .terms import Num
from .tile import Case, PassSeconds, pass_seconds
from .variables import EVERYTHING

NAMES = (
    "attn_proj",
    "attn_core",
    "dense_mlp",
    "router",
    "shared_experts",
    "routed_experts",
    "embedding",
    "lm_head",
    "collectives",
)
ALL_CAUSES = (*CAUSES, "link", "nic")


def breakdown_of(axes: Axes, max_bytes: float) -> xr.Dataset:
    """Break the passes of a grid down; see :func:`cheetah_xr.breakdown`."""
    engine = prepare(axes, ["step_time", "time_overhead", "status"], "float64")
    kernels = NAMES if axes.options.small_ops == "none" else (*NAMES[:-1], "small_ops", NAMES[-1])
    size = engine.grid.n_points * 8 * len(kernels) * (2 + len(ALL_CAUSES))
    if size > max_bytes:
        raise SpecError(f"the breakdown has {size / 1e9:.1f} GB, above max_bytes = {max_bytes / 1e9:.1f} GB")
    ds = as_dataset(engine, engine.compute())
    dims = engine.grid.dims_of(EVERYTHING)
    shape = tuple(engine.grid.sizes[dim] for dim in dims)
    time = np.zeros((len(kernels), *shape))
    flops = np.zeros_like(time)
    moved = np.zeros((len(kernels), len(ALL_CAUSES), *shape))
    for model, phase in itertools.product(range(len(engine.grid.models.values)), range(len(engine.grid.phases.values))):
        part = {dim: slice(0, n) for dim, n in engine.grid.sizes.items()}
        part |= {dim: slice(model, model + 1) for dim in engine.grid.models.dims}
        part |= {dim: slice(phase, phase + 1) for dim in engine.grid.phases.dims}
        place: tuple[Any, ...] = tuple(part[dim] for dim in dims)
        with np.errstate(all="ignore"):
            case = case_of(engine.grid, model, phase, part)
            code = lowest(list(case.conditions))
            valid = (code == 127) | (code == CODES["clipped"])
            for name, value in _times(pass_seconds(case), case).items():
                time[kernels.index(name)][place] = _placed(engine, dims, np.where(valid, value, np.nan))
            for (name, cause), value in _work(case).items():
                target = (
                    flops[kernels.index(name)]
                    if cause == "flops"
                    else moved[kernels.index(name), ALL_CAUSES.index(cause)]
                )
                target[place] = _placed(engine, dims, np.where(valid, value, np.nan))
        masked = _placed(engine, dims, np.broadcast_to(~np.asarray(valid), np.shape(valid)))
        for target in (*time, *flops, *moved.reshape(-1, *shape)):
            np.copyto(target[place], np.nan, where=masked)
    ds = ds.assign_coords({KERNEL: list(kernels), CAUSE: list(ALL_CAUSES)})
    ds["time"] = ((KERNEL, *dims), time, {"units": "s", "long_name": "time of a kernel on its own, all layers"})
    ds["flops"] = ((KERNEL, *dims), flops, {"units": "FLOP", "long_name": "work of one GPU in one pass"})
    ds["bytes"] = ((KERNEL, CAUSE, *dims), moved, {"units": "B", "long_name": "bytes one GPU moves in one pass"})
    hidden = ds["time"].sum(KERNEL, skipna=False) + ds["time_overhead"] - ds["step_time"]
    ds["time_hidden"] = hidden.assign_attrs(units="s", long_name="time saved by overlap")
    return ds


def _placed(engine: Engine, dims: tuple[str, ...], value: Any) -> Any:
    """From the layout of arrays to the canonical order of dims."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return array.transpose([engine.grid.order.index(dim) for dim in dims])


def _times(seconds: PassSeconds, case: Case) -> dict[str, Num]:
    """Seconds of every kernel: its share of its component's bound when components are the granularity."""
    found: dict[str, Num] = {}
    for stage in seconds.stages:
        groups: dict[Any, list[Any]] = {}
        for number, k in enumerate(stage.kernels):
            groups.setdefault(k.part if seconds.granularity == "component" else number, []).append(k)
        for group in groups.values():
            memory = [k.weights + case.scales[k.scale] * (k.rows + k.kv + k.activations) for k in group]
            compute = [case.scales[k.scale] * k.compute for k in group]
            bound = np.greater_equal(sum(compute), sum(memory))
            for k, m, c in zip(group, memory, compute, strict=True):
                found[k.kernel] = found.get(k.kernel, 0.0) + np.where(bound, c, m)
        for c in (*stage.exchange, *stage.rest):
            found["collectives"] = found.get("collectives", 0.0) + case.scales[c.scale] * c.sent + c.latency
    return found


def _work(case: Case) -> dict[tuple[str, str], Num]:
    """FLOPs and bytes by kernel and cause."""
    found: dict[tuple[str, str], Num] = {}

    def put(kernel: str, cause: str, value: Num) -> None:
        if not is_zero(value):
            found[kernel, cause] = found.get((kernel, cause), 0.0) + value

    for layer, times in priced(case.work, case.options):
        for (kernel, _, scale), work in by_kernel(layer.operations).items():
            n = case.scales[scale] * times
            put(kernel, "flops", work.flops * n)
            put(kernel, "weights", work.weights * times + work.rows * n)
            put(kernel, "kv", work.kv * n)
            put(kernel, "activations", work.activations * n)
        for c in (*layer.exchange, *layer.rest):
            put("collectives", "link", c.link * case.scales[c.scale] * times)
            put("collectives", "nic", c.nic * case.scales[c.scale] * times)
    return found
