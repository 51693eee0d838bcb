"""Launches of kernels, counted by hand from docs/explanation/cost-model.md, their times, and efficiencies by precision.

A GEMM is launched in 1 s, an attention core in 100 s, routed experts in 10,000 s, so that the digits of a sum tell how
often each is; everything else takes microseconds at most.
"""

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.specs import LAUNCHED
from tests.helpers.hand_computed import BYTES, GPU, GQA, INDEX, MLA, layers
from tests.helpers.rejection import rejected

FREE = cx.load_efficiency("ideal")
LAUNCHES = FREE.with_numbers(
    {"name": "launches", "launch_gemm": 1.0, "launch_attn_core": 100.0, "launch_routed_experts": 10_000.0}
)
NEVER_LAUNCHED = {"embedding", "lm_head", "small_ops"}


def counted(model, phase="decode", seq_len=100, *, batch=1, tp=1, dp=1, ep=1, overrides=None, **options):
    """(GEMMs, attention cores, routed experts) launched in one pass: what they add to a pass, all of it overhead."""
    runs = [
        cx.evaluate(
            model, GPU, BYTES, phase=phase, seq_len=seq_len, batch=batch, tp=tp, dp=dp, ep=ep, efficiency=efficiency,
            options=cx.Options(on_infeasible="ignore", **options), overrides=overrides, dtype="float64",
        )
        for efficiency in (FREE, LAUNCHES)
    ]  # fmt: skip
    added = runs[1] - runs[0]
    np.testing.assert_allclose(added["step_time"], added["time_overhead"], rtol=1e-9)
    for part in ("compute", "weights", "kv", "activations", "communication"):
        assert (added[f"time_{part}"] == 0).all()
    seconds = np.round(added["step_time"].values, 6)
    counts = seconds % 100, seconds // 100 % 100, seconds // 10_000
    return tuple(c.item() if c.ndim == 0 else c.tolist() for c in counts)


def test_every_kernel_has_a_class_or_none():
    assert set(LAUNCHED) | NEVER_LAUNCHED == set(cx.specs.KERNELS)
    assert not set(LAUNCHED) & NEVER_LAUNCHED


# ---- what is launched in a layer

DENSE = {"intermediate": 20}
MOE = {"n_experts": 4, "top_k": 2, "expert_intermediate": 12}
COMPRESSED = GQA | INDEX | {"n_kv_heads": 1, "q_lora_rank": 6, "o_groups": 2, "o_lora_rank": 3, "qk_rope_head_dim": 2}
LINEAR = {
    "linear_key_heads": 2,
    "linear_value_heads": 4,
    "linear_key_dim": 3,
    "linear_value_dim": 5,
    "linear_conv": 4,
    "linear_chunk": 8,
}
PER_LAYER = {
    # queries, keys and values; output
    "gqa": (("gqa", "none", {}), GQA, "decode", (2, 1, 0)),
    "gqa prefill": (("gqa", "none", {}), GQA, "prefill", (2, 1, 0)),
    "an output gate is in the first": (("gqa", "none", {}), GQA | {"output_gate": True}, "decode", (2, 1, 0)),
    "queries alone": (("gqa", "none", {"kv_shared": True}), GQA, "decode", (2, 1, 0)),
    # and index queries with their keys; index scores
    "gqa with an indexer": (("gqa", "none", {"indexer": "own"}), GQA | INDEX, "decode", (3, 2, 0)),
    "gqa with another's choice": (("gqa", "none", {"indexer": "shared"}), GQA | INDEX, "decode", (2, 1, 0)),
    # both steps down; queries up; keys absorbed; values absorbed; output
    "mla decode": (("mla", "none", {}), MLA, "decode", (5, 1, 0)),
    # both steps down; queries up; keys and values up; output
    "mla prefill": (("mla", "none", {}), MLA, "prefill", (4, 1, 0)),
    # queries; latents; absorbed twice; output
    "mla without a query latent": (("mla", "none", {}), MLA | {"q_lora_rank": 0}, "decode", (5, 1, 0)),
    "mla with a gate": (("mla", "none", {}), MLA | {"output_gate": True}, "decode", (6, 1, 0)),
    "mla with an indexer": (("mla", "none", {"indexer": "own"}), MLA | INDEX, "decode", (6, 2, 0)),
    # both steps down; queries up; entries; index queries; both output steps; scores and index scores
    "compressed": (
        ("compressed", "none", {"window": 8, "compress": 4, "indexer": "own"}),
        COMPRESSED,
        "decode",
        (6, 2, 0),
    ),
    "compressed, all entries": (("compressed", "none", {"window": 8, "compress": 4}), COMPRESSED, "decode", (5, 1, 0)),
    "compressed, window only": (("compressed", "none", {"window": 8}), COMPRESSED, "prefill", (4, 1, 0)),
    "deltanet": (("deltanet", "none", {}), LINEAR, "decode", (2, 1, 0)),
    "mamba2": (("mamba2", "none", {}), LINEAR, "prefill", (2, 1, 0)),
    "lightning": (("lightning", "none", {}), LINEAR | {"linear_conv": 0}, "decode", (2, 1, 0)),
    # in; decay down and up; out; and the gate down and up
    "kda": (("kda", "none", {}), LINEAR, "decode", (4, 1, 0)),
    "kda with a low-rank gate": (("kda", "none", {}), LINEAR | {"linear_gate_rank": 2}, "decode", (6, 1, 0)),
    # gate and up; down
    "dense": (("none", "dense", {}), DENSE, "decode", (2, 0, 0)),
    "dense without a gate": (("none", "dense", {}), DENSE | {"gated": False}, "decode", (2, 0, 0)),
    # router; gate and up, down
    "experts": (("none", "moe", {}), MOE, "decode", (1, 0, 2)),
    "experts without a gate": (("none", "moe", {}), MOE | {"gated": False}, "prefill", (1, 0, 2)),
    "shared experts and their gate": (
        ("none", "moe", {}),
        MOE | {"shared_intermediate": 8, "shared_gate": True},
        "decode",
        (3, 0, 2),
    ),
    # router; to the latent and back
    "latent experts": (("none", "moe", {}), MOE | {"expert_hidden": 6}, "decode", (3, 0, 2)),
    "experts beside a dense MLP": (("none", "moe+dense", {}), MOE | DENSE, "decode", (3, 0, 2)),
    # 2 + 2, and the mixing of streams before attention and before the MLP
    "residual streams": (("gqa", "dense", {}), GQA | DENSE | {"residual_streams": 3}, "decode", (6, 1, 0)),
}


@pytest.mark.parametrize("name", PER_LAYER)
def test_launches_of_a_layer(name):
    (attention, mlp, more), fields, phase, expected = PER_LAYER[name]
    model = layers((attention, mlp, more), **fields)
    assert counted(model, phase) == expected
    # elementwise operations are launched for nothing, however they are counted
    assert counted(model, phase, small_ops="memory") == expected
    operations = cx.operations(model, phase, 100, precision=BYTES, options=cx.Options(small_ops="flops"))
    by_class = {kernel: LAUNCHED.get(kernel) for kernel in operations["kernel"].values.tolist()}
    actual = dict.fromkeys((*LAUNCHED.values(), None), 0)
    for kernel, launches in zip(
        operations["kernel"].values.tolist(), operations["launches"].values.tolist(), strict=True
    ):
        actual[by_class[kernel]] += launches
    assert (actual["launch_gemm"], actual["launch_attn_core"], actual["launch_routed_experts"]) == expected
    assert actual[None] == 0


def test_a_sparse_prefill_launches_the_form_it_uses():
    model = layers(("mla", "none", {"indexer": "own"}), **MLA, **INDEX)
    # up to 7 tokens all are kept: keys and values are rebuilt in one GEMM; above, two absorb them
    gemms, cores, _ = counted(model, "prefill", [7, 8])
    assert (gemms, cores) == ([5, 6], [2, 2])


def test_what_an_axis_switches_off_is_not_launched():
    shared = layers(("none", "moe", {}), **MOE, shared_intermediate=8)
    gemms, _, experts = counted(shared, overrides={"model.shared_intermediate": [0, 8]})
    assert (gemms, experts) == ([1, 3], [2, 2])
    streams = layers(("gqa", "dense", {}), **GQA, **DENSE, residual_streams=3)
    assert counted(streams, overrides={"model.residual_streams": [1, 3]})[0] == [4, 6]


def test_layers_and_micro_batches_multiply_launches():
    model = layers(("gqa", "dense", {"count": 3}), ("gqa", "moe", {"count": 2}), **GQA, **DENSE, **MOE)
    # 3 * (2 + 2) + 2 * (2 + 1) GEMMs, 5 cores, 2 * 2 experts; neither layout nor batch changes that
    assert counted(model) == (18, 5, 4)
    assert counted(model, batch=64, tp=2, dp=2, ep=4) == (18, 5, 4)
    assert counted(model, batch=64, micro_batches=3) == (54, 15, 12)
    assert counted(model, overrides={"options.micro_batches": [1, 2]}, batch=8)[0] == [18, 36]
    assert counted(model, include=("embedding", "lm_head")) == (0, 0, 0)


def test_parameter_count_models_are_one_kernel():
    assert counted(cx.ParameterCountModel(name="count", n_parameters=1000, n_layers=7)) == (1, 0, 0)


def test_drafts_launch_theirs():
    draft = layers(("gqa", "dense", {}), **GQA, **DENSE)
    layer = {"attention": "gqa", "mlp": "dense"}
    model = layers(("gqa", "dense", {"count": 3}), **GQA, **DENSE)
    assert counted(model, drafter=draft, draft_tokens=2) == (3 * 4 + 2 * 4, 3 + 2, 0)
    assert counted(model, "prefill", drafter=draft, draft_tokens=2) == (3 * 4 + 4, 3 + 1, 0)
    groups, mtp = [{"count": 3, **layer}], [{"count": 1, **layer}]
    module = cx.Model(name="module", hidden=10, vocab=100, **GQA, **DENSE, groups=groups, mtp=mtp)
    # the module's layer, and the projection of state and embedding
    assert counted(module, drafter="mtp", draft_tokens=2) == (3 * 4 + 2 * 5, 3 + 2, 0)


# ---- times


def test_a_launch_is_an_efficiency_that_saturates():
    """eta * x / (x + x0) of x bytes is eta and a fixed time x0 / (eta * W) for every launch."""
    model = layers(("none", "dense", {}), **DENSE, gated=False)
    options = cx.Options(include=("layers",), activation_traffic="none")
    eta, x0 = 0.5, 3000.0
    # up and down have 200 bytes each, W is 1e12 B/s; compute never binds: one token
    hand_computed = 2 * 200 / (eta * 200 / (200 + x0) * 1e12)
    efficiency = FREE.with_numbers({"memory_dense_mlp": eta, "launch_gemm": x0 / (eta * 1e12)})
    time = cx.evaluate(model, GPU, BYTES, batch=1, seq_len=100, efficiency=efficiency, options=options, dtype="float64")
    assert time["step_time"].item() == pytest.approx(hand_computed, rel=1e-12)
    assert time["time_overhead"].item() == pytest.approx(2 * x0 / (eta * 1e12), rel=1e-12)


PARTS = [f"time_{part}" for part in ("compute", "weights", "kv", "activations", "communication", "overhead")]
REAL = {
    "launch_gemm": 4e-6,
    "launch_attn_core": 6e-6,
    "launch_routed_experts": 9e-6,
    "launch_routed_experts_fp4": 2e-5,
    "launch_routed_experts_w4": 3e-5,
    "memory_routed_experts_w4": 0.3,
    "compute_fp8": 0.9,
    "compute_fp4": 0.7,
}
DEFAULT = cx.load_efficiency("kernels")
LAUNCHING = DEFAULT.with_numbers({"name": "launching", **REAL})
SPARSE = {"gpu": "b200-sxm", "dp": 8, "ep": 8, "batch": 64, "seq_len": 2048, "efficiency": LAUNCHING}
WIDE = cx.Options(micro_batches=2, overlap_tp=0.3, overlap_ep=0.6, on_infeasible="ignore")


@pytest.mark.parametrize("granularity", ["kernel", "component"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_parts_add_up(phase, granularity):
    options = cx.Options(**{**WIDE.model_dump(), "granularity": granularity})
    ds = cx.evaluate("deepseek-v3", **SPARSE, precision=["fp8", "nvfp4"], phase=phase, options=options, dtype="float64")
    np.testing.assert_allclose(sum(ds[p] for p in PARTS), ds["step_time"], rtol=1e-12)
    # 61 layers: 5 GEMMs of attention (4 in prefill), 1 core; 3 dense layers of 2; 58 of router, 2 shared, 2 experts
    gemms = 61 * (5 if phase == "decode" else 4) + 3 * 2 + 58 * 3
    experts = [58 * 2 * 9e-6, 58 * 2 * 2e-5]
    launched = 2 * (gemms * 4e-6 + 61 * 6e-6 + np.array(experts))
    overhead = 61 * DEFAULT.tau_layer + DEFAULT.tau_global + DEFAULT.tau_batch * 64
    np.testing.assert_allclose(ds["time_overhead"], launched + overhead, rtol=1e-12)


def test_the_breakdown_keeps_launches_in_the_overhead():
    args = {**SPARSE, "phase": "decode", "options": WIDE}
    without = cx.breakdown("deepseek-v3", precision="fp8", **args | {"efficiency": _without_launches()})
    ds = cx.breakdown("deepseek-v3", precision="fp8", **args)
    xr.testing.assert_equal(ds["time"], without["time"])
    xr.testing.assert_allclose(ds["time_overlapped"], without["time_overlapped"], rtol=1e-9)
    gained = (ds["time_overhead"] - without["time_overhead"]).item()
    assert gained == pytest.approx((ds["step_time"] - without["step_time"]).item(), rel=1e-9)
    assert gained == pytest.approx(2 * ((61 * 5 + 6 + 58 * 3) * 4e-6 + 61 * 6e-6 + 58 * 2 * 9e-6), rel=1e-9)


def _without_launches():
    return LAUNCHING.with_numbers({n: 0.0 for n in REAL if n.startswith("launch") and "_experts_" not in n})


def test_launches_depend_on_neither_batch_nor_length():
    """They stay on few points: one number for a whole grid of batches and lengths."""
    from cheetah_xr.engine.case_values import forward_pass_seconds
    from cheetah_xr.engine.evaluator import case_of
    from cheetah_xr.engine.grid import build
    from cheetah_xr.engine.inputs.arguments import Axes

    axes = Axes("deepseek-v3", "b200-sxm", ["fp8", "nvfp4"], LAUNCHING, "decode", range(1, 9), range(1, 9))
    grid = build(axes)
    case = case_of(grid, 0, 0, {dim: slice(None) for dim in grid.order})
    per_pass, launched, *_ = forward_pass_seconds(case).overhead
    assert (np.size(per_pass), np.size(launched)) == (1, 2)


# ---- what a precision makes of efficiencies

MIXED = ["bf16", "fp8", "nvfp4", "mxfp4-experts", "mxfp4-experts-in8", "fp8-fp4-experts", "int4-experts"]
EXPERTS = dict.fromkeys(MIXED, 9e-6) | dict.fromkeys(["nvfp4", "mxfp4-experts-in8", "fp8-fp4-experts"], 2e-5)
EXPERTS |= dict.fromkeys(["mxfp4-experts", "int4-experts"], 3e-5)
ONE = {"batch": 16, "seq_len": 1000, "tp": 2, "dtype": "float64"}
IGNORE = cx.Options(on_infeasible="ignore")


def alone(gpu, precision, efficiency, **more):
    """One point, no axis."""
    return cx.evaluate("gpt-oss-120b", gpu, precision, efficiency=efficiency, options=IGNORE, **ONE | more)


def test_four_bit_experts_have_launches_of_their_own():
    ds = alone("b200-sxm", MIXED, LAUNCHING)
    for name, each in EXPERTS.items():
        expected = 36 * (3 * 4e-6 + 6e-6 + 2 * each + DEFAULT.tau_layer) + DEFAULT.tau_global + DEFAULT.tau_batch * 16
        assert ds["time_overhead"].sel(precision=name).item() == pytest.approx(expected, rel=1e-12), name
    # without numbers of their own they are launched like the others
    plain = LAUNCHING.with_numbers({"launch_routed_experts_fp4": None, "launch_routed_experts_w4": None})
    assert len(np.unique(alone("b200-sxm", MIXED, plain)["time_overhead"])) == 1
    # and bytes decide, on an axis too
    wide = cx.evaluate(
        "gpt-oss-120b", "b200-sxm", "nvfp4", efficiency=LAUNCHING, options=IGNORE,
        overrides={"precision.experts_weight_bytes": [0.99, 1.0]}, **ONE,
    )  # fmt: skip
    gained = wide["time_overhead"].diff("experts_weight_bytes").item()
    assert gained == pytest.approx(36 * 2 * (9e-6 - 2e-5), rel=1e-9)


def test_weight_only_experts_have_a_memory_efficiency_of_their_own():
    args = {"kernel": "routed_experts"}
    times = {}
    for name, efficiency in {
        "own": LAUNCHING,
        "none": LAUNCHING.with_numbers({"memory_routed_experts_w4": None}),
    }.items():
        ds = cx.breakdown(
            "gpt-oss-120b", "b200-sxm", MIXED, efficiency=efficiency, batch=4, seq_len=1000, options=IGNORE
        )
        times[name] = ds["time"].sel(args)
    ratio = times["own"] / times["none"]
    expected = [DEFAULT.memory_routed_experts / 0.3 if "w4" in _kind(name) else 1.0 for name in MIXED]
    np.testing.assert_allclose(ratio, expected, rtol=1e-12)


def _kind(name):
    return "w4" if name in ("mxfp4-experts", "int4-experts") else ""


def test_factors_of_compute_types():
    """Prefill, everything bound by compute; the true peaks stay those of mfu."""
    args = {"phase": "prefill", "batch": 128, "seq_len": 8192, "options": IGNORE}
    slow = FREE.with_numbers({"name": "slow", "compute_fp8": 0.5, "compute_fp4": 0.25})
    names = ["bf16", "fp8", "nvfp4", "mxfp4-experts-in8"]
    runs = [cx.breakdown("deepseek-v3", "b200-sxm", names, efficiency=e, dp=8, ep=8, **args) for e in (FREE, slow)]
    ratio = (runs[1]["time"] / runs[0]["time"]).transpose("precision", "kernel")
    kernels = ["attn_proj", "dense_mlp", "shared_experts", "routed_experts", "attn_core", "router", "lm_head"]
    np.testing.assert_allclose(
        ratio.sel(kernel=kernels),
        [[1, 1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 1, 1, 1], [4, 4, 4, 4, 1, 1, 1], [1, 1, 1, 2, 1, 1, 1]],
        rtol=1e-9,
    )
    peaks = [
        cx.evaluate("deepseek-v3", "b200-sxm", names, efficiency=e, dp=8, ep=8, dtype="float64", **args)
        for e in (FREE, slow)
    ]
    np.testing.assert_array_equal(*(ds["peak_compute_time"] for ds in peaks))


def test_the_same_on_any_axes():
    """Precision, efficiency and accelerator as axes, or on one dim, give the bits of every point alone."""
    gpus, names, records = ["b200-sxm", "gb200-nvl72"], ["mxfp4-experts", "nvfp4", "fp8"], [LAUNCHING, DEFAULT]
    for phase in ("prefill", "decode"):
        grid = alone(gpus, names, records, phase=phase)
        for gpu in gpus:
            for name in names:
                for record in records:
                    one = grid.sel(gpu=gpu, precision=name, efficiency=record.name)
                    single = alone(gpu, name, record, phase=phase)
                    for part in ("step_time", *PARTS):
                        assert one[part].item() == single[part].item(), (phase, gpu, name, record.name, part)


def test_the_same_on_a_shared_dim():
    machines = {"gpu": ["h100-sxm", "b200-sxm", "b200-sxm"], "precision": ["int4-experts", "nvfp4", "fp8"]}
    factors = {"efficiency.compute_fp8": [0.6, 0.7, 0.8], "efficiency.launch_routed_experts_fp4": [1e-6, 2e-6, 3e-6]}
    factors |= {"efficiency.compute_fp4": [0.3, 0.4, 0.5], "efficiency.launch_gemm": [4e-6, 5e-6, 6e-6]}
    on = {name: xr.DataArray(values, dims="machine") for name, values in {**machines, **factors}.items()}
    for phase in ("prefill", "decode"):
        more = {"phase": phase, "efficiency": LAUNCHING, "options": IGNORE, **ONE}
        overrides = {name: on[name] for name in factors}
        together = cx.evaluate("gpt-oss-120b", on["gpu"], on["precision"], overrides=overrides, **more)
        for i in range(3):
            one = {name.partition(".")[2]: values[i] for name, values in factors.items()}
            record = LAUNCHING.with_numbers(one)
            single = alone(machines["gpu"][i], machines["precision"][i], record, phase=phase)
            for part in ("step_time", *PARTS):
                assert together[part].isel(machine=i).item() == single[part].item(), (phase, i, part)


@pytest.mark.parametrize("field", REAL)
def test_fields_are_axes(field):
    """An axis over a field gives what records with its values give."""
    value = REAL[field]
    key = f"efficiency.{field}"
    for phase in ("prefill", "decode"):
        more = {"phase": phase, "options": IGNORE, **ONE}
        swept = cx.evaluate(
            "gpt-oss-120b", "b200-sxm", MIXED, efficiency=LAUNCHING, overrides={key: [value / 2, value]}, **more
        )
        scaled = cx.evaluate("gpt-oss-120b", "b200-sxm", MIXED, efficiency=LAUNCHING, scales={key: [0.5, 1.0]}, **more)
        assert swept[field].attrs["units"] == ("s" if field.startswith("launch") else "1")
        for i, number in enumerate((value / 2, value)):
            single = alone("b200-sxm", MIXED, LAUNCHING.with_numbers({field: number}), phase=phase)
            for part in ("step_time", *PARTS):
                np.testing.assert_array_equal(swept[part].isel({field: i}), single[part])
                np.testing.assert_array_equal(scaled[part].isel({f"{field}_scale": i}), single[part])


def test_bad_numbers_are_rejected():
    rejected(lambda: cx.load_efficiency({"name": "x", "launch_gemm": -1e-6}), "launch_gemm", "-1e-06")
    rejected(lambda: cx.load_efficiency({"name": "x", "compute_fp8": 1.2}), "compute_fp8", "1.2")
    rejected(
        lambda: cx.load_efficiency({"name": "x", "memory_routed_experts_w4": 0.0}), "memory_routed_experts_w4", "0"
    )
    for field in ("launch_routed_experts_fp4", "launch_routed_experts_w4", "memory_routed_experts_w4"):
        key = f"efficiency.{field}"
        rejected(
            lambda key=key: cx.evaluate("8b", "h100-sxm", batch=1, seq_len=1, efficiency="ideal", scales={key: [0.5]}),
            f"scales: {key}: ideal has no {field}",
        )


def test_a_time_per_sequence_of_an_attention_rank() -> None:
    """10 sequences on 4 attention ranks are 3 on the most loaded one."""
    where = {"batch": 10, "seq_len": 100, "tp": 2, "dp": 4, "ep": 8, "dtype": "float64"}
    plain, slow = (
        cx.evaluate("deepseek-v3", "b200-sxm", "fp8", **where, efficiency=cx.Efficiency(name="e", tau_sequence=tau))
        for tau in (0.0, 2e-6)
    )
    assert float(slow["step_time"] - plain["step_time"]) == pytest.approx(3 * 2e-6)
    assert float(slow["time_overhead"]) == pytest.approx(3 * 2e-6)
