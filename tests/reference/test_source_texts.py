"""Every number [Qwen3-FLOPs] and [Roofline] print, from the public functions (tables B and C)."""

import numpy as np
import pytest

import cheetah_xr as cx

FREE = {"activation_traffic": "none", "on_infeasible": "ignore"}
LAYERS = cx.Options(include=("layers",), **FREE)
LAYERS_SMALL = cx.Options(include=("layers",), small_ops="flops", **FREE)


def gpu(name, bandwidth_tb_s, peak_tflops):
    return {"name": name, "memory_gb": 80, "hbm_bandwidth_gb_s": bandwidth_tb_s * 1e3, "peak_bf16_tflops": peak_tflops}


QWEN_H100 = gpu("h100-1000", 3.35, 1000)
A100 = gpu("a100", 2.0, 312)
H100 = gpu("h100", 3.35, 989)
RTX4090 = gpu("rtx-4090", 1.008, 165)


def qwen(phase, seq_len, options=LAYERS, **more):
    return cx.evaluate(
        "qwen3-32b", QWEN_H100, batch=1, seq_len=seq_len, phase=phase, efficiency="ideal", options=options, **more
    )


class TestQwenOnH100:
    """[Qwen3-FLOPs]: Qwen3-32B in BF16 on one H100 of 3.35 TB/s and 1000 TFLOP/s."""

    def test_ridge(self):
        ds = qwen("prefill", 1000)
        assert float(ds.peak_bf16 / ds.hbm_bandwidth) == pytest.approx(298.5, abs=0.05)

    def test_prefill_flops_to_the_last_unit(self):
        assert int(qwen("prefill", 1000).flops) == 63_460_868_096_000
        assert int(qwen("prefill", 1000, LAYERS_SMALL).flops) == 63_485_995_008_000

    def test_prefill_intensity(self):
        core = qwen("prefill", 1000, outputs=["arithmetic_intensity"])
        small = qwen("prefill", 1000, LAYERS_SMALL, outputs=["arithmetic_intensity"])
        assert float(core.arithmetic_intensity) == pytest.approx(1012.6, abs=0.05)
        assert float(small.arithmetic_intensity) == pytest.approx(1012.97, abs=0.005)

    def test_decode_flops_follow_the_formula_and_show_the_slip(self):
        """The appendix prints the value of L = 1 for L = 1000."""
        lengths = np.array([1, 1000, 8192])
        flops = qwen("decode", lengths, LAYERS_SMALL).flops.values
        np.testing.assert_array_equal(flops, 62_426_120_192 + 2_117_632 * lengths)
        assert flops[0] == 62_428_237_824
        assert flops[1] == 64_543_752_192

    def test_decode_intensity(self):
        ds = qwen("decode", [1000, 40960], LAYERS_SMALL, outputs=["arithmetic_intensity", "flops", "bytes_kv"])
        assert float(ds.arithmetic_intensity[0]) == pytest.approx(1.03, abs=0.005)
        slope = float(ds.flops.diff("seq_len")[0] / ds.bytes_kv.diff("seq_len")[0])
        assert slope == pytest.approx(8.08, abs=0.005)

    def test_prefill_is_compute_bound_and_decode_memory_bound(self):
        assert int(qwen("prefill", 1000).bottleneck) == 0
        assert int(qwen("decode", 1000).bottleneck) == 1

    def test_weights(self):
        per_layer = 487_587_840
        ds = qwen("decode", 1000)
        assert int(ds.bytes_weights) == 62_411_243_520 == per_layer * 64 * 2
        with_head = qwen("decode", 1000, cx.Options(include=("layers", "lm_head"), **FREE))
        assert int(with_head.bytes_weights - ds.bytes_weights) == 1_555_824_640
        assert int(with_head.flops - ds.flops) == 1_555_824_640

    def test_norm_vectors(self):
        """Two norms of the hidden width per layer; the record counts q/k and final norms alongside them."""
        model = cx.load_model("qwen3-32b")
        norms = 64 * 2 * model.hidden * 2
        assert norms == 1_310_720
        matrices = 31_205_621_760 + 2 * model.vocab * model.hidden
        assert model.n_parameters - matrices == norms // 2 + 64 * 2 * 128 + model.hidden

    def test_kv(self):
        ds = qwen("decode", [1, 2048])
        assert ds.kv_bytes_per_sequence.values.tolist() == [262_144, 536_870_912]

    def test_rough_memory_budget(self):
        """About 64 GB of weights for "32B" and 16 GB of headroom on 80 GB."""
        everything = cx.Options(memory_fraction=1.0)
        ds = cx.evaluate("32b", QWEN_H100, batch=1, seq_len=2048, efficiency="ideal", options=everything)
        assert float(ds.weight_bytes) == 64e9
        assert 80e9 - float(ds.weight_bytes) == 16e9
        real = qwen("decode", 2048).weight_bytes
        assert float(real) / 1e9 == pytest.approx(65.52, abs=0.005)


PREFILL_OPERATIONS = {
    "attn_norm": 20_480,
    "q_proj": 83_886_080,
    "k_proj": 10_485_760,
    "v_proj": 10_485_760,
    "rope": 27_648,
    "o_proj": 83_886_080,
    "attn_residual": 5_120,
    "mlp_norm": 20_480,
    "gate_proj": 262_144_000,
    "up_proj": 262_144_000,
    "gating": 153_600,
    "down_proj": 262_144_000,
    "mlp_residual": 5_120,
}


@pytest.mark.parametrize("tokens", [1, 1000, 4096])
def test_operations_of_the_appendix(tokens):
    prefill = cx.operations("qwen3-32b", "prefill", tokens).flops
    for name, per_token in PREFILL_OPERATIONS.items():
        assert int(prefill.sel(operation=name)) == per_token * tokens, name
    for name, per_pair in {"scores": 8192, "softmax": 160, "attn_values": 8192}.items():
        assert int(prefill.sel(operation=name)) == per_pair * tokens * (tokens + 1), name
    decode = cx.operations("qwen3-32b", "decode", tokens).flops
    for name, flops in PREFILL_OPERATIONS.items():
        assert int(decode.sel(operation=name)) == flops, name
    for name, per_key in {"scores": 16_384, "softmax": 320, "attn_values": 16_384}.items():
        assert int(decode.sel(operation=name)) == per_key * tokens, name


def test_sixteen_operations_in_order():
    names = cx.operations("qwen3-32b", "prefill", 1000).operation.values.tolist()
    assert names[:5] == ["attn_norm", "q_proj", "k_proj", "v_proj", "rope"]
    assert len(names) == 16 + 2
    assert names[-2:] == ["embedding", "lm_head"]


BANDWIDTH_MODEL = cx.Options(**FREE)


def count_model(model, on, precision="bf16", batch=1, phase="decode", seq_len=1, **more):
    return cx.evaluate(
        model,
        on,
        precision,
        batch=batch,
        seq_len=seq_len,
        phase=phase,
        efficiency="ideal",
        options=BANDWIDTH_MODEL,
        **more,
    )


def int4():
    """Exactly half a byte, no scales."""
    classes = ("attention", "dense_mlp", "experts", "shared_experts")
    widths = {f"{c}_weight_bytes": 0.5 for c in classes} | {f"{c}_input_bytes": 2.0 for c in classes}
    types = {f"{c}_compute": "bf16" for c in (*classes, "attn_core")}
    return {"name": "int4", **widths, **types, "kv_bytes": 2.0}


class TestBandwidthModel:
    """[Roofline]: parameter counts of 8B and 70B, GPUs with the text's own numbers."""

    @pytest.mark.parametrize(("on", "ridge"), [(A100, 156), (H100, 295), (RTX4090, 164)])
    def test_ridge(self, on, ridge):
        ds = count_model("8b", on)
        assert float(ds.peak_bf16 / ds.hbm_bandwidth) == pytest.approx(ridge, abs=0.5)

    @pytest.mark.parametrize(("on", "ms", "rate"), [(H100, 4.78, 209), (A100, 8.0, 125), (RTX4090, 15.9, 63)])
    def test_batch_1_ceiling(self, on, ms, rate):
        ds = count_model("8b", on, outputs=["step_time", "tps_per_user"])
        assert float(ds.step_time) * 1e3 == pytest.approx(ms, abs=0.05 if ms > 5 else 0.005)
        assert float(ds.tps_per_user) == pytest.approx(rate, abs=0.5)

    def test_batching_table(self):
        ds = count_model("8b", H100, batch=[1, 8, 64, 256, 512], outputs=["step_time", "throughput", "bottleneck"])
        np.testing.assert_allclose(ds.throughput, [209, 1675, 13400, 53600, 61800], rtol=2e-3)
        np.testing.assert_allclose(ds.step_time * 1e3, [4.78, 4.78, 4.78, 4.78, 8.28], atol=0.005)
        assert ds.bottleneck.values.tolist() == [1, 1, 1, 1, 0]

    def test_script_output(self):
        ds = count_model("8b", [A100, H100], batch=[1, 64, 512], outputs=["throughput"])
        np.testing.assert_allclose(ds.throughput[0], [125, 8_000, 19_500], rtol=1e-4)
        np.testing.assert_allclose(ds.throughput[1], [209, 13_400, 61_812], rtol=2e-3)
        assert float(ds.throughput[1, 2]) == pytest.approx(61_812.5, abs=0.01)  # the script prints 61,812

    @pytest.mark.parametrize(("on", "batch"), [(H100, 295), (A100, 156)])
    def test_crossover(self, on, batch):
        ds = count_model("8b", on, batch=[batch - 1, batch, batch + 1])
        assert ds.bottleneck.values[0] == 1
        assert ds.bottleneck.values[2] == 0

    def test_kv(self):
        ds = cx.evaluate("llama-3.1-8b", H100, batch=1, seq_len=[1, 8192], efficiency="ideal")
        one, long = ds.kv_bytes_per_sequence.values
        assert one == 131_072
        assert long / 1e9 == pytest.approx(1.07, abs=0.005)
        assert 64 * long / 1e9 == pytest.approx(69, abs=0.5)
        assert 256 * long / 1e9 == pytest.approx(275, abs=0.5)

    def test_prefill(self):
        ds = count_model("8b", H100, phase="prefill", seq_len=2000, outputs=["ttft"])
        assert float(ds.ttft) * 1e3 == pytest.approx(32, abs=0.5)
        decode = count_model("8b", H100).step_time
        assert float(ds.ttft / decode) == pytest.approx(6.8, abs=0.05)

    def test_exercise(self):
        one = count_model("70b", H100, int4(), outputs=["step_time", "tps_per_user"])
        assert float(one.step_time) * 1e3 == pytest.approx(10.4, abs=0.05)
        assert float(one.tps_per_user) == pytest.approx(96, abs=0.5)
        two = count_model(
            "70b", H100 | {"link_gb_s": 450, "link_domain": 8}, tp=2, outputs=["step_time", "tps_per_user"]
        )
        assert float(two.step_time) * 1e3 == pytest.approx(20.9, abs=0.05)
        assert float(two.tps_per_user) == pytest.approx(48, abs=0.5)

    def test_exercise_crossover_is_rounded_down_in_the_text(self):
        ds = count_model("70b", H100, int4(), batch=[73, 74])
        assert ds.bottleneck.values.tolist() == [1, 0]
        exact = float(ds.weight_bytes / ds.hbm_bandwidth) * 989e12 / (2 * 70e9)
        assert exact == pytest.approx(73.8, abs=0.05)

    @pytest.mark.parametrize(("precision", "intensity"), [("bf16", 1), ("fp8", 2), (int4(), 4)])
    def test_intensity_at_batch_1(self, precision, intensity):
        ds = count_model("8b", H100 | {"peak_fp8_tflops": 1979}, precision, outputs=["arithmetic_intensity"])
        assert float(ds.arithmetic_intensity) == intensity


def test_gemm_intensity_of_the_cheetah_text():
    """Footnote 2: K = 28672 and N = 8192 in BF16 at M = 1 and M = 512."""
    from cheetah_xr.costmodel.formulas.gemm import gemm_activations, gemm_flops

    rows = np.array([1.0, 512.0])
    moved = 2 * 28672 * 8192 + gemm_activations(rows, 28672, 8192, 2, 2)
    np.testing.assert_allclose(gemm_flops(rows, 28672, 8192) / moved, [1.0, 474], rtol=2e-3)
