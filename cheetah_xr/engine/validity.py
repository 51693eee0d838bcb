"""Status codes: why a point has no times. Codes are append-only; the lowest applicable one wins, memory's last."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..costmodel.forward_pass import group_rules, layout_rules
from ..costmodel.operations import Collective, Flags, ForwardPass, ForwardPassWork, LayoutRule, Num
from ..specs import AnyModel, Model, Options, ParameterCountModel
from .dims import BATCH, DP, EP, GPU, LEADING, MODEL, OPTIONS, PARALLEL, PHASE, PRECISION, SEQ_LEN, TP, TRAILING
from .lazy import Value, apply, larger

OK = 0
NOT_COMPUTED = -1
CODES = {
    "ok": 0,
    "workload_below_one": 1,
    "tp_heads": 2,
    "tp_kv_heads": 3,
    "tp_width": 4,
    "module_tp": 5,
    "ep_layout": 6,
    "ep_dense": 7,
    "etp_width": 8,
    "expert_comm_needs_dp1": 9,
    "seq_beyond_max": 10,
    "no_peak": 11,
    "no_link": 12,
    "no_nic": 13,
    "infeasible_memory": 14,
    "clipped": 15,
    "top_k_beyond_experts": 16,
    "no_mtp": 17,
}
REASONS = {
    "ok": "the point is valid and fits in memory",
    "workload_below_one": "batch or sequence length is below 1",
    "tp_heads": "tp does not divide the query heads, or the heads of a recurrent mixer",
    "tp_kv_heads": "neither of tp and the KV heads (groups of Mamba-2) divides the other",
    "tp_width": "the tensor-parallel degree does not divide the MLP or shared-expert width, or the output groups",
    "module_tp": "dense_tp, shared_tp or lm_head_tp is not a multiple of tp, or does not divide the GPUs",
    "ep_layout": "ep does not divide the GPUs, or not the expert slots",
    "ep_dense": "ep is above 1 on a dense model",
    "etp_width": "the GPUs of one expert do not divide the expert width",
    "expert_comm_needs_dp1": "expert_comm all_reduce needs dp = 1",
    "seq_beyond_max": "the sequence is longer than the model's maximum",
    "no_peak": "the accelerator has no peak for a compute type of the precision",
    "no_link": "the layout needs a link whose rate or domain is not known",
    "no_nic": "the layout leaves the link domain and the NIC is not known",
    "infeasible_memory": "weights and cache do not fit in memory",
    "clipped": "the batch does not fit and runs at the largest that does",
    "top_k_beyond_experts": "top_k is above the number of experts",
    "no_mtp": "the model has no multi-token-prediction module",
}
MEMORY = (CODES["infeasible_memory"], CODES["clipped"])
"""Codes that say what fits. Any other reason wins over them, also one with a later code."""

NONE = 127
"""Where no condition applies."""

_LATER = 100

RUNS = frozenset({CODES["ok"], CODES["clipped"]})
"""Codes of points that have times."""

BOTTLENECKS = {"compute": 0, "weights": 1, "kv": 2, "activations": 3, "communication": 4, "overhead": 5}


INPUTS = frozenset({*LEADING, *TRAILING, OPTIONS})
"""What a condition may depend on."""


@dataclass(frozen=True)
class Condition:
    """Where one reason applies, and which inputs it depends on: it masks only variables that depend on them too."""

    code: int
    inputs: frozenset[str]
    where: Flags

    def __post_init__(self) -> None:
        """Reject an unknown input: no variable depends on it, so the condition would never mask any."""
        if not self.inputs <= INPUTS:
            raise ValueError(f"a condition depends on unknown inputs {sorted(self.inputs - INPUTS)}")


def condition(name: str, inputs: tuple[str, ...], where: Flags) -> Condition:
    """Return the condition of a reason; options are always among the inputs."""
    return Condition(CODES[name], frozenset({*inputs, OPTIONS}), where)


def layout_conditions(model: AnyModel, options: Options, p: ForwardPass, batch: Num) -> list[Condition]:
    """Return conditions on workload and layout: those under which not even the work is defined."""
    conditions = [
        condition("workload_below_one", (BATCH,), batch < 1),
        condition("workload_below_one", (SEQ_LEN,), p.seq_len < 1),
        condition("module_tp", (TP, DP), _module_tp_wrong(options, p)),
        condition("ep_layout", (TP, DP, EP), p.n_gpus % p.ep != 0),
    ]
    if not model.is_moe:
        conditions.append(condition("ep_dense", (MODEL, EP), p.ep > 1))
    conditions += _model_conditions(model, options, p)
    if isinstance(options.drafter, (Model, ParameterCountModel)):
        return conditions + _model_conditions(options.drafter, options, p)
    if options.drafter == "mtp":
        missing = isinstance(model, ParameterCountModel) or not model.mtp
        conditions.append(condition("no_mtp", (MODEL,), np.bool_(missing)))
        if isinstance(model, Model):
            rules = [rule for group in model.mtp for rule in group_rules(model.of(group), group, options, p)]
            conditions += map(_from_rule, rules)
    return conditions


def _model_conditions(model: AnyModel, options: Options, p: ForwardPass) -> list[Condition]:
    """Return what a model, or a draft model, asks of lengths and degrees."""
    conditions = [_from_rule(rule) for rule in layout_rules(model, options, p)]
    if model.max_seq_len is not None:
        conditions.append(condition("seq_beyond_max", (MODEL, SEQ_LEN, PHASE), p.context > model.max_seq_len))
    return conditions


def _from_rule(rule: LayoutRule) -> Condition:
    return condition(rule.status, (MODEL, *rule.degrees), rule.broken)


def _module_tp_wrong(options: Options, p: ForwardPass) -> Flags:
    wrong: Flags = False
    for degree in (options.dense_tp, options.shared_tp, options.lm_head_tp):
        if degree is not None:
            wrong = wrong | (degree % p.tp != 0) | (p.n_gpus % degree != 0)
    return wrong


def hardware_conditions(
    work: ForwardPassWork, parts: tuple[str, ...], no_peak: Flags, no_link: Flags, no_nic: Flags
) -> list[Condition]:
    """Return conditions on known rates; only collectives in priced `parts` need a link or a NIC."""
    needed: list[tuple[Num, Collective]] = []
    for layer in work.parts:
        if layer.part in parts:
            needed += [
                (layer.repeats, collective) for collective in (*layer.expert_all_to_all, *layer.other_collectives)
            ]
    link: Flags = False
    nic: Flags = False
    for repeats, collective in needed:
        link = link | (collective.link * repeats > 0)
        nic = nic | (collective.nic * repeats > 0)
    inputs = (MODEL, GPU, PRECISION, PHASE, *PARALLEL, SEQ_LEN)
    return [
        condition("no_peak", (MODEL, GPU, PRECISION), no_peak),
        condition("no_link", inputs, link & no_link),
        condition("no_nic", inputs, nic & no_nic),
    ]


def lowest(conditions: list[Condition]) -> Value:
    """Return the lowest applicable code as int8, NONE where none applies; conditions on the same axes come first."""
    by_shape: dict[tuple[int, ...], Value] = {}
    for c in conditions:
        number = c.code + _LATER if c.code in MEMORY else c.code
        where = np.asarray(c.where, dtype=np.bool_).view(np.int8)
        code = apply(np.subtract, np.int8(NONE), apply(np.multiply, where, np.int8(NONE - number)))
        by_shape[code.shape] = apply(np.minimum, by_shape[code.shape], code) if code.shape in by_shape else code
    result: Value = np.full((), NONE, dtype=np.int8)
    for _, code in sorted(by_shape.items(), key=lambda item: math.prod(item[0])):
        result = apply(np.minimum, result, code)
    if any(c.code in MEMORY for c in conditions):
        later, none = larger(result, np.int8(_LATER)), larger(result, np.int8(NONE - 1))
        result = apply(np.subtract, result, apply(np.multiply, apply(np.subtract, later, none), np.int8(_LATER)))
    return result
