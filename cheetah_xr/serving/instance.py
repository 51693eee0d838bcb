"""One instance of an engine: its KV-cache capacity and the times of its forward passes on the axes of a workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from ..analysis.derive import accepted_tokens
from ..engine.evaluator import evaluate_axes
from ..engine.grid import Grid
from ..engine.inputs.arguments import Axes
from ..engine.mixed_batch import evaluate_mixed
from ..engine.validity import CODES
from .workload import CACHED, CHUNK, Workload, without_overrides

PER_REQUEST = ("efficiency.tau_batch", "efficiency.tau_sequence")
"""CPU overheads of a request, paid in each of its decode steps but not in its prefill."""


@dataclass(frozen=True)
class Seconds:
    """Seconds of a decode step or of the forward passes of one prompt, and why there are none."""

    time: xr.DataArray
    status: xr.DataArray


@dataclass(frozen=True)
class Prompt:
    """The chunks of a prompt: new and cached tokens of each, which of them are present, and how many."""

    new: xr.DataArray
    cached: xr.DataArray
    present: xr.DataArray
    n_chunks: xr.DataArray


def prompt_of(workload: Workload) -> Prompt:
    """Cut prompts into chunks of at most `chunked_prefill_size` tokens, one a forward pass.

    All chunks but the last are full, and each finds the tokens of those before it cached. A chunk that a shorter
    prompt of the axis does not have is priced as one token and not counted.
    """
    new, chunk = workload["isl"] - workload.cached, workload["chunked_prefill_size"]
    n_chunks = -(-new // chunk)
    most = int(n_chunks.max())
    if most == 1:
        return Prompt(new, workload.cached, xr.ones_like(new), n_chunks)
    before = xr.DataArray(np.arange(most), dims=CHUNK) * chunk
    size = smaller(new - before, chunk)
    present = size > 0
    return Prompt(
        size.where(present, 1).astype(np.int64), workload.cached + before.where(present, 0), present, n_chunks
    )


@dataclass(frozen=True)
class Instance:
    """The GPUs of one layout, and the workload they serve."""

    axes: Axes
    grid: Grid
    workload: Workload
    max_bytes: float

    @property
    def dp(self) -> xr.DataArray:
        """Attention ranks."""
        return self.coordinate("dp")

    def coordinate(self, name: str) -> xr.DataArray:
        """Return a coordinate of the grid, without coordinates of its own."""
        dims, values, _ = self.grid.coords[name]
        return xr.DataArray(values, dims=dims)

    def input(self, name: str) -> xr.DataArray:
        """Return a number of the records by "record.field", on the dims it varies along."""
        values = np.asarray(self.grid.inputs[name])
        dims = [dim for dim, size in zip(self.grid.order, values.shape, strict=False) if size > 1]
        return xr.DataArray(values.squeeze(), dims=dims)

    def memory(self, length: xr.DataArray, phase: str = "decode", cached: Any = 0) -> xr.Dataset:
        """Return ``max_batch``, ``kv_bytes_per_sequence`` and ``status`` for requests of a length."""
        names = ["max_batch", "kv_bytes_per_sequence", "status"]
        return _bare(self._evaluate(phase, xr.ones_like(length), length, names, cached))

    @property
    def counts_memory(self) -> bool:
        """Whether memory limits what runs."""
        return self.axes.options.counts_memory

    def kv_capacity(self, length: xr.DataArray) -> xr.DataArray:
        """Return the requests of a length the KV cache holds; infinite where memory does not count."""
        max_batch = self.memory(length)["max_batch"]
        return max_batch if self.counts_memory else xr.full_like(max_batch, np.inf)

    def status(self, length: xr.DataArray, phase: str = "decode", cached: Any = 0) -> xr.DataArray:
        """Return why a request of a length cannot be served: the status of its forward passes, or that none fits."""
        memory = self.memory(length, phase, cached)
        too_large = (memory["max_batch"] < 1) & self.counts_memory
        return first_reason(memory["status"], code_where(too_large, "infeasible_memory"))

    def decode(self, running: xr.DataArray, context: xr.DataArray) -> Seconds:
        """Return the time of a decode step."""
        return _seconds(self._evaluate("decode", running, context, ["step_time", "status"]))

    def accepted(self) -> xr.DataArray:
        """Return the mean output tokens of a request in one decode step."""
        one = xr.DataArray(1)
        return xr.DataArray(accepted_tokens(self._evaluate("decode", one, one, ["status"]))).drop_vars(
            self.grid.coords, errors="ignore"
        )

    def prefill(self, prompts: xr.DataArray) -> Seconds:
        """Return the time of all forward passes of `prompts` prompts that are prefilled together."""
        prompt = prompt_of(self.workload)
        return _summed_over_chunks(
            self._evaluate("prefill", prompts, prompt.new, ["step_time", "status"], prompt.cached), prompt
        )

    def mixed(self, prompts: xr.DataArray, running: xr.DataArray, context: xr.DataArray) -> Seconds:
        """Return the time of the mixed batches that prefill `prompts` prompts and decode `running` requests."""
        prompt = prompt_of(self.workload)
        axes = self._axes("prefill", prompts, prompt.new, prompt.cached, mixed=True)
        return _summed_over_chunks(evaluate_mixed(axes, running, context, self.max_bytes), prompt)

    def _evaluate(
        self, phase: str, batch: xr.DataArray, seq_len: xr.DataArray, names: list[str], cached: Any = 0
    ) -> xr.Dataset:
        return evaluate_axes(self._axes(phase, batch, seq_len, cached), names, "float64", self.max_bytes)

    def _axes(
        self, phase: str, batch: xr.DataArray, seq_len: xr.DataArray, cached: Any, *, mixed: bool = False
    ) -> Axes:
        """Return the axes of a forward pass: prefill has cached tokens, and only decode pays overheads per request."""
        unpaid = () if mixed or phase == "decode" else PER_REQUEST
        axes = without_overrides(self.axes, CACHED, *unpaid)
        own = ({CACHED: cached} if phase == "prefill" else {}) | dict.fromkeys(unpaid, 0.0)
        options, overrides = axes.options.ignoring_memory(), {**axes.overrides, **own}
        return replace(axes, phase=phase, batch=batch, seq_len=seq_len, options=options, overrides=overrides)


def context_of(instance: Instance) -> xr.DataArray:
    """Return the mean context of a decoding request (tokens), rounded down to a whole token."""
    return instance.workload["isl"] + instance.workload["osl"] // 2


def first_reason(*codes: xr.DataArray) -> xr.DataArray:
    """Return the first code that is not ok."""
    first = codes[0]
    for code in codes[1:]:
        first = first.where(first != CODES["ok"], code)
    return first


def code_where(applies: xr.DataArray, name: str) -> xr.DataArray:
    """Return the code of a reason where it applies, else ok."""
    return applies * np.int8(CODES[name])


def smaller(a: xr.DataArray, b: xr.DataArray) -> xr.DataArray:
    """Return the smaller of two arrays."""
    return xr.DataArray(np.minimum(a, b))


def _bare(ds: xr.Dataset) -> xr.Dataset:
    return ds.drop_vars(list(ds.coords))


def _seconds(ds: xr.Dataset) -> Seconds:
    bare = _bare(ds)
    return Seconds(bare["step_time"], bare["status"])


def _summed_over_chunks(ds: xr.Dataset, prompt: Prompt) -> Seconds:
    """Sum the forward passes of the chunks of a prompt that are present."""
    chunks = _seconds(ds)
    if CHUNK not in chunks.time.dims:
        return chunks
    return Seconds((chunks.time * prompt.present).sum(CHUNK, skipna=False), chunks.status.max(CHUNK))
