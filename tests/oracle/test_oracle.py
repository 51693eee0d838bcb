"""The engine agrees with the scalar oracle: at thousands of random points, and at every point of whole grids."""

import functools
import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.engine.validity import BOTTLENECKS, CODES
from tests.helpers import oracle, points
from tests.helpers.agreement import TIMED, describe, differences, evaluated, expected, from_engine, plain_model

SEED = 20261
PER_STRATUM = {"bf16": 16, "fp8": 16, "fp8-kv8": 16, "w4a16": 16, "nvfp4": 6}

# ---- single points


@functools.cache
def sample():
    """(stratum, point) with a fixed seed."""
    rng = random.Random(SEED)
    strata = itertools.product(points.KINDS, ("prefill", "decode"), points.LAYOUTS, PER_STRATUM)
    return [(s, points.draw_point(rng, *s)) for s in strata for _ in range(PER_STRATUM[s[-1]])]


@functools.cache
def expected_sample():
    """The oracle's answers to the sample."""
    return [expected(point) for _, point in sample()]


def test_sample_covers_everything():
    drawn, statuses = Counter(s for s, _ in sample()), Counter(want["status"] for want in expected_sample())
    strata = itertools.product(points.KINDS, ("prefill", "decode"), points.LAYOUTS, PER_STRATUM)
    assert all(drawn[s] >= PER_STRATUM[s[-1]] for s in strata)
    assert sum(drawn.values()) >= 2000
    assert set(statuses) == set(CODES) - {"top_k_beyond_experts"}
    timed = Counter(s for (s, _), want in zip(sample(), expected_sample(), strict=True) if want["status"] in TIMED)
    assert sum(timed.values()) >= 2000
    # a dense model's "expert" layouts are multi-node or invalid, and few accelerators multiply in fp4
    assert all(timed[s] >= 1 for s in drawn if s[-1] != "nvfp4")
    assert {want["bottleneck"] for want in expected_sample()} >= set(BOTTLENECKS)


@pytest.mark.parametrize("kind", points.KINDS)
def test_points_agree(kind):
    wrong = []
    for number, ((stratum, point), want) in enumerate(zip(sample(), expected_sample(), strict=True)):
        if stratum[0] == kind:
            dtype = "float32" if number % 4 == 0 else "float64"
            wrong += [f"{number} {describe(point)}: {d}" for d in differences(from_engine(point, dtype), want, dtype)]
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])


EDGES = {
    "one reachable node holds fewer experts than top_k": ("mixtral-8x7b", "decode", (4, 32, 8), {"max_nodes": 1}),
    "window without a causal mask": ("windowed", "prefill", (1, 1, 1), {"causal": False}),
    "chunk without a causal mask": ("chunked", "prefill", (1, 1, 1), {"causal": False, "cached_tokens": 500}),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_agree(name):
    model, phase, (tp, dp, ep), more = EDGES[name]
    options = cx.Options(dispatch_copies="node", on_infeasible="ignore", **more)
    records = (record_of("model", model), record_of("gpu", "h200-sxm"), points.PRECISIONS["fp8"], points.IDEAL)
    point = points.Point(*records, options, phase, 8, 1501, tp, dp, ep)
    assert not differences(from_engine(point, "float64"), expected(point))


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_missing_peak_does_not_depend_on_the_length(phase):
    """At one token there is no entry to score, and the type of the scores is still one that the accelerator lacks."""
    precision = points.PRECISIONS["bf16"].model_copy(update={"name": "fp8-scores", "indexer_compute": "fp8"})
    records = (record_of("model", "deepseek-v4-flash"), record_of("gpu", "a100-sxm-80gb"), precision, points.IDEAL)
    for seq_len in (1, 1000):
        point = points.Point(*records, cx.Options(on_infeasible="ignore"), phase, 1, seq_len, 1, 1, 1)
        assert from_engine(point, "float64")["status"] == CODES["no_peak"]
        assert not differences(from_engine(point, "float64"), expected(point))


# ---- whole grids


def along(dim, **columns):
    """Columns that share a dim."""
    return {name: xr.DataArray(values, dims=dim) for name, values in columns.items()}


DRAFT = {record.name: record for record in points.DRAFTERS}
GRIDS = {
    "dense": {
        "model": ["llama-3.1-8b", "windowed", "chunked"],
        "gpu": ["h100-sxm", "mi300x", "a10"],
        "precision": ["bf16", "fp8"],
        "phase": ["prefill", "decode"],
        "efficiency": "random",
        "tp": [1, 2, 3, 8],
        "batch": [1, 7, 300],
        "seq_len": [1, 700, 9001],
        "options": cx.Options(small_ops="flops", draft_tokens=2, cached_tokens=100),
    },
    "experts": {
        "model": ["deepseek-v3", "moe-window"],
        "gpu": ["h200-sxm", "gb200-nvl72"],
        "phase": ["decode", "prefill"],
        "precision": ["fp8"],
        "efficiency": "random",
        **along("layout", tp=[1, 2, 4, 8, 4], dp=[8, 8, 4, 2, 4], ep=[8, 8, 16, 1, 3]),
        "batch": [1, 2000],
        "seq_len": [2048, 3],
        "overrides": {"model.top_k": [1, 4, 20], "options.overlap_ep": [0.0, 0.7]},
        "scales": {"gpu.nic_bandwidth": [0.5, 2.0]},
        "options": cx.Options(micro_batches=2, on_infeasible="ignore", overlap_tp=0.3, granularity="component"),
    },
    "clipped": {
        "model": ["qwen3-32b"],
        "gpu": ["h100-sxm", "mesh"],
        "phase": ["prefill", "decode"],
        "precision": ["w4a16", "bf16"],
        "efficiency": "random",
        "tp": [2, 4],
        "dp": [1, 4],
        **along("workload", batch=[1, 64, 4096], seq_len=[32768, 4000, 512]),
        "overrides": {"model.n_kv_heads": [2, 8, 3], "precision.kv_bytes": [0.5, 2.0], "options.dense_tp": [4, 8]},
        "scales": {"gpu.hbm_bandwidth": [0.1, 3.0]},
        "options": cx.Options(on_infeasible="clip", small_ops="memory", lm_head_tp=4, memory_base="free_after_load"),
    },
}
GRIDS |= {
    "recurrent": {
        "model": ["deltanet", "kda", "mamba"],
        "gpu": ["h200-sxm", "six"],
        "phase": ["prefill", "decode"],
        "precision": ["fp8"],
        "efficiency": "random",
        "tp": [1, 4, 6],
        "batch": [3, 300],
        "seq_len": [1, 150, 9001],
        "overrides": {
            "model.linear_chunk": [16, 200],
            "precision.state_bytes": [2.0, 4.0],
            "options.draft_tokens": [0, 3],
        },
        "options": cx.Options(drafter=DRAFT["draft-dense"], small_ops="flops", on_infeasible="clip"),
    },
    "sparse": {
        "model": ["sparse-mla", "sparse-dense"],
        "gpu": ["h200-sxm"],
        "phase": ["decode", "prefill"],
        "precision": ["fp8", "bf16"],
        "efficiency": "random",
        "tp": [1, 2],
        "batch": [1, 50],
        "seq_len": [2048, 30],
        "overrides": {
            "model.index_top_k": [1, 64, 4096],
            "model.index_heads": [1, 40],
            "precision.index_bytes": [0.5, 2.0],
        },
        "options": cx.Options(drafter="mtp", draft_tokens=2, cached_tokens=99, small_ops="memory", micro_batches=2),
    },
    "compressed": {
        "model": ["compressed-moe"],
        "gpu": ["h200-sxm", "gb200-nvl72"],
        "phase": ["decode", "prefill"],
        "precision": ["bf16", "nvfp4"],
        "efficiency": "random",
        **along("layout", tp=[1, 2, 1, 8, 16], dp=[8, 2, 1, 1, 1], ep=[8, 4, 1, 1, 1]),
        "batch": [1, 2000],
        "seq_len": [2048, 30, 7],
        "overrides": {"model.compress": [3, 100], "model.window": [1, 300], "model.residual_streams": [1, 5]},
        "options": cx.Options(drafter="mtp", draft_tokens=1, cached_tokens=50, on_infeasible="ignore", causal=False),
    },
    "hybrid experts": {
        "model": ["mamba-latent", "everything", "kda-latent"],
        "gpu": ["h200-sxm"],
        "phase": ["decode", "prefill"],
        "precision": ["fp8"],
        "efficiency": "random",
        **along("layout", tp=[1, 2, 1, 3, 4], dp=[4, 2, 1, 2, 1], ep=[4, 2, 1, 3, 4]),
        "batch": [1, 30, 900],
        "seq_len": [1000, 3],
        "overrides": {
            "model.expert_hidden": [100, 2000],
            "model.shared_intermediate": [0, 4800],
            "options.dense_tp": [4, 6],
        },
        "options": cx.Options(drafter=DRAFT["draft-moe"], draft_tokens=3, on_infeasible="ignore", small_ops="flops"),
    },
}
RANDOM = points.draw_efficiency(random.Random(3))
LAUNCHING = points.draw_efficiency(random.Random(4)).model_copy(
    update={
        "name": "launching",
        "launch_gemm": 3e-6,
        "launch_attn_core": 5e-6,
        "launch_routed_experts": 7e-6,
        "launch_routed_experts_fp4": 11e-6,
        "launch_routed_experts_w4": 13e-6,
        "memory_routed_experts_w4": 0.4,
        "compute_routed_experts_grouped": 0.37,
    }
)
PLAIN = LAUNCHING.model_copy(
    update={
        "name": "plain",
        "launch_routed_experts_fp4": None,
        "launch_routed_experts_w4": None,
        "memory_routed_experts_w4": None,
        "compute_routed_experts_grouped": None,
    }
)
MADE = (*points.SYNTHETIC, *points.GPUS, points.IDEAL, RANDOM, LAUNCHING, PLAIN)
INLINE = {record.name: record for record in MADE}
GRIDS |= {
    "launches": {
        "model": ["deepseek-v3", "compressed-moe", "everything"],
        "gpu": ["b200-sxm"],
        "phase": ["decode", "prefill"],
        "precision": ["bf16", "fp8", "nvfp4", "mxfp4-experts", "mxfp4-experts-in8"],
        "efficiency": ["launching", "plain", "ideal"],
        **along("layout", tp=[1, 2], dp=[8, 4], ep=[8, 1]),
        "batch": [64],
        "seq_len": [2048, 30],
        "overrides": {"options.micro_batches": [1, 3], "precision.experts_weight_bytes": [0.99, 1.0]},
        "options": cx.Options(drafter="mtp", draft_tokens=2, on_infeasible="ignore"),
    },
    "launches of a sparse draft": {
        "model": ["sparse-mla", "sparse-dense"],
        "gpu": ["b200-sxm"],
        "phase": ["decode", "prefill"],
        "precision": ["w4a16", "fp8-fp4-experts"],
        "efficiency": ["launching", "plain"],
        "tp": [1, 2],
        "batch": [3],
        "seq_len": [2048, 30],
        "overrides": {
            "model.index_top_k": [64, 4096],
            "efficiency.launch_gemm": [0.0, 2e-6],
            "efficiency.compute_fp8": [0.5, 1.0],
            "options.draft_tokens": [0, 2],
        },
        "options": cx.Options(drafter=DRAFT["draft-moe"], on_infeasible="ignore"),
    },
}


@functools.cache
def record_of(kind, name):
    """Return a record by its name; files are read once."""
    return INLINE[name] if name in INLINE else getattr(cx, f"load_{kind}")(name)


def grid_arguments(grid):
    """Arguments of `evaluate`, names of synthetic records replaced by the records."""
    args = dict(grid)
    for kind in ("model", "gpu", "precision", "efficiency"):
        names = args[kind]
        args[kind] = [record_of(kind, n) for n in names] if isinstance(names, list) else record_of(kind, names)
    return args


def user_dims(grid):
    """(record, field, coordinate, whether it scales) of each override and scale."""
    for key in grid.get("overrides", {}):
        record, name = key.split(".")
        yield record, name, name, False
    for key in grid.get("scales", {}):
        record, name = key.split(".")
        yield record, name, f"{name}_scale", True


def grid_point(grid, labels):
    """The point with these coordinates."""
    records = {k: record_of(k, labels[k]) for k in ("model", "gpu", "precision", "efficiency")}
    records["options"] = grid["options"]
    for record, name, label, scales in user_dims(grid):
        value = labels[label]
        if scales:
            known = getattr(records[record], name)
            value = None if known is None else value * known
        records[record] = records[record].with_numbers({name: value})
    return points.Point(**records, **{k: labels[k] for k in ("phase", "batch", "seq_len", "tp", "dp", "ep")})


def plain(value):
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", GRIDS)
def test_grids_agree(name):
    ds = evaluated(**grid_arguments(GRIDS[name]), dtype="float32")
    wrong, checked = [], Counter()
    values = {v: variable.set_dims(ds.sizes).values for v, variable in ds.variables.items()}
    for index in np.ndindex(values["status"].shape):
        at = {v: plain(value[index]) for v, value in values.items()}
        point = grid_point(GRIDS[name], at)
        want = expected(point)
        checked[want["status"]] += 1
        wrong += [f"{describe(point)}: {d}" for d in differences(at, want, "float32")]
    assert checked["ok"] + checked["clipped"] >= 300
    assert not wrong, f"{len(wrong)} differences in {sum(checked.values())} points\n" + "\n".join(wrong[:20])


# ---- parameters


@pytest.mark.parametrize("model", points.CATALOGUE + points.SYNTHETIC + points.DRAFTERS, ids=lambda m: m.name)
def test_parameters_agree(model):
    assert model.n_parameters == oracle.n_parameters(plain_model(model))
    assert model.n_parameters_active == oracle.n_parameters_active(plain_model(model))
    if not points.is_parameter_count(model):
        assert model.n_parameters_mtp == oracle.n_parameters_mtp(plain_model(model))


def test_differences_are_seen():
    """The comparison itself: a number that is off by little is reported."""
    point = replace(sample()[0][1], batch=4, seq_len=100, options=cx.Options(on_infeasible="ignore"))
    got, want = from_engine(point, "float64"), expected(point)
    assert not differences(got, want)
    assert differences(got | {"step_time": got["step_time"] * 1.0001}, want)
    assert differences(got | {"flops": got["flops"] * (1 + 1e-11)}, want)
    assert differences(got | {"status": CODES["no_nic"]}, want)
