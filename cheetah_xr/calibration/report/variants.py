"""Define variants of the model without refinements, down to the assumptions of [CHEETAH]; each is fitted again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.inputs.efficiency_rules import GROUPED_EXPERTS
from ...specs import COLLECTIVES
from ..objective import Target
from ..parameters import fields_of
from ..predictors import Part, Problem, Serving
from ..row_table import FIELDS, NEUTRAL, FieldValues, RowTable

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
"""Kernel -> its component in [CHEETAH]."""

LAUNCHES = (
    "launch_gemm",
    "launch_attn_core",
    "launch_routed_experts",
    "launch_routed_experts_fp4",
    "launch_routed_experts_w4",
)


@dataclass(frozen=True)
class ByComponent(RowTable):
    """Forward passes with one maximum of memory and compute per component in place of one per kernel."""

    def seconds(self, values: FieldValues) -> Array:
        """Return the seconds of every forward pass, (rows, samples)."""
        memory = self.memory[:, None] / self._values(values, self.memory_field)
        compute = self.compute[:, None] / self._values(values, self.compute_field)
        compute = compute / self._values(values, self.relative_field)
        shape = (self.n_rows, len(COMPONENTS), memory.shape[1])
        sums = np.zeros((3, *shape))
        indices = (self.kernel_row, self._components())
        for place, times in enumerate((memory, compute, np.maximum(memory, compute))):
            np.add.at(sums[place], indices, times)
        by_kernel = sums[2].sum(axis=1)
        return np.asarray(super().seconds(values) - by_kernel + np.maximum(sums[0], sums[1]).sum(axis=1))

    def _values(self, values: FieldValues, names: Array) -> Array:
        fields = [np.ones(1) if name == NEUTRAL else values[name] for name in FIELDS]
        return np.stack(np.broadcast_arrays(*fields))[names]

    def _components(self) -> Array:
        kernels = [FIELDS[name].removeprefix("memory_") for name in self.memory_field]
        return np.array([COMPONENTS.index(COMPONENT[kernel]) for kernel in kernels], int)


def by_component(problem: Problem) -> Problem:
    """Return the problem with one maximum per component."""
    return replace(problem, parts=tuple(_changed(part) for part in problem.parts))


def _changed(part: Any) -> Part:
    tables: dict[str, Any] = {}
    for f in fields(part):
        value = getattr(part, f.name)
        if isinstance(value, RowTable):
            tables[f.name] = _component_table(value)
        elif isinstance(value, tuple):
            tables[f.name] = tuple(_component_table(table) for table in value)
    changed: Part = replace(part, **tables)
    return changed


def _component_table(table: RowTable) -> ByComponent:
    return ByComponent(**{f.name: getattr(table, f.name) for f in fields(table)})


@dataclass(frozen=True)
class ChangedTarget(Target):
    """A target with some fields fixed or tied to others."""

    change: Change = field(default=lambda values: values)

    def errors(self, points: Array) -> Array:
        """Return ln(predicted/measured), (rows, samples)."""
        seconds = self.problem.seconds(self.change(fields_of(points, self.base)))
        return np.asarray(np.log(seconds / self.problem.measured[:, None]))


@dataclass(frozen=True)
class Variant:
    """One variant: fixed fields, fields that follow others, serving assumptions, a maximum per component or kernel.

    `fixed` and `follows` are applied after the fitted parameters.
    """

    what: str
    fixed: Mapping[str, float] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)
    component: bool = False

    def change(self, values: dict[str, Array]) -> dict[str, Array]:
        """Return the fields as the variant has them."""
        like = next(iter(values.values()))
        fixed = {name: np.full_like(like, value) for name, value in self.fixed.items()}
        return values | fixed | {name: values[other] for name, other in self.follows.items()}


def _no(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 0.0)


LATENCY = _no(*(f"latency_{name}" for name in COLLECTIVES))
CPU = _no("tau_sequence", "tau_layer_prefill")
BARE = _no(*LAUNCHES) | CPU | LATENCY
FUSED = {GROUPED_EXPERTS[1]: GROUPED_EXPERTS[0]}
UNLIMITED, STEP = Serving("apart", limited=False), Serving("none", limited=False)

STEPS = (
    Variant(
        "assumptions of [CHEETAH]: a maximum per component, constant factors, bandwidth-only communication; time per "
        "token is the decode step",
        BARE,
        FUSED,
        STEP,
        component=True,
    ),
    Variant("+ every request is prefilled on the same GPUs", BARE, FUSED, UNLIMITED, component=True),
    Variant("+ concurrency limited by KV-cache capacity", BARE, FUSED, Serving("apart"), component=True),
    Variant("+ a maximum per kernel", BARE, FUSED, Serving("apart")),
    Variant("+ separate efficiencies for experts behind an expert-parallel all-to-all", BARE, serving=Serving("apart")),
    Variant("+ kernel launch overhead", CPU | LATENCY, serving=Serving("apart")),
    Variant("+ a latency per collective", CPU, serving=Serving("apart")),
    Variant("+ a time per sequence", _no("tau_layer_prefill"), serving=Serving("apart")),
    Variant("+ CPU launch overhead per layer of eager prefill", serving=Serving("apart")),
    Variant("+ scheduling of the engine: mixed batches or synchronized batches (the model)"),
)
"""From the assumptions of [CHEETAH] to the model, one refinement at a time."""

WITHOUT = (
    Variant("no kernel launch overhead", _no(*LAUNCHES)),
    Variant("no latency of collectives", LATENCY),
    Variant("no time per sequence", _no("tau_sequence")),
    Variant("no CPU launch overhead per layer of eager prefill", _no("tau_layer_prefill")),
    Variant("no limit by KV-cache capacity", serving=Serving(limited=False)),
    Variant("prefill in separate forward passes everywhere", serving=Serving("apart")),
    Variant("prefill interference left out", serving=Serving("none")),
    Variant("a maximum per component", component=True),
    Variant(
        "no separate efficiencies for four-bit experts",
        follows={
            "memory_routed_experts_w4": "memory_routed_experts",
            "launch_routed_experts_w4": "launch_routed_experts",
            "launch_routed_experts_fp4": "launch_routed_experts",
        },
    ),
    Variant("fused kernels for experts behind an all-to-all too", follows=FUSED),
    Variant("the same fraction of the fp8 and fp4 peaks as of the bf16 peak", {"compute_fp8": 1.0, "compute_fp4": 1.0}),
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
"""The model with another choice of the cost model; its defaults are those of docs/explanation/cost-model.md."""
