"""One pool of GPUs: what its memory holds, and the times of its passes on the axes of a serving question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from ..analysis.derive import accepted_tokens
from ..engine.arguments import Axes
from ..engine.evaluator import evaluate_axes
from ..engine.grid import Grid
from ..engine.mixed_batch import evaluate_mixed
from ..engine.validity import CODES
from .load import CACHED, CHUNK, Load, only, options_ignoring_memory

PER_REQUEST = ("efficiency.tau_batch", "efficiency.tau_sequence")
"""What the host does for a request in each of its decode steps, but once for its prompt."""


@dataclass(frozen=True)
class Seconds:
    """Seconds of a step or of the passes of one prompt, and why there are none."""

    time: xr.DataArray
    status: xr.DataArray


@dataclass(frozen=True)
class Prompt:
    """The passes of a prompt: new and cached tokens of each, which of them there are, and how many that is."""

    new: xr.DataArray
    cached: xr.DataArray
    there: xr.DataArray
    passes: xr.DataArray


def prompt_of(load: Load) -> Prompt:
    """Cut prompts into chunks of at most `chunked_prefill_size` tokens, one a forward pass.

    All chunks but the last are full, and each finds the tokens of those before it cached. A chunk that a shorter
    prompt of the axis does not have is priced as one token and not counted.
    """
    new, chunk = load["isl"] - load.cached, load["chunked_prefill_size"]
    passes = -(-new // chunk)
    most = int(passes.max())
    if most == 1:
        return Prompt(new, load.cached, xr.ones_like(new), passes)
    before = xr.DataArray(np.arange(most), dims=CHUNK) * chunk
    size = smaller(new - before, chunk)
    there = size > 0
    return Prompt(size.where(there, 1).astype(np.int64), load.cached + before.where(there, 0), there, passes)


@dataclass(frozen=True)
class Pool:
    """GPUs that work together, and the load they have."""

    axes: Axes
    grid: Grid
    load: Load
    max_bytes: float

    @property
    def dp(self) -> xr.DataArray:
        """Attention ranks."""
        return self.beside("dp")

    def beside(self, name: str) -> xr.DataArray:
        """A coordinate of the pool's grid, without coordinates of its own."""
        dims, values, _ = self.grid.coords[name]
        return xr.DataArray(values, dims=dims)

    def input(self, name: str) -> xr.DataArray:
        """A number of the pool's records by "record.field", on the dims it varies along."""
        values = np.asarray(self.grid.inputs[name])
        dims = [dim for dim, size in zip(self.grid.order, values.shape, strict=False) if size > 1]
        return xr.DataArray(values.squeeze(), dims=dims)

    def held(self, length: xr.DataArray, phase: str = "decode", cached: Any = 0) -> xr.Dataset:
        """Variables ``max_batch``, ``kv_bytes_per_sequence`` and ``status`` of requests of a length."""
        names = ["max_batch", "kv_bytes_per_sequence", "status"]
        return _bare(self._evaluate(phase, xr.ones_like(length), length, names, cached))

    @property
    def counts_memory(self) -> bool:
        """Whether memory limits what runs."""
        return self.axes.options.counts_memory

    def most(self, length: xr.DataArray) -> xr.DataArray:
        """Requests of a length the cache holds; any number where memory is not asked about."""
        found = self.held(length)["max_batch"]
        return found if self.counts_memory else xr.full_like(found, np.inf)

    def status(self, length: xr.DataArray, phase: str = "decode", cached: Any = 0) -> xr.DataArray:
        """Why a request of a length cannot be served: the reason of its passes, or that not one fits."""
        held = self.held(length, phase, cached)
        short = (held["max_batch"] < 1) & self.counts_memory
        return first_reason(held["status"], code_where(short, "infeasible_memory"))

    def decode(self, running: xr.DataArray, context: xr.DataArray) -> Seconds:
        """A decode step."""
        return _seconds(self._evaluate("decode", running, context, ["step_time", "status"]))

    def accepted(self) -> xr.DataArray:
        """Output tokens of a request in one decode step, on average."""
        one = xr.DataArray(1)
        return xr.DataArray(accepted_tokens(self._evaluate("decode", one, one, ["status"]))).drop_vars(
            self.grid.coords, errors="ignore"
        )

    def prefill(self, prompts: xr.DataArray) -> Seconds:
        """All passes of `prompts` prompts that are prefilled together."""
        prompt = prompt_of(self.load)
        return _of_passes(
            self._evaluate("prefill", prompts, prompt.new, ["step_time", "status"], prompt.cached), prompt
        )

    def mixed(self, prompts: xr.DataArray, running: xr.DataArray, context: xr.DataArray) -> Seconds:
        """The same where each pass also does a decode step of those that run."""
        prompt = prompt_of(self.load)
        axes = self._axes("prefill", prompts, prompt.new, prompt.cached, mixed=True)
        return _of_passes(evaluate_mixed(axes, running, context, self.max_bytes), prompt)

    def _evaluate(
        self, phase: str, batch: xr.DataArray, seq_len: xr.DataArray, names: list[str], cached: Any = 0
    ) -> xr.Dataset:
        return evaluate_axes(self._axes(phase, batch, seq_len, cached), names, "float64", self.max_bytes)

    def _axes(
        self, phase: str, batch: xr.DataArray, seq_len: xr.DataArray, cached: Any, *, mixed: bool = False
    ) -> Axes:
        """A pass of the pool. Cached tokens belong to prefill, the overhead per request to those that decode."""
        free = () if mixed or phase == "decode" else PER_REQUEST
        axes = only(self.axes, CACHED, *free)
        own = ({CACHED: cached} if phase == "prefill" else {}) | dict.fromkeys(free, 0.0)
        options = options_ignoring_memory(axes.options)
        overrides = {**axes.overrides, **own}
        return replace(axes, phase=phase, batch=batch, seq_len=seq_len, options=options, overrides=overrides)


def context_of(pool: Pool) -> xr.DataArray:
    """Mean tokens of a decoding request in the cache, rounded down to a whole one."""
    return pool.load["isl"] + pool.load["osl"] // 2


def first_reason(*codes: xr.DataArray) -> xr.DataArray:
    """The first code that is not ok."""
    found = codes[0]
    for code in codes[1:]:
        found = found.where(found != CODES["ok"], code)
    return found


def code_where(applies: xr.DataArray, name: str) -> xr.DataArray:
    """The code of a reason where it applies, else ok."""
    return applies * np.int8(CODES[name])


def smaller(a: xr.DataArray, b: xr.DataArray) -> xr.DataArray:
    """The smaller of two."""
    return xr.DataArray(np.minimum(a, b))


def _bare(ds: xr.Dataset) -> xr.Dataset:
    return ds.drop_vars(list(ds.coords))


def _seconds(ds: xr.Dataset) -> Seconds:
    bare = _bare(ds)
    return Seconds(bare["step_time"], bare["status"])


def _of_passes(ds: xr.Dataset, prompt: Prompt) -> Seconds:
    """Passes of a prompt added up; those that are not there are worth nothing."""
    one = _seconds(ds)
    if CHUNK not in one.time.dims:
        return one
    return Seconds((one.time * prompt.there).sum(CHUNK, skipna=False), one.status.max(CHUNK))
