"""Numbers behind the figures and tables of [CHEETAH]: what it states, and crossovers at positions derived by hand."""

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.figures import render
from cheetah_xr.figures.catalogue import CHEETAH, FIGURES_BY_SOURCE, TABLES_BY_SOURCE
from cheetah_xr.figures.plots import regime_map
from cheetah_xr.figures.plots.prefill_fraction import OUTPUTS
from cheetah_xr.figures.shared import measurements
from cheetah_xr.figures.shared.decode_corners import CORNERS, LEVERS

# Llama-3.1-70B: one layer and the whole, bf16.
HIDDEN, HEADS, KV_HEADS, HEAD, FFN, LAYERS, VOCAB = 8192, 64, 8, 128, 28672, 80, 128256
LAYER = 2 * HIDDEN * HEADS * HEAD + 2 * HIDDEN * KV_HEADS * HEAD + 3 * HIDDEN * FFN
KV_TOKEN = 2 * KV_HEADS * HEAD * LAYERS * 2
H100 = {"bf16": 989.4e12, "fp8": 1978.9e12, "hbm": 3.35e12}


@pytest.fixture(scope="module")
def data():
    """Data of every figure, made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = render.data_of(name)
        return made[name]

    return of


def test_every_figure_of_cheetah_is_listed_in_its_order():
    assert list(FIGURES_BY_SOURCE[CHEETAH]) == [
        "decode-tps", "roofline", "prefill-fraction", "prefill-fraction-attention", "prefill-flops", "decode-bytes",
        "batch-amortisation", "regime-map", "intensity-map", "moe-batching", "decode-tps-per-gpu", "ttft",
        "cpu-overhead",
    ]  # fmt: skip
    assert list(TABLES_BY_SOURCE[CHEETAH]) == ["levers", "measured"]


def test_footnote_9_links():
    h100, b200 = cx.load_gpu("h100-sxm"), cx.load_gpu("b200-sxm")
    assert (h100.link_domain, h100.link_bandwidth, h100.nic_bandwidth) == (8, 450e9, 50e9)
    assert (b200.link_bandwidth, b200.nic_bandwidth) == (900e9, 50e9)
    assert cx.load_efficiency("kernels").nic_all_to_all * h100.nic_bandwidth == pytest.approx(40e9)  # DeepEP


# Figures 1 and 10, and the table behind them


def test_every_measurement_has_a_source_and_a_setup_of_the_catalogue():
    table = measurements.measurements()
    assert len(table) >= 12
    assert table.source.str.startswith("https://").all()
    assert set(table.gpu) <= set(cx.list_gpus())
    assert set(table.precision) <= set(cx.list_precisions())
    assert (table[["batch", "context", "value", "per_gpus"]] > 0).all(axis=None)
    assert table.batch.max() / table.batch.min() > 1e3
    assert table.drop_duplicates(["setup", "gpu", "tp", "dp", "ep", "precision", "context"]).setup.is_unique


def test_measurements_are_converted(data):
    ds = data("decode-tps")
    first = ds.isel(point=0)  # 72 H100: 22,282 tokens/s of 8 GPUs, 256 requests on each
    assert float(first.measured_throughput_per_gpu) == 22282 / 8
    assert float(first.measured_tps_per_user) == pytest.approx(22282 / 8 / 256)
    by_user = ds.measured_tps_per_user * ds.measured_batch
    gpus = measurements.measurements().n_gpus.to_numpy()
    np.testing.assert_allclose(by_user, ds.measured_throughput_per_gpu * gpus)


def test_lines_of_figures_1_and_10_are_one_run(data):
    one, ten = data("decode-tps"), data("decode-tps-per-gpu")
    assert one.drop_attrs().equals(ten.drop_attrs())
    gpus = measurements.setups().n_gpus.to_numpy()
    for setup, n in zip(one.setup.values, gpus, strict=True):
        line = one.sel(setup=setup).dropna("batch", subset=["tps_per_user"])
        np.testing.assert_allclose(line.throughput_per_gpu * n, line.tps_per_user * line.batch, rtol=1e-6)
        assert (line.tps_per_user.diff("batch") <= 0).all()
        assert line.batch[0] >= measurements.setups().dp[setup]


def bounds(line):
    names = list(regime_map.BOUND_BY)
    codes = [int(code) for code in line.regime.values if code >= 0]
    return [names[code] for i, code in enumerate(codes) if i == 0 or code != codes[i - 1]]


def test_a_larger_batch_gets_more_out_of_a_gpu(data):
    ds = data("decode-tps-per-gpu")
    for setup in ds.setup.values:
        line = ds.throughput_per_gpu.sel(setup=setup).dropna("batch")
        assert (line.diff("batch") > -1e-3 * line).all()
        assert float(line[-1]) > 10 * float(line[0])


def test_bottlenecks_move_from_memory_to_communication(data):
    ds = data("decode-tps")
    assert all(bounds(ds.sel(setup=setup))[0] == "weights" for setup in ds.setup.values)
    assert bounds(ds.sel(setup="72 H100, EP72")) == ["weights", "communication"]
    assert bounds(ds.sel(setup="128 H800, EP128"))[-1] == "communication"
    assert bounds(ds.sel(setup="48 GB200, EP48, FP4"))[-1] == "compute"


def test_measured_and_predicted(data):
    ds = data("measured")
    assert (ds.measured <= ds.ideal).all()
    assert (ds.predicted <= ds.ideal).all()
    np.testing.assert_allclose(ds.error_percent, 100 * (ds.predicted / ds.measured - 1), atol=1)
    assert ds.source.str.startswith("https://").all()
    for name in ("measured", "decode-tps", "decode-tps-per-gpu"):
        assert "never published" in data(name).attrs["shows"]


def test_the_prediction_is_the_engine(data):
    row = next(measurements.setups().itertuples())
    ds = cx.evaluate(
        "deepseek-v3", "h100-sxm", "fp8", batch=18432, seq_len=2000, dp=72, ep=72, efficiency="kernels",
        options={"micro_batches": 2, "overlap_ep": 1.0, "redundant_experts": 32},
    )  # fmt: skip
    assert row.setup == "72 H100, EP72"
    assert float(data("measured").predicted[0]) == pytest.approx(18432 / float(ds.step_time) / 72, rel=1e-4)


def test_prefill_on_the_same_gpus_is_added():
    table = measurements.predictions().set_index("setup")
    row = next(measurements.setups().loc[["8 H200, EP8"]].itertuples())
    step = float(measurements.evaluated(row, 1024)["step_time"])
    prefill = float(measurements.evaluated(row, 8, phase="prefill")["step_time"])
    seconds = 2048 * step + 1024 / 8 * prefill  # every request: 2,048 steps; 1,024 prompts, one per rank at a time
    assert table.predicted["8 H200, EP8"] == pytest.approx(1024 * 2048 / seconds / 8, rel=1e-5)


def test_precisions_of_setups():
    rows = {row.setup: measurements.precision_of(row) for row in measurements.setups().itertuples()}
    mixed = rows["48 GB200, EP48, FP4"]
    assert (mixed.attention_weight_bytes, mixed.experts_weight_bytes, mixed.experts_compute) == (1.0, 0.5625, "fp4")
    assert (mixed.attn_core_compute, mixed.kv_bytes) == ("fp8", 1.0)
    assert rows["8 B200, EP8, FP4, BF16 cache"].kv_bytes == 2.0
    assert rows["72 H100, EP72"] == cx.load_precision("fp8")


# Figure 2


@pytest.mark.parametrize(("phase", "tokens", "stated"), [("decode", 1, 1.0), ("prefill", 512, 474)])
def test_intensity_of_one_gemm(phase, tokens, stated):
    operation = cx.operations("llama-3.1-70b", phase, 512, options=cx.Options()).sel(operation="down_proj")
    flops = float(operation.flops)
    moved = float(operation.bytes_weights + operation.bytes_kv + operation.bytes_activations)
    assert flops == 2 * tokens * 28672 * 8192
    assert flops / moved == pytest.approx(1 / (1 / tokens + 1 / 28672 + 1 / 8192))
    assert flops / moved == pytest.approx(stated, abs=0.5 if stated > 1 else 1e-3)


def test_decode_is_left_of_the_ridge_and_prefill_on_the_roof(data):
    ds = data("roofline")
    assert float(ds.ridge) == pytest.approx(H100["bf16"] / H100["hbm"])
    frame = ds.to_dataframe()
    decode = frame[frame["forward_pass"].str.startswith("decode")]
    assert set(decode.operation) >= {"q_proj", "o_proj", "gate_proj", "down_proj", "attn_core", "lm_head"}
    assert (decode.intensity < float(ds.ridge)).all()
    np.testing.assert_allclose(decode.attainable, decode.intensity * H100["hbm"])
    prefill = frame[frame["forward_pass"].str.startswith("prefill") & (frame.kernel != "lm_head")]
    below = prefill[prefill.attainable < H100["bf16"]]
    assert below[["forward_pass", "operation"]].to_numpy().tolist() == [["prefill, 512 tokens", "attn_core"]]
    at_512 = prefill[prefill["forward_pass"] == "prefill, 512 tokens"].set_index("operation")
    assert at_512.intensity["down_proj"] == pytest.approx(474, abs=0.5)


# Figure 3 and footnote 3


def test_fraction_of_prefill_grows_with_the_input_and_shrinks_with_the_output(data):
    fraction = data("prefill-fraction").prefill_fraction
    assert (fraction.diff("input_tokens") > -1e-4).all()
    assert (fraction.sel(output_tokens=OUTPUTS["RAG"]) > fraction.sel(output_tokens=OUTPUTS["chat"])).all()
    assert float(fraction.sel(output_tokens=OUTPUTS["chat"])[0]) < 0.01
    assert float(fraction.sel(output_tokens=OUTPUTS["RAG"])[-1]) > 0.7


def test_a_fraction_step_by_step(data):
    fraction = data("prefill-fraction").prefill_fraction.sel(output_tokens=128)
    length = int(fraction.input_tokens[20])
    where = {"tp": 8, "batch": 1, "efficiency": "ideal", "dtype": "float64"}
    ttft = float(cx.evaluate("llama-3.1-70b", "h100-sxm", seq_len=length, phase="prefill", **where).step_time)
    steps = cx.evaluate("llama-3.1-70b", "h100-sxm", seq_len=[length + i for i in range(1, 128)], **where).step_time
    assert float(fraction[20]) == pytest.approx(ttft / (ttft + float(steps.sum())), rel=1e-4)


def test_a_smaller_cache_raises_the_fraction_of_prefill(data):
    ds = data("prefill-fraction-attention")
    mha, gqa, mla = (ds.prefill_fraction.sel(model=name) for name in ("MHA", "GQA", "MLA"))
    assert (mla > gqa).all()
    assert (gqa > mha).all()
    cache = ds.kv_bytes_per_token.sel(model=["MHA", "GQA", "MLA"]).values.tolist()
    assert cache == [8 * KV_TOKEN, KV_TOKEN, (512 + 64) * 2 * LAYERS]


# Figures 4 to 6


def test_attention_core_overtakes_the_linear_layers(data):
    ds = data("prefill-flops")
    # 4 * h_dim * h_q * (s + 1) / 2 FLOP per token in the core, 2 per parameter in the linear layers.
    analytic = LAYER / (HEAD * HEADS) - 1
    assert analytic == pytest.approx(104_447)
    assert float(ds.crossover) == pytest.approx(analytic, rel=0.01)
    core = ds.flops.sel(part="attention core") / ds.flops.sum("part")
    assert (core.diff("seq_len") > 0).all()
    assert float(core[0]) < 0.01
    assert float(core[-1]) > 0.9


def test_weights_are_a_floor_and_the_cache_grows_with_batch_and_length(data):
    ds = data("decode-bytes")
    np.testing.assert_allclose(ds.mlp_weights, 3 * HIDDEN * FFN * LAYERS * 2 / 8)
    np.testing.assert_allclose(ds.attention_weights, (LAYER - 3 * HIDDEN * FFN) * LAYERS * 2 / 8)
    np.testing.assert_allclose(ds.kv, ds.batch * (ds.seq_len + 1) * KV_TOKEN / 8)  # s read, one written


def test_cache_outweighs_the_weights_where_it_must(data):
    ds = data("decode-bytes")
    weights = (LAYER * LAYERS + VOCAB * HIDDEN) * 2
    analytic = weights / (KV_TOKEN * (ds.seq_len + 1))
    assert analytic.values.round(1).tolist() == [826.9, 103.5, 12.9, 3.2]
    np.testing.assert_allclose(ds.crossover, analytic, rtol=0.01)


def test_batching_buys_throughput_and_costs_latency(data):
    ds = data("batch-amortisation")
    assert (ds.throughput.diff("batch") > -1e-3 * ds.throughput).all()
    assert (ds.itl.diff("batch") > 0).all()
    gain = ds.throughput / ds.throughput.isel(batch=0) / ds.batch
    assert (gain.isel(batch=-1) < 0.2).all()
    assert float(gain.sel(seq_len=512, batch=8)) > 0.9
    assert (gain.sel(seq_len=512) >= gain.sel(seq_len=32768) - 1e-9).all()
    np.testing.assert_allclose(
        ds.weight_bytes_per_token * ds.batch, (LAYER * LAYERS + VOCAB * HIDDEN) * 2e-9, rtol=3e-3
    )


# Figures 7 and 8, and the corners


def test_four_corners(data):
    ds = data("levers")
    assert ds.corner.values.tolist() == list(CORNERS)
    assert ds.bound_by.values.tolist() == ["weights", "compute", "KV cache", "does not fit"]
    assert ds.lever.values.tolist() == [LEVERS[cause] for cause in ("weights", "compute", "kv", "does_not_fit")]
    fits = ds.batch <= ds.max_batch
    assert fits.values.tolist() == [True, True, True, False]
    assert (ds.tokens_per_s_per_request.notnull() == fits).all()
    speed = ds.tokens_per_s_per_request.values
    assert speed[0] > 3 * speed[1]
    assert speed[0] > 3 * speed[2]


def test_levers_follow_what_bounds_a_corner():
    """At 512 sequences Qwen3-0.6B is bound by its cache already; the caption of the map says the same."""
    ds = render.data_of("levers", model="qwen3-0.6b")
    assert ds.bound_by.values.tolist() == ["weights", "KV cache", "KV cache", "does not fit"]
    assert ds.lever.values.tolist() == [LEVERS[cause] for cause in ("weights", "kv", "kv", "does_not_fit")]
    assert ds.context.values.tolist() == [512, 512, 40960, 40960]
    said = render.data_of("regime-map", model="qwen3-0.6b").attrs["shows"]
    for corner, bound, lever in zip(ds.corner.values, ds.bound_by.values, ds.lever.values, strict=True):
        assert corner in said
        assert f"{bound} ({lever})" in said


def test_regimes_are_those_of_one_instance():
    assert "on 1 RTX 4090" in render.data_of("regime-map", model="llama-3.1-8b", gpu="rtx-4090").attrs["title"]


def test_ridges_and_the_intensity_of_decode(data):
    ds = data("intensity-map")
    for name, ridge in zip(ds.gpu.values, ds.ridge.values, strict=True):
        card = cx.load_gpu(name)
        assert ridge == card.peak_bf16 / card.hbm_bandwidth
    intensity = ds.arithmetic_intensity
    assert (intensity.diff("batch") > 0).all()
    assert float(intensity.sel(batch=1).isel(seq_len=0)) == pytest.approx(1, rel=0.01)
    assert float(intensity.isel(seq_len=-1).max()) < 12  # 8 query heads per KV head, and the weights' part
    assert (intensity.isel(seq_len=0).max() > ds.ridge).all()


# Figure 9


def test_tokens_per_expert_and_distinct_experts(data):
    ds = data("moe-batching")
    np.testing.assert_allclose(ds.tokens_per_expert, ds.batch * 8 / 256, rtol=1e-12)
    np.testing.assert_allclose(ds.experts_read, 256 * (1 - (1 - 8 / 256) ** ds.batch), rtol=1e-12)


def test_a_mixture_of_experts_needs_a_larger_batch_to_be_compute_bound(data):
    ds = data("moe-batching")
    ridge = H100["fp8"] / H100["hbm"]
    assert float(ds.ridge) == pytest.approx(ridge)
    # One byte per weight, two FLOP per weight and token: intensity 2B, or 2Bk/E once all experts are read.
    assert float(ds.crossover_dense) == pytest.approx(ridge / 2, rel=0.01)
    assert float(ds.crossover_moe) == pytest.approx(ridge / 2 * 256 / 8, rel=0.01)


def test_expert_parallel_decode_becomes_bound_by_communication(data):
    d, ranks, context = 7168, 64, 2048
    attention = d * 1536 + 1536 * 128 * 192 + d * 576 + 512 * 128 * (128 + 128) + 128 * 128 * d
    experts = (256 // ranks + 1) * 3 * d * 2048 + 2 * d * 256  # of one rank, the shared one, the bf16 router
    weights = 61 * attention + 3 * 3 * d * 18432 + 58 * experts + 2 * 129280 * d
    cache = 61 * 576 * 2 * (context + 1) + 2 * d  # and a row of the embedding
    sent = 58 * 8 * d * (1 + 2) * (ranks - 8) / ranks  # fp8 out, bf16 back, to ranks on other nodes
    memory, network = H100["hbm"], 50e9
    on_a_rank = weights / memory / (sent / network - cache / memory)
    assert float(data("moe-batching").crossover_communication) == pytest.approx(ranks * on_a_rank, rel=0.01)
    assert float(data("moe-batching").crossover_communication) < float(data("moe-batching").crossover_moe)


def test_a_dense_model_takes_the_dense_side():
    ds = render.data_of("moe-batching", model="qwen3-32b")
    assert "DeepSeek-V3 and Qwen3-32B" in ds.attrs["title"]
    assert float(ds.crossover_dense) == pytest.approx(H100["fp8"] / H100["hbm"] / 2, rel=0.01)


# TTFT and overheads


def test_mean_ttft_of_two_schedules(data):
    ds = data("ttft")
    where = {"batch": 1, "seq_len": 4096, "phase": "prefill", "tp": 8, "efficiency": "ideal"}
    t = float(cx.evaluate("llama-3.1-70b", "h100-sxm", **where).step_time)
    assert float(ds.prefill_time) == pytest.approx(t)
    together, in_turn = (ds.mean_ttft.sel(schedule=name) for name in ("together", "in_turn"))
    np.testing.assert_allclose(ds.linear, ds.batch * t)
    np.testing.assert_allclose(in_turn, (ds.batch + 1) / 2 * t)
    np.testing.assert_allclose(together, ds.linear, rtol=1e-3)  # the LM head reads its weights once for all prompts
    one_pass = cx.evaluate("llama-3.1-70b", "h100-sxm", **{**where, "batch": 7}).step_time
    assert float(together.sel(batch=7)) == pytest.approx(float(one_pass))
    assert (in_turn < together).sel(batch=slice(2, None)).all()
    assert float(in_turn.sel(batch=1)) == float(together.sel(batch=1))
    shown = ds.sizes["request"]
    np.testing.assert_allclose(ds.ttft.mean("request"), ds.mean_ttft.sel(batch=shown))
    assert float(ds.ttft.sel(schedule="in_turn", request=shown)) == pytest.approx(shown * t)
    assert len(set(ds.ttft.sel(schedule="together").values)) == 1


def test_one_pass_over_experts_is_less_work_than_prompts_in_turn():
    ds = render.data_of("ttft", model="deepseek-v3")
    fraction = float(ds.mean_ttft.sel(schedule="together", batch=32) / ds.linear.sel(batch=32))
    assert 0.5 < fraction < 0.7
    assert ds.attrs["title"].startswith(f"At once {fraction:.0%} of the time")


def test_overhead_dominates_a_small_model_only(data):
    fraction = data("cpu-overhead").overhead_fraction
    first = fraction.sel(batch=1)
    assert float(first.sel(model="qwen3-0.6b")) > 0.5
    assert float(first.sel(model="qwen3-32b")) < 0.05
    assert (first.diff("model") < 0).all()
    assert not (fraction.diff("batch") > 0).any()
    costs, step = (
        cx.load_efficiency("kernels"),
        cx.evaluate("qwen3-0.6b", "h100-sxm", batch=1, seq_len=1024, efficiency="kernels").step_time,
    )
    assert float(first.sel(model="qwen3-0.6b")) == pytest.approx(
        (28 * costs.tau_layer + costs.tau_global) / float(step)
    )


# Redrawing


FIXED = ("decode-tps", "decode-tps-per-gpu", "measured", "prefill-flops")
"""About accelerators of their own, or about none."""


@pytest.mark.parametrize(
    "name", [name for name in (*FIGURES_BY_SOURCE[CHEETAH], *TABLES_BY_SOURCE[CHEETAH]) if name not in FIXED]
)
def test_figures_are_redrawn_for_another_gpu(name, data):
    assert not data(name).drop_attrs().equals(render.data_of(name, gpu="b200-sxm").drop_attrs())


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("prefill-fraction-attention", {"model": "deepseek-v3"}, "grouped-query"),
        ("decode-bytes", {"model": "8b"}, "nothing to draw"),
        ("decode-tps", {"gpu": "h100-sxm"}, "leave --gpu out"),
    ],
)
def test_what_cannot_be_drawn_is_said(name, asked, words):
    with pytest.raises(cx.SpecError, match=words):
        render.data_of(name, **asked)
