"""Variants of the model that leave refinements out, down to the paper's own assumptions; each is fitted anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.efficiency_by_layout import GROUPED
from ..objective import Target
from ..parameters import COLLECTIVES, fields_of
from ..passes import FIELDS, NEUTRAL, Factors, PassTable
from ..predictors import Part, Problem, Serving

Array = NDArray[Any]
Change = Callable[[dict[str, Array]], dict[str, Array]]

COMPONENTS = ("attention", "mlp", "embedding", "lm_head")
COMPONENT = {
    **dict.fromkeys(("attn_proj", "attn_core", "indexer"), "attention"),
    **dict.fromkeys(("dense_mlp", "router", "shared_experts", "routed_experts", "routed_experts_w4"), "mlp"),
    "embedding": "embedding",
    "lm_head": "lm_head",
    "small_ops": "attention",
}
"""Kernel -> the whole it belongs to (seed 1)."""

LAUNCHES = (
    "launch_gemm",
    "launch_attn_core",
    "launch_routed_experts",
    "launch_routed_experts_fp4",
    "launch_routed_experts_w4",
)


@dataclass(frozen=True)
class ByComponent(PassTable):
    """Passes with one maximum of memory and compute per component of the pass in place of one per kernel."""

    def seconds(self, factors: Factors) -> Array:
        """Seconds of every pass, (rows, sets)."""
        memory = self.memory[:, None] / self._values(factors, self.memory_name)
        compute = self.compute[:, None] / self._values(factors, self.compute_name)
        compute = compute / self._values(factors, self.relative_name)
        shape = (self.n_rows, len(COMPONENTS), memory.shape[1])
        sums = np.zeros((3, *shape))
        places = (self.kernel_row, self._components())
        for place, values in enumerate((memory, compute, np.maximum(memory, compute))):
            np.add.at(sums[place], places, values)
        by_kernel = sums[2].sum(axis=1)
        return np.asarray(super().seconds(factors) - by_kernel + np.maximum(sums[0], sums[1]).sum(axis=1))

    def _values(self, factors: Factors, names: Array) -> Array:
        fields = [np.ones(1) if name == NEUTRAL else factors[name] for name in FIELDS]
        return np.stack(np.broadcast_arrays(*fields))[names]

    def _components(self) -> Array:
        kernels = [FIELDS[name].removeprefix("memory_") for name in self.memory_name]
        return np.array([COMPONENTS.index(COMPONENT[kernel]) for kernel in kernels], int)


def by_component(problem: Problem) -> Problem:
    """The same problem with one maximum per component."""
    return replace(problem, parts=tuple(_changed(part) for part in problem.parts))


def _changed(part: Any) -> Part:
    tables: dict[str, Any] = {}
    for f in fields(part):
        value = getattr(part, f.name)
        if isinstance(value, PassTable):
            tables[f.name] = _component_table(value)
        elif isinstance(value, tuple):
            tables[f.name] = tuple(_component_table(table) for table in value)
    changed: Part = replace(part, **tables)
    return changed


def _component_table(table: PassTable) -> ByComponent:
    return ByComponent(**{f.name: getattr(table, f.name) for f in fields(table)})


@dataclass(frozen=True)
class Changed(Target):
    """A target some of whose fields do not follow the factors."""

    change: Change = field(default=lambda values: values)

    def errors(self, points: Array) -> Array:
        """ln(predicted/measured), (rows, sets)."""
        seconds = self.problem.seconds(self.change(fields_of(points, self.base)))
        return np.asarray(np.log(seconds / self.problem.measured[:, None]))


@dataclass(frozen=True)
class Variant:
    """One variant: fields held at numbers, fields that follow others, what serving counts, and one maximum for what.

    `fixed` and `follows` are applied after the factors.
    """

    what: str
    fixed: Mapping[str, float] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)
    component: bool = False

    def change(self, values: dict[str, Array]) -> dict[str, Array]:
        """The fields as the variant has them."""
        some = next(iter(values.values()))
        held = {name: np.full_like(some, value) for name, value in self.fixed.items()}
        return values | held | {name: values[other] for name, other in self.follows.items()}


def _no(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 0.0)


LATENCY = _no(*(f"latency_{name}" for name in COLLECTIVES))
HOST = _no("tau_sequence", "tau_layer_prefill")
BARE = _no(*LAUNCHES) | HOST | LATENCY
FUSED = {GROUPED[1]: GROUPED[0]}
UNLIMITED, STEP = Serving("apart", limited=False), Serving("none", limited=False)

STEPS = (
    Variant(
        "the paper's assumptions: a maximum per component, constant factors, bandwidth-only communication; time per "
        "token is the decode step",
        BARE,
        FUSED,
        STEP,
        component=True,
    ),
    Variant("+ every request's prompt is prefilled on the same GPUs", BARE, FUSED, UNLIMITED, component=True),
    Variant("+ no more requests decode than the cache holds", BARE, FUSED, Serving("apart"), component=True),
    Variant("+ a maximum per kernel", BARE, FUSED, Serving("apart")),
    Variant(
        "+ a share of the peak of their own for experts that get tokens by exchange", BARE, serving=Serving("apart")
    ),
    Variant("+ a time per launch of a kernel", HOST | LATENCY, serving=Serving("apart")),
    Variant("+ a latency per collective", HOST, serving=Serving("apart")),
    Variant("+ a time per sequence", _no("tau_layer_prefill"), serving=Serving("apart")),
    Variant("+ the host's time per layer of prompts", serving=Serving("apart")),
    Variant("+ prompts as the engine serves them: mixed passes, or waves (the model)"),
)
"""From the paper's assumptions to the model, one refinement at a time."""

WITHOUT = (
    Variant("no time per launch", _no(*LAUNCHES)),
    Variant("no latency of collectives", LATENCY),
    Variant("no time per sequence", _no("tau_sequence")),
    Variant("no time of the host per layer of prompts", _no("tau_layer_prefill")),
    Variant("no limit by the cache", serving=Serving(limited=False)),
    Variant("prompts in passes of their own everywhere", serving=Serving("apart")),
    Variant("prompts left out", serving=Serving("none")),
    Variant("a maximum per component", component=True),
    Variant(
        "no numbers of their own for four-bit experts",
        follows={
            "memory_routed_experts_w4": "memory_routed_experts",
            "launch_routed_experts_w4": "launch_routed_experts",
            "launch_routed_experts_fp4": "launch_routed_experts",
        },
    ),
    Variant("fused kernels for experts that get tokens by exchange too", follows=FUSED),
    Variant("the same share of the fp8 and fp4 peaks as of the bf16 one", {"compute_fp8": 1.0, "compute_fp4": 1.0}),
)
"""The model with one refinement left out."""

CHOICES = tuple(
    Variant(f"`{name}: {value}`", serving=Serving(options={name: value}))
    for name, value in (
        ("small_ops", "memory"),
        ("expert_load", "busiest"),
        ("distinct_factor", 0.8),
        ("imbalance", 1.2),
        ("micro_batches", 2),
        ("activation_traffic", "none"),
    )
)
"""The model with another choice of the cost model; its own are those of docs/explanation/cost-model.md."""
