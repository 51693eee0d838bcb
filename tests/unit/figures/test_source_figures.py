"""Figures and tables of [Qwen3-FLOPs] and [Roofline]: every exact number the texts print, in the data drawn."""

import functools

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.figures import render


@functools.cache
def data(name):
    return render.data_of(name)


@functools.cache
def table(name):
    return render.table_frame(data(name)).set_index(["item", "unit"])


def computed(name, item, unit):
    return table(name).loc[(item, unit), "computed"]


class TestQwen3FlopsFigures:
    def test_ridge(self):
        ds = data("roofline-ridge")
        assert float(ds.ridge) == pytest.approx(298.5, abs=0.05)
        assert float(ds.peak) == 1e15
        np.testing.assert_allclose(
            ds.attainable, np.minimum(ds.intensity * ds.bandwidth, ds.peak), rtol=1e-12
        )  # the definition, traced by the engine
        assert "298.5" in ds.attrs["title"]

    def test_annotated_roofline(self):
        ds = data("roofline-annotated")
        decode, _, prefill = ds.arithmetic_intensity.values
        assert decode == pytest.approx(1.03, abs=0.005)
        assert prefill == pytest.approx(1012.97, abs=0.005)
        assert float(ds.gap) == pytest.approx(298.5 / 1.03, abs=1)

    def test_prefill_is_on_the_flat_roof(self):
        ds = data("roofline-prefill")
        at = ds.sel(seq_len=1000)
        assert float(at.flops) == 63_460_868_096_000
        assert float(at.arithmetic_intensity) == pytest.approx(1012.6, abs=0.05)
        assert float(at.reached) == pytest.approx(1e15)
        assert ds.bound.values.tolist() == ["weights", "weights", "weights", "compute", "compute"]
        assert bool((ds.arithmetic_intensity.diff("seq_len") > 0).all())

    def test_decode_stays_on_the_slope(self):
        ds = data("roofline-decode")
        np.testing.assert_allclose(ds.flops, 62_426_120_192 + 2_117_632 * ds.seq_len, rtol=1e-15)
        assert float(ds.arithmetic_intensity.sel(seq_len=1000)) == pytest.approx(1.03, abs=0.005)
        assert float(ds.asymptote) == pytest.approx(2_117_632 / 262_144)
        assert f"{float(ds.asymptote):.2f}" == "8.08"
        assert float(ds.arithmetic_intensity.max()) < float(ds.asymptote) < float(ds.ridge)
        # elementwise operations are kernels of their own, after the others: 0.03 % below the roof
        np.testing.assert_allclose(ds.reached, ds.arithmetic_intensity * ds.bandwidth, rtol=1e-3)

    def test_timeline_is_to_scale(self):
        ds = data("request-timeline")
        prefill, decode = ds.duration.values[0], ds.duration.values[1:]
        assert prefill == float(ds.ttft) == pytest.approx(63_460_868_096_000 / 1e15)
        contexts = 1000 + np.arange(1, 200)
        np.testing.assert_allclose(decode, (62_411_243_520 + 262_144 * (contexts + 1)) / 3.35e12, rtol=1e-3)
        np.testing.assert_allclose(ds.start[1:], np.cumsum(ds.duration)[:-1], rtol=1e-12)
        assert float(ds.latency) == pytest.approx(float(ds.ttft + ds.tpot * 199))
        assert float(ds.latency) == pytest.approx(float(ds.duration.sum()))

    def test_metrics(self):
        ds = data("serving-metrics")
        assert float(ds.throughput) == 100
        assert float(ds.goodput) == pytest.approx(70)
        assert int((ds.first_token <= ds.objective).sum()) == 70
        np.testing.assert_allclose(ds.latency.sel(output_tokens=1), ds.ttft)
        assert bool((ds.latency.diff("output_tokens") > 0).all())

    def test_memory_budget(self):
        ds = data("memory-budget")
        parts = ds.bytes.to_series().unstack("part").loc[ds.bar.values] / 1e9
        empty, count_model, real, one, four, full, acts = (parts.iloc[i] for i in range(7))
        assert float(ds.memory) == 80e9
        assert empty.free == 80
        assert (count_model.weights, count_model.free) == (64, 16)
        assert real.weights == pytest.approx(65.52, abs=0.005)
        assert one.kv * 1e9 == 536_870_912
        assert four.kv == pytest.approx(4 * one.kv)
        assert real.free - one.free == pytest.approx(one.kv)
        assert full.free < one.kv
        assert acts.activations == pytest.approx(0.1 * real.weights)
        assert acts.activations + acts.activations_range == pytest.approx(0.3 * real.weights)

    def test_activation_reserve(self):
        ds = data("activation-reserve")
        fits = ds.requests.sel(gpu="h100-sxm")
        room = 80e9 - 65_522_892_800
        for reserve in (0.0, 0.1, 0.2, 0.3):
            expected = max(0, (room - reserve * 65_522_892_800) // 536_870_912)
            assert float(fits.sel(reserve=reserve)) == pytest.approx(expected, abs=1e-9), reserve
        assert bool((ds.requests.diff("reserve") <= 0).all())

    def test_kv_by_context(self):
        ds = data("kv-by-context")
        np.testing.assert_array_equal(ds.kv_bytes, 262_144 * ds.seq_len)
        assert float(ds.kv_bytes.sel(seq_len=2048)) == 536_870_912
        np.testing.assert_array_equal(ds.requests, np.floor(ds.headroom / ds.kv_bytes))
        assert ds.sizes["seq_len"] >= 6

    def test_memory_wall(self):
        ds = data("memory-wall")
        for name in ("a100-sxm-80gb", "h100-sxm", "mi300x", "b200-sxm"):
            card = cx.load_gpu(name)
            at = ds.sel(gpu=name)
            assert (float(at.bandwidth), float(at.peak)) == (card.hbm_bandwidth, card.peak_bf16)
            assert int(at.release_year) == card.release_year
        assert int(ds.release_year.sel(gpu="a100-sxm-80gb")) == 2020
        assert int(ds.release_year.sel(gpu="h100-sxm")) == 2022
        assert float(ds.compute_growth[-1]) > float(ds.bandwidth_growth[-1]) > 1
        assert ds.sizes["gpu"] >= 25

    def test_the_release_year_is_no_axis(self):
        with pytest.raises(cx.SpecError, match="no number 'release_year'"):
            cx.evaluate("8b", "h100-sxm", batch=1, seq_len=1, overrides={"gpu.release_year": [2020, 2024]})


class TestQwen3FlopsTables:
    def test_sixteen_steps_twice_and_all_exact(self):
        frame = table("qwen3-flops-operations")
        assert len(frame) == 32
        assert (frame.difference == 0).all()
        assert (frame.note == "exact").all()

    @pytest.mark.parametrize(
        ("item", "unit", "value"),
        [
            ("prefill  6. attention scores", "FLOP per T(T+1)", 8_192),
            ("prefill  7. softmax", "FLOP per T(T+1)", 160),
            ("prefill 12. MLP gate projection", "FLOP per T", 262_144_000),
            ("decode  5. RoPE on queries and keys", "FLOP", 27_648),
            ("decode  8. attention output", "FLOP per L", 16_384),
            ("decode 14. gating", "FLOP", 153_600),
        ],
    )
    def test_a_step(self, item, unit, value):
        assert computed("qwen3-flops-operations", item, unit) == value

    @pytest.mark.parametrize(
        ("item", "unit", "value"),
        [
            ("weights: one layer", "parameters", 487_587_840),
            ("weights: 64 layers", "parameters", 31_205_621_760),
            ("weights: 64 layers", "B", 62_411_243_520),
            ("norm vectors: two per layer", "B", 1_310_720),
            ("LM head: one token", "FLOP", 1_555_824_640),
            ("LM head: weights", "B", 1_555_824_640),
            ("KV cache: one token", "B", 262_144),
            ("KV cache: 2,048 tokens", "B", 536_870_912),
            ("prefill T=1000: with small_ops", "FLOP", 63_485_995_008_000),
            ("decode: terms per token, 64 layers", "FLOP", 62_426_120_192),
            ("decode: terms per token pair, 64 layers", "FLOP per L", 2_117_632),
            ("prefill: terms per token pair, 64 layers", "FLOP per T(T+1)", 1_058_816),
        ],
    )
    def test_exact_totals(self, item, unit, value):
        row = table("qwen3-flops-totals").loc[(item, unit)]
        assert row.computed == row.printed == value

    def test_the_slip_of_the_decode_flops_is_pointed_out(self):
        row = table("qwen3-flops-totals").loc[("decode L=1000: a step", "FLOP")]
        assert row.printed == 62_428_237_824 == 62_426_120_192 + 2_117_632
        assert row.computed == 64_543_752_192
        assert row.note.startswith("slip")

    def test_intensities(self):
        assert computed("qwen3-flops-totals", "ridge of the H100", "FLOP/B") == pytest.approx(298.5, abs=0.05)
        assert computed("qwen3-flops-totals", "prefill T=1000: core", "TFLOP") == pytest.approx(63.46, abs=0.005)
        assert computed("qwen3-flops-totals", "prefill T=1000: core intensity", "FLOP/B") == pytest.approx(
            1012.6, abs=0.05
        )
        assert computed("qwen3-flops-totals", "decode L=1000: intensity", "FLOP/B") == pytest.approx(1.03, abs=0.005)
        assert computed("qwen3-flops-totals", "decode, long contexts: intensity", "FLOP/B") == pytest.approx(8.078125)


class TestRoofline:
    def test_crossover_of_three_accelerators(self):
        ds = data("batching-crossover")
        assert ds.gpu.values.tolist() == ["a100-sxm-80gb", "h100-sxm", "rtx-4090"]
        np.testing.assert_allclose(ds.crossover, [156, 989 / 3.35, 165 / 1.008])
        np.testing.assert_allclose(ds.single, [125, 209.375, 63])
        np.testing.assert_allclose(ds.limit, [19_500, 61_812.5, 10_312.5])
        below = ds.throughput.where(ds.batch <= ds.crossover)
        np.testing.assert_allclose((below / ds.batch / ds.single).values[below.notnull()], 1)
        assert float(ds.throughput.max()) == pytest.approx(61_812.5)

    @pytest.mark.parametrize(
        ("name", "item", "unit", "value"),
        [
            ("roofline-ridge-points", "ridge, A100 80GB", "FLOP/B", 156),
            ("roofline-ridge-points", "ridge, H100 SXM", "FLOP/B", 989 / 3.35),
            ("roofline-ridge-points", "ridge, RTX 4090 at the printed 1.0 TB/s", "FLOP/B", 165),
            ("roofline-ridge-points", "ridge, RTX 4090 at 1.008 TB/s", "FLOP/B", 165 / 1.008),
            ("roofline-ridge-points", "intensity at batch 1, BF16", "FLOP/B", 1),
            ("roofline-ridge-points", "intensity at batch 1, FP8", "FLOP/B", 2),
            ("roofline-ridge-points", "intensity at batch 1, INT4", "FLOP/B", 4),
            ("roofline-decode-steps", "decode step, H100", "ms", 16 / 3.35),
            ("roofline-decode-steps", "one stream, A100", "tokens/s", 125),
            ("roofline-decode-steps", "decode step, RTX 4090 at 1.008 TB/s", "ms", 16 / 1.008),
            ("roofline-decode-steps", "one stream, RTX 4090 at 1.008 TB/s", "tokens/s", 63),
            ("roofline-decode-steps", "prefill of 2,000 tokens, H100", "ms", 32_000 / 989),
            ("roofline-decode-steps", "the same in decode steps", "steps", 32_000 / 989 / (16 / 3.35)),
            ("roofline-batching", "H100 step, B=512, bound by compute", "ms", 16 * 512 / 989),
            ("roofline-batching", "H100 output, B=512, bound by compute", "tokens/s", 61_812.5),
            ("roofline-batching", "H100 output, B=256, bound by weights", "tokens/s", 53_600),
            ("roofline-batching", "A100: batch at the crossover", "sequences", 156),
            ("roofline-batching", "script: A100-80GB 512", "tokens/s", 19_500),
            ("roofline-kv-cache", "KV cache of one token", "B", 131_072),
            ("roofline-kv-cache", "KV cache of one 8k context", "GB", 1.073741824),
            ("roofline-kv-cache", "KV cache of 256 contexts of 8,192", "GB", 274.877906944),
            ("roofline-exercise", "INT4 on one: step", "ms", 35 / 3.35),
            ("roofline-exercise", "BF16 on two: step", "ms", 140 / 6.7),
            ("roofline-exercise", "BF16 on two: one stream", "tokens/s", 6_700 / 140),
            ("roofline-exercise", "INT4 on one: batch at the crossover", "sequences", 989 / 3.35 / 4),
        ],
    )
    def test_hand_computed(self, name, item, unit, value):
        assert computed(name, item, unit) == pytest.approx(value, rel=1e-12)

    @pytest.mark.parametrize(
        ("name", "item", "unit", "printed"),
        [
            ("roofline-ridge-points", "ridge, RTX 4090 at the printed 1.0 TB/s", "FLOP/B", 164),
            ("roofline-decode-steps", "decode step, RTX 4090 at the table's 1.0 TB/s", "ms", 15.9),
            ("roofline-exercise", "INT4 on one: batch at the crossover", "sequences", 73),
        ],
    )
    def test_slips_are_explained(self, name, item, unit, printed):
        row = table(name).loc[(item, unit)]
        assert row.printed == printed
        assert row.note.startswith("slip")
        assert abs(row.difference) > 0.09

    def test_ranges_of_practice_hold_for_the_default_efficiencies(self):
        rows = table("roofline-decode-steps").xs("%", level="unit")
        assert rows.printed.iloc[0] < rows.computed.iloc[0] < rows.printed.iloc[1]
        low, high = (
            table("roofline-decode-steps").loc[(f"real prefill over the ideal, {end}", "1")] for end in ("from", "to")
        )
        assert low.printed < low.computed < high.printed


@pytest.mark.parametrize("name", ["roofline-decode", "memory-budget", "activation-reserve", "kv-by-context"])
def test_a_parameter_count_has_no_cache_to_draw(name):
    with pytest.raises(cx.SpecError, match="8b is a parameter count"):
        render.data_of(name, model="8b")


@pytest.mark.parametrize("name", ["roofline-prefill", "request-timeline", "kv-by-context", "memory-budget"])
def test_redrawn_for_another_model_and_accelerator(name):
    ds = render.data_of(name, model="llama-3.1-8b", gpu="h200-sxm")
    assert "Llama-3.1-8B" in ds.attrs["title"] + ds.attrs["shows"] + ds.attrs["assumptions"]
    assert "H200 SXM with 4.8 TB/s" in ds.attrs["assumptions"]
