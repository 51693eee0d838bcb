"""Random points of the cost model for the tests: records, layouts, options and workloads from one generator."""

from dataclasses import dataclass
from typing import Any

import cheetah_xr as cx
from cheetah_xr.specs.efficiency import Efficiency
from cheetah_xr.specs.layers import RECURRENT
from cheetah_xr.specs.options import Options

KINDS = (
    "dense_gqa",
    "dense_odd",
    "moe_gqa",
    "moe_mla",
    "lumped",
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


def _group(count, attention="gqa", mlp="dense", **more):
    return {"count": count, "attention": attention, "mlp": mlp, **more}


_GQA = {"hidden": 1536, "vocab": 50257, "n_heads": 12, "n_kv_heads": 3, "head_dim": 80, "intermediate": 5000}
_MOE = {"n_experts": 12, "top_k": 3, "expert_intermediate": 960}
_MLA = {
    "hidden": 2048,
    "vocab": 102400,
    "n_heads": 16,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 96,
    "qk_rope_head_dim": 48,
    "v_head_dim": 80,
    "intermediate": 10944,
    "n_experts": 64,
    "top_k": 6,
    "expert_intermediate": 1408,
}
_EVEN = {**_GQA, "n_heads": 24, "n_kv_heads": 6, "intermediate": 4800}
_INDEX = {"index_heads": 5, "index_dim": 40, "index_top_k": 300}
_COMPRESSED = {
    "hidden": 1024,
    "vocab": 129280,
    "n_heads": 16,
    "head_dim": 192,
    "q_lora_rank": 384,
    "qk_rope_head_dim": 32,
    "o_groups": 8,
    "o_lora_rank": 160,
    "intermediate": 2880,
}
_RECURRENT = {
    "linear_key_heads": 8,
    "linear_value_heads": 16,
    "linear_key_dim": 96,
    "linear_value_dim": 80,
    "linear_conv": 4,
}
_MAMBA = {
    "linear_key_heads": 2,
    "linear_value_heads": 48,
    "linear_key_dim": 112,
    "linear_value_dim": 64,
    "linear_conv": 4,
    "linear_conv_bias": True,
    "linear_chunk": 200,
}
MADE_UP = [
    cx.Model(name="windowed", **_GQA, max_seq_len=20000, groups=[_group(5, window=512), _group(1)]),
    cx.Model(name="chunked", **_GQA, gated=False, tie_embeddings=True, groups=[_group(3, chunk=700), _group(1)]),
    cx.Model(name="narrow", **_GQA, qk_norm="head", qkv_bias=True, groups=[_group(2, window=1), _group(2, chunk=1)]),
    cx.Model(name="multi-query", **{**_GQA, "n_kv_heads": 1, "vocab": 99991}, gated=False, groups=[_group(7)]),
    cx.Model(name="moe-window", **_GQA, **_MOE, groups=[_group(4, mlp="moe", window=128), _group(4, mlp="moe")]),
    cx.Model(
        name="moe-plain",
        **_GQA,
        **{**_MOE, "top_k": 12},
        gated=False,
        router_bias=True,
        shared_intermediate=1920,
        max_seq_len=4096,
        groups=[_group(1), _group(3, mlp="moe", chunk=333)],
    ),
    cx.Model(
        name="mla-direct",
        **_MLA,
        shared_intermediate=2816,
        groups=[_group(1, "mla"), _group(5, "mla", "moe")],
    ),
    cx.Model(
        name="mla-mixed",
        **{**_MLA, "n_experts": 8, "top_k": 1},
        n_kv_heads=4,
        head_dim=128,
        q_lora_rank=700,
        gated=False,
        tie_embeddings=True,
        groups=[_group(2, "mla"), _group(1, "gqa", "moe", window=1000, v_head_dim=128), _group(3, "mla", "moe")],
    ),
    # grouped-query attention with gates, sinks, narrow values, and widths of a group's own
    cx.Model(
        name="gated",
        **_EVEN,
        v_head_dim=48,
        output_gate=True,
        rotary=0.5,
        qk_norm="full",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        groups=[
            _group(3, window=200, sinks=True, n_kv_heads=12),
            _group(2, head_dim=128, v_head_dim=128, rotary=0.25, sinks=True, intermediate=7200, extra_parameters=77),
        ],
    ),
    cx.Model(
        name="shared-cache",
        **_EVEN,
        qk_norm="head",
        qkv_bias=True,
        norms_per_layer=4,
        tie_embeddings=True,
        vision_parameters=400_000_001,
        groups=[
            _group(2, window=512),
            _group(1, k_eq_v=True, n_kv_heads=3, head_dim=160, rotary=0.0),
            _group(4, window=512, kv_shared=True, intermediate=9600),
            _group(1, kv_shared=True, n_kv_heads=3, head_dim=160, norms_per_layer=3),
        ],
    ),
    cx.Model(name="parallel", **_EVEN, parallel_blocks=True, norms_per_layer=2, gated=False, groups=[_group(6)]),
    cx.Model(
        name="parallel-halves",
        **_EVEN,
        parallel_blocks=True,
        groups=[_group(2), _group(3, mlp="none"), _group(2, "none"), _group(1, window=50)],
    ),
    cx.Model(
        name="streams", **_EVEN, residual_streams=3, extra_parameters=1234, groups=[_group(2), _group(2, chunk=64)]
    ),
    cx.Model(
        name="beside-dense",
        **_EVEN,
        **_MOE,
        mlp_bias=True,
        router_bias=True,
        groups=[_group(3, mlp="moe+dense", window=1024), _group(1, mlp="moe+dense", k_eq_v=True, intermediate=2400)],
        mtp=[_group(1, mlp="moe+dense")],
    ),
    # sparse attention
    cx.Model(
        name="sparse-mla",
        **_MLA,
        **_INDEX,
        q_lora_rank=640,
        rotary=0.75,
        output_gate=True,
        shared_intermediate=2816,
        router_bias=True,
        groups=[
            _group(1, "mla", indexer="own"),
            _group(2, "mla", "moe", indexer="own"),
            _group(3, "mla", "moe", indexer="shared"),
        ],
        mtp=[_group(1, "mla", "moe", indexer="own")],
        mtp_embeddings=True,
    ),
    cx.Model(
        name="sparse-gqa",
        **_EVEN,
        **_MOE,
        **{**_INDEX, "index_top_k": 1},
        v_head_dim=112,
        qk_norm="head",
        shared_intermediate=2880,
        shared_gate=True,
        groups=[_group(1), _group(2, mlp="moe", indexer="own"), _group(1, mlp="moe", indexer="shared", sinks=True)],
    ),
    cx.Model(
        name="sparse-dense",
        **_EVEN,
        **{**_INDEX, "index_top_k": 2048},
        output_gate=True,
        groups=[_group(3, indexer="own"), _group(2, indexer="shared", kv_shared=True), _group(1, window=77)],
        mtp=[_group(2, indexer="own"), _group(1)],
    ),
    # compressed attention
    cx.Model(
        name="compressed-moe",
        **_COMPRESSED,
        **{**_INDEX, "index_top_k": 64},
        n_experts=16,
        top_k=2,
        expert_intermediate=768,
        shared_intermediate=768,
        router_bias=True,
        residual_streams=4,
        groups=[
            _group(2, "compressed", "moe", window=100, hash_routing=True),
            _group(2, "compressed", "moe", window=100, compress=4, indexer="own"),
            _group(3, "compressed", "moe", window=100, compress=128),
        ],
        mtp=[_group(1, "compressed", "moe", window=100)],
    ),
    cx.Model(
        name="compressed-dense",
        **_COMPRESSED,
        **{**_INDEX, "index_top_k": 7},
        rotary=0.5,
        max_seq_len=16384,
        groups=[
            _group(1, "compressed", window=1),
            _group(2, "compressed", window=33, compress=7, indexer="own"),
            _group(2, "compressed", window=33, compress=7, indexer="own"),
            _group(1, "compressed", window=4096, compress=100),
        ],
    ),
    # recurrent mixers
    cx.Model(
        name="deltanet",
        **_EVEN,
        **{**_RECURRENT, "linear_key_heads": 12, "linear_value_heads": 24},
        output_gate=True,
        rotary=0.25,
        groups=[_group(6, "deltanet"), _group(2)],
        mtp=[_group(1)],
    ),
    cx.Model(
        name="kda",
        **_MLA,
        **{**_RECURRENT, "linear_value_heads": 8, "linear_conv_bias": True, "linear_gate_rank": 60},
        rotary=0.0,
        output_gate=True,
        gated=False,
        groups=[_group(3, "kda"), _group(1, "mla"), _group(2, "kda", "none")],
        mtp=[_group(1, "kda")],
    ),
    cx.Model(
        name="mamba",
        **{**_GQA, "n_heads": 24, "n_kv_heads": 8, "intermediate": 6144},
        **_MAMBA,
        gated=False,
        groups=[_group(5, "mamba2", "none"), _group(1, mlp="none"), _group(4, "none"), _group(1, "mamba2")],
    ),
    cx.Model(
        name="mamba-only",
        hidden=1000,
        vocab=50000,
        **{**_MAMBA, "linear_key_heads": 1, "linear_conv": 1},
        max_seq_len=30000,
        groups=[_group(8, "mamba2", "none")],
    ),
    cx.Model(
        name="lightning-conv",
        **_EVEN,
        **{**_RECURRENT, "linear_key_heads": 12, "linear_value_heads": 24, "linear_chunk": 256, "linear_conv": 3},
        residual_streams=2,
        groups=[_group(4, "lightning"), _group(1, window=300, intermediate=4320), _group(1, "lightning", "none")],
    ),
    # hybrids with experts
    cx.Model(
        name="deltanet-moe",
        **{**_GQA, "n_heads": 16, "n_kv_heads": 2},
        **{**_RECURRENT, "linear_conv_bias": True},
        **{**_MOE, "n_experts": 48},
        output_gate=True,
        shared_intermediate=960,
        shared_gate=True,
        vision_parameters=123_456_789,
        groups=[_group(3, "deltanet", "moe"), _group(1, mlp="moe")],
        mtp=[_group(1, mlp="moe")],
    ),
    cx.Model(
        name="mamba-latent",
        **{**_GQA, "n_heads": 16, "n_kv_heads": 2},
        **_MAMBA,
        n_experts=60,
        top_k=11,
        expert_intermediate=1344,
        expert_hidden=500,
        shared_intermediate=2688,
        gated=False,
        groups=[_group(4, "mamba2", "none"), _group(1, mlp="none"), _group(4, "none", "moe"), _group(1, "none")],
        mtp=[_group(1, mlp="none"), _group(1, "none", "moe")],
    ),
    cx.Model(
        name="kda-latent",
        **{**_MLA, "n_experts": 32},
        **{**_RECURRENT, "linear_value_heads": 8, "linear_chunk": 33},
        q_lora_rank=300,
        output_gate=True,
        expert_hidden=1024,
        groups=[_group(1, "kda"), _group(3, "kda", "moe"), _group(1, "mla", "moe")],
    ),
    cx.Model(
        name="lightning-moe",
        **{**_GQA, "n_heads": 16, "n_kv_heads": 4},
        **{**_RECURRENT, "linear_conv": 0, "linear_chunk": 256},
        **_MOE,
        groups=[_group(7, "lightning", "moe"), _group(1, mlp="moe"), _group(1, "lightning", "moe+dense")],
        mtp=[_group(1, "lightning", "moe", extra_parameters=5)],
    ),
    cx.Model(
        name="everything",
        **{**_GQA, "n_heads": 16, "n_kv_heads": 4},
        **_RECURRENT,
        **{**_MOE, "n_experts": 24},
        **_INDEX,
        residual_streams=2,
        expert_hidden=700,
        shared_intermediate=1920,
        groups=[
            _group(2, "deltanet", "moe+dense"),
            _group(1, indexer="own", mlp="moe", intermediate=3000),
            _group(1, "none", "moe+dense", intermediate=2000),
            _group(1, mlp="none", v_head_dim=32),
            _group(1, "mamba2"),
        ],
    ),
    cx.LumpedModel(name="lumped-cache", n_parameters=7.1e9, n_layers=30, n_kv_heads=6, head_dim=100, max_seq_len=9000),
    cx.LumpedModel(name="lumped-wide", n_parameters=65e9, n_layers=80, n_kv_heads=8, head_dim=128, hidden=8192),
    cx.LumpedModel(name="lumped-hidden", n_parameters=1.3e9, n_layers=24, hidden=2048),
]


DRAFTERS = [
    cx.LumpedModel(name="draft-lumped", n_parameters=5e8, n_layers=12, n_kv_heads=4, head_dim=64, hidden=1024),
    cx.LumpedModel(name="draft-bare", n_parameters=1.1e9),
    cx.Model(
        name="draft-dense",
        hidden=512,
        vocab=50257,
        n_heads=16,
        n_kv_heads=4,
        head_dim=32,
        intermediate=1536,
        tie_embeddings=True,
        vision_parameters=1_000_000,
        groups=[_group(2, window=256), _group(1)],
    ),
    cx.Model(
        name="draft-moe",
        hidden=640,
        vocab=102400,
        n_heads=48,
        n_kv_heads=48,
        head_dim=16,
        n_experts=48,
        top_k=2,
        expert_intermediate=960,
        shared_intermediate=384,
        groups=[_group(3, mlp="moe")],
    ),
    cx.Model(
        name="draft-hybrid",
        hidden=768,
        vocab=32000,
        **{**_RECURRENT, "linear_key_heads": 12, "linear_value_heads": 12},
        n_heads=12,
        n_kv_heads=12,
        head_dim=64,
        intermediate=3072,
        max_seq_len=9000,
        groups=[_group(3, "deltanet"), _group(1)],
    ),
]


def is_lumped(model):
    return isinstance(model, cx.LumpedModel)


def kind_of(model):
    """Which of KINDS a model is."""
    if is_lumped(model):
        return "lumped"
    if any(g.attention == "compressed" for g in model.groups):
        return "compressed"
    if model.is_recurrent:
        return "hybrid_moe" if model.is_moe else "recurrent"
    if any(g.indexer != "none" for g in model.groups):
        return "sparse"
    if model.is_moe:
        return "moe_mla" if any(g.attention == "mla" for g in model.groups) else "moe_gqa"
    return "dense_odd" if model in MADE_UP else "dense_gqa"


CATALOGUE = [cx.load_model(name) for name in cx.list_models()]
MODELS = {kind: [m for m in (*CATALOGUE, *MADE_UP) if kind_of(m) == kind] for kind in KINDS}

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
        if is_lumped(model):
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
    share = [0.0, 1.0, rng.random()]
    drawn = {
        "granularity": rng.choice(["kernel", "component"]),
        "activation_traffic": rng.choice(["gemm", "none"]),
        "small_ops": rng.choice(["none", "flops", "memory"]),
        "causal": rng.random() < 0.5,
        "mla": rng.choice(["absorbed", "expanded"]),
        "include": tuple(p for p in ("layers", "embedding", "lm_head") if rng.random() < 0.6) or ("layers",),
        "cached_tokens": rng.choice([1, 500, 700, rng.randrange(5000)]),
        "overlap_tp": rng.choice(share),
        "overlap_ep": rng.choice(share),
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
