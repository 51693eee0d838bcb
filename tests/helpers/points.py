"""Random points of the cost model for the tests: records, layouts, options and workloads from one generator."""

from dataclasses import dataclass
from typing import Any

import cheetah_xr as cx
from cheetah_xr.specs import RECURRENT
from cheetah_xr.specs.efficiency import Efficiency
from cheetah_xr.specs.options import Options
from tests.helpers.synthetic_models import DRAFTERS, SYNTHETIC

KINDS = (
    "dense_gqa",
    "dense_odd",
    "moe_gqa",
    "moe_mla",
    "parameter-count",
    "sparse",
    "compressed",
    "recurrent",
    "hybrid_moe",
)
LAYOUTS = ("one", "tensor", "data", "expert")
PRECISIONS = {name: cx.load_precision(name) for name in cx.list_precisions()}
ATTENDING = ("gqa", "mla", "compressed")
IDEAL = cx.load_efficiency("ideal")


@dataclass(frozen=True)
class Point:
    """One call of the cost model."""

    model: Any
    gpu: Any
    precision: Any
    efficiency: Any
    options: Options
    phase: str
    batch: int
    seq_len: int
    tp: int
    dp: int
    ep: int


# ---- models


def is_parameter_count(model):
    return isinstance(model, cx.ParameterCountModel)


def kind_of(model):
    """Which of KINDS a model is."""
    if is_parameter_count(model):
        return "parameter-count"
    if any(g.attention == "compressed" for g in model.groups):
        return "compressed"
    if model.is_recurrent:
        return "hybrid_moe" if model.is_moe else "recurrent"
    if any(g.indexer != "none" for g in model.groups):
        return "sparse"
    if model.is_moe:
        return "moe_mla" if any(g.attention == "mla" for g in model.groups) else "moe_gqa"
    return "dense_odd" if model in SYNTHETIC else "dense_gqa"


CATALOGUE = [cx.load_model(name) for name in cx.list_models()]
MODELS = {kind: [m for m in (*CATALOGUE, *SYNTHETIC) if kind_of(m) == kind] for kind in KINDS}

# ---- accelerators

_CARD = {"memory_bytes": 120e9, "hbm_bandwidth": 3e12, "peak_bf16": 9e14, "peak_fp8": 1.8e15, "peak_fp4": 3.5e15}
GPUS = [cx.load_gpu(name) for name in cx.list_gpus()] + [
    cx.load_gpu({"name": "alone", **_CARD}),
    cx.load_gpu({"name": "boundless", **_CARD, "link_bandwidth": 4e11, "nic_bandwidth": 5e10}),
    cx.load_gpu({"name": "nic-only", **_CARD, "link_domain": 1, "nic_bandwidth": 5e10}),
    cx.load_gpu({"name": "six", **_CARD, "link_bandwidth": 3e11, "link_domain": 6, "nic_bandwidth": 4e10}),
    cx.load_gpu(
        {
            "name": "mesh",
            **_CARD,
            "link_bandwidth": 3e11,
            "link_pairwise": 5e10,
            "link_domain": 4,
            "nic_bandwidth": 2.5e10,
        }
    ),
]


def draw_gpu(rng, precision, n):
    """Any accelerator, mostly one with the peaks the precision needs and what joins n GPUs."""
    needed = {f"peak_{getattr(precision, f)}" for f in type(precision).model_fields if f.endswith("_compute")}
    needed |= {"link_bandwidth", "link_domain"} if n > 1 else set()
    needed |= {"nic_bandwidth"} if n > 8 else set()
    able = [gpu for gpu in GPUS if all(getattr(gpu, field) for field in needed)]
    return rng.choice(able if rng.random() < 0.8 else GPUS)


def draw_precision(rng, name):
    """A precision of the catalogue, every other time with states and index keys of any width."""
    precision = PRECISIONS[name]
    if rng.random() < 0.5:
        return precision
    widths = {"index_bytes": rng.choice([0.5, 1.0, 2.0, 1 + rng.random()]), "state_bytes": rng.choice([1.0, 2.0, 3.5])}
    return precision.model_copy(update=widths)


def draw_efficiency(rng):
    """Every factor and overhead at random."""
    numbers = {}
    for name in Efficiency.numeric_fields():
        small = name.startswith(("latency", "launch", "tau"))
        numbers[name] = rng.choice([0.0, 10 ** rng.uniform(-7, -4.5)]) if small else 1 - rng.uniform(0, 0.7)
        if Efficiency.model_fields[name].default is None and rng.random() < 0.4:
            numbers[name] = None
    return cx.Efficiency(name="random", **numbers)


# ---- layouts and options


def _splits(model, group, tp):
    """Whether a layer can be split over tp ranks."""
    m = model.of(group)
    replicated = {"gqa": m.n_kv_heads, "mamba2": m.linear_key_heads}.get(group.attention, tp)
    split = {"compressed": [m.o_groups], "mamba2": [m.linear_value_heads], "none": []}
    recurrent = [m.linear_value_heads, m.linear_key_heads] if group.attention in RECURRENT else []
    widths = [m.n_heads] * (group.attention in ATTENDING) + split.get(group.attention, recurrent)
    widths += [m.intermediate] * ("dense" in group.mlp) + [m.shared_intermediate] * group.is_routed
    return all(width % tp == 0 for width in widths) and (replicated % tp == 0 or tp % replicated == 0)


def tensor_degrees(model):
    """Tensor-parallel degrees that divide the model."""

    def fits(tp):
        if is_parameter_count(model):
            kv = model.n_kv_heads or tp
            return kv % tp == 0 or tp % kv == 0
        return all(_splits(model, group, tp) for group in (*model.groups, *model.mtp))

    return [tp for tp in (1, 2, 3, 4, 6, 8, 12, 16, 32) if fits(tp)]


def expert_degrees(model, n):
    """Expert-parallel degrees that divide n GPUs, the experts and their width; 1 for a dense model."""
    if not model.is_moe:
        return [1]
    return [
        ep
        for ep in range(1, n + 1)
        if n % ep == 0 and model.n_experts % ep == 0 and model.expert_intermediate % (n // ep) == 0
    ]


def draw_drafter(rng, model, tp, dp, ep):
    """What drafts: mostly the model's own module where it has one, or a draft model that the layout can split."""
    if getattr(model, "mtp", ()) and rng.random() < 0.5:
        return "mtp"
    able = [d for d in DRAFTERS if tp in tensor_degrees(d) and (not d.is_moe or ep in expert_degrees(d, tp * dp))]
    return rng.choice([*able, "free", "mtp" if rng.random() < 0.2 else rng.choice(DRAFTERS)])


def draw_layout(rng, model, kind):
    """(tp, dp, ep) of one of LAYOUTS, valid more often than not."""
    if kind == "one":
        return 1, 1, 1
    degrees = tensor_degrees(model)
    tp = rng.choice(degrees) if rng.random() < 0.9 else rng.choice((3, 5, 7, 16))
    if kind == "tensor":
        return (tp if tp > 1 else degrees[-1]), 1, 1
    if kind == "data":
        return tp, rng.choice((2, 3, 4, 8, 16)), 1
    if not model.is_moe:
        return rng.choice([(tp, 16, 1), (tp, 32, 1), (tp, 72, 1), (tp, 2, 2), (7, 2, 1)])
    dp = rng.choice((1, 2, 4, 6, 8, 16, 32))
    valid = [ep for ep in expert_degrees(model, tp * dp) if ep > 1]
    return (tp, dp, rng.choice(valid)) if valid and rng.random() < 0.95 else (tp, dp, rng.choice((2, 5, 16)))


def draw_options(rng, model, tp, dp, ep):
    """Every field at its default or at random."""
    wide = [tp * r for r in range(1, dp + 1) if dp % r == 0] + ([3 * tp] if rng.random() < 0.1 else [])
    fractions = [0.0, 1.0, rng.random()]
    drawn = {
        "granularity": rng.choice(["kernel", "component"]),
        "activation_traffic": rng.choice(["gemm", "none"]),
        "small_ops": rng.choice(["none", "flops", "memory"]),
        "causal": rng.random() < 0.5,
        "mla": rng.choice(["absorbed", "expanded"]),
        "include": tuple(p for p in ("layers", "embedding", "lm_head") if rng.random() < 0.6) or ("layers",),
        "cached_tokens": rng.choice([1, 500, 700, rng.randrange(5000)]),
        "overlap_tp": rng.choice(fractions),
        "overlap_ep": rng.choice(fractions),
        "micro_batches": rng.randint(1, 4),
        "expert_comm": "all_reduce" if dp == 1 or rng.random() < 0.1 else "all_to_all",
        "dispatch_copies": rng.choice(["auto", "expert", "rank", "node"]),
        "max_nodes": rng.choice([None, 1, 2, 4]),
        "redundant_experts": ep * rng.randint(0, 2) + (rng.random() < 0.05),
        "imbalance": rng.choice([1.0, 1 + rng.random()]),
        "distinct_factor": rng.choice([1.0, 1 - rng.random() / 2]),
        "dense_tp": rng.choice([None, *wide]),
        "shared_tp": rng.choice([None, *wide]),
        "lm_head_tp": rng.choice([None, *wide]),
        "hierarchy": rng.choice(["max", "sum"]),
        "on_infeasible": rng.choice(["mask", "clip", "clip", "ignore"]),
        "memory_base": rng.choice(["total", "free_at_start", "free_after_load"]),
        "memory_fraction": 1 - rng.uniform(0, 0.5),
        "reserve_bytes": rng.choice([0.0, rng.uniform(0, 1e10)]),
        "used_at_start_bytes": rng.choice([0.0, rng.uniform(0, 5e9)]),
        "draft_tokens": rng.randint(0, 5),
        "acceptance": rng.random(),
        "drafter": draw_drafter(rng, model, tp, dp, ep),
    }
    if model.is_moe and model.n_experts / ep <= 16:
        drawn["expert_load"] = rng.choice(["mean", "busiest"])
    chance = rng.choice([0.0, 0.4, 0.8])
    return Options(**{name: value for name, value in drawn.items() if rng.random() < chance})


def draw_point(rng, kind, phase, layout, precision):
    """A point of one stratum."""
    model = rng.choice(MODELS[kind])
    tp, dp, ep = draw_layout(rng, model, layout)
    precision = draw_precision(rng, precision)
    batch = 0 if rng.random() < 0.01 else int(10 ** rng.uniform(0, 3.3))
    seq_len = 0 if rng.random() < 0.01 else int(10 ** rng.uniform(0, 4.5))
    gpu = draw_gpu(rng, precision, tp * dp)
    efficiency = draw_efficiency(rng) if rng.random() < 0.7 else IDEAL
    return Point(
        model, gpu, precision, efficiency, draw_options(rng, model, tp, dp, ep), phase, batch, seq_len, tp, dp, ep
    )
