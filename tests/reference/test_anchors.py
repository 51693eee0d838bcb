"""Exact numbers of the cost model's definition: every printed value, to 2e-5, through the public functions."""

import numpy as np
import pytest

import cheetah_xr as cx

H100 = {
    "name": "h100",
    "memory_bytes": 85_520_809_984.0,
    "hbm_bandwidth_gb_s": 3350,
    "peak_bf16_tflops": 989.4,
    "peak_fp8_tflops": 1978.9,
    "link_gb_s": 450,
    "link_domain": 8,
    "nic_gb_s": 50,
}
DEEPSEEK = ("deepseek-v3", "fp8")
LLAMA = ("llama-3.1-70b", "bf16")
MIXTRAL = ("mixtral-8x7b", "bf16")

DECODE_70B = {"tp": 4, "batch": [1, 32, 256]}
EP64 = {"dp": 64, "ep": 64, "batch": [64, 2048, 8192], "seq_len": 2048}
PREFILL = {"phase": "prefill", "seq_len": 2048}

STEP_TIMES_MS = {
    "70B TP4, 2k cached": (LLAMA, DECODE_70B | {"seq_len": 2048}, {}, [10.435698, 12.367249, 26.324259]),
    "70B TP4, 16k cached": (LLAMA, DECODE_70B | {"seq_len": 16384}, {}, [10.786267, 23.585447, 116.069844]),
    "70B TP4 prefill": (
        LLAMA,
        {"tp": 4, "batch": 1, "seq_len": [2048, 16384], "phase": "prefill"},
        {},
        [90.297596, 799.070277],
    ),
    "70B TP8 kernel": (LLAMA, {"tp": 8, "batch": 1024, "seq_len": 1024}, {}, [41.871449]),
    "70B TP8 component": (
        LLAMA,
        {"tp": 8, "batch": 1024, "seq_len": 1024},
        {"granularity": "component"},
        [40.561387],
    ),
    "70B TP16, two nodes": (LLAMA, {"tp": 16, "batch": 32, "seq_len": 2048}, {}, [3.849589]),
    "Mixtral TP2": (MIXTRAL, {"tp": 2, "batch": [1, 16, 256], "seq_len": 4096}, {}, [3.888807, 15.094450, 35.136369]),
    "DeepSeek EP64 overlapped": (DEEPSEEK, EP64, {}, [7.851099, 10.102817, 23.792277]),
    "DeepSeek EP64 in series": (DEEPSEEK, EP64, {"overlap_ep": 0.0}, [8.025711, 15.690416, 38.188189]),
    "DeepSeek EP64 busiest": (DEEPSEEK, EP64 | {"batch": 64}, {"expert_load": "busiest"}, [8.250898]),
    "DeepSeek prefill EP32": (DEEPSEEK, PREFILL | {"dp": 32, "ep": 32, "batch": 256}, {}, [1141.6058]),
    "DeepSeek prefill EP64, 4 nodes": (
        DEEPSEEK,
        PREFILL | {"dp": 64, "ep": 64, "batch": 512},
        {"max_nodes": 4},
        [1331.54],
    ),
    "DeepSeek prefill EP64": (DEEPSEEK, PREFILL | {"dp": 64, "ep": 64, "batch": 512}, {}, [1927.18]),
}


@pytest.mark.parametrize("gpu", [H100, "h100-sxm"], ids=["inline", "catalogue"])
@pytest.mark.parametrize("case", STEP_TIMES_MS)
def test_step_time(case, gpu):
    (model, precision), axes, options, expected = STEP_TIMES_MS[case]
    chosen = cx.Options(on_infeasible="ignore", **options)
    ds = cx.evaluate(model, gpu, precision, **axes, efficiency="ideal", options=chosen)
    np.testing.assert_allclose(ds.step_time.values.reshape(-1) * 1e3, expected, rtol=2e-5)
    assert (ds.status == 0).all()


def weight_gigabytes(model, precision, **layout):
    ds = cx.evaluate(
        model, H100, precision, batch=1, seq_len=1024, efficiency="ideal", outputs=["weight_bytes"], **layout
    )
    return float(ds.weight_bytes) / 1e9


def test_weights_per_gpu():
    assert weight_gigabytes(*LLAMA, tp=4) == pytest.approx(35.276, rel=2e-5)
    assert weight_gigabytes(*DEEPSEEK, dp=64, ep=64) == pytest.approx(29.294, rel=2e-5)
    assert weight_gigabytes(*DEEPSEEK, tp=8) == pytest.approx(85.117, rel=2e-5)


def test_what_does_not_fit_is_masked_and_says_how_much_is_missing():
    ds = cx.evaluate(*DEEPSEEK[:1], H100, "fp8", tp=8, batch=1, seq_len=1024, efficiency="ideal")
    assert np.isnan(ds.step_time)
    assert int(ds.status) == 14
    per_sequence = 61 * 576 * 2 * 1024
    missing = float(ds.weight_bytes) + per_sequence - 0.9 * H100["memory_bytes"]
    assert float(ds.memory_shortfall) == pytest.approx(missing, rel=1e-12)
    assert int(ds.max_batch) == 0


def test_max_batch():
    ds = cx.evaluate(*LLAMA[:1], H100, "bf16", tp=4, batch=1, seq_len=8192, efficiency="ideal")
    assert int(ds.max_batch) == 62


PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
    "deepseek-r1": 671_026_419_200,
}
ACTIVE = {
    "qwen3-30b-a3b": 3_353_032_704,
    "qwen3-235b-a22b": 22_190_763_520,
    "mixtral-8x7b": 12_879_925_248,
    "deepseek-v3": 37_552_297_472,
    "deepseek-r1": 37_552_297_472,
}
KV_BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "qwen3-32b": 262_144,
    "deepseek-v3": 70_272,
}


@pytest.mark.parametrize("model", PARAMETERS)
def test_parameters(model):
    assert cx.load_model(model).n_parameters == PARAMETERS[model]
    assert cx.load_model(model).n_parameters_active == ACTIVE.get(model, PARAMETERS[model])


@pytest.mark.parametrize("model", KV_BYTES_PER_TOKEN)
def test_kv_bytes(model):
    lengths = [1, 1000, 8192]
    ds = cx.evaluate(model, H100, batch=1, seq_len=lengths, efficiency="ideal", outputs=["kv_bytes_per_sequence"])
    assert ds.kv_bytes_per_sequence.values.tolist() == [KV_BYTES_PER_TOKEN[model] * n for n in lengths]


def test_kv_is_sharded_then_replicated_under_gqa_and_copied_under_mla():
    """One GPU of TP4 holds one of four KV heads; TP8 holds a copy; the latent of MLA is on every rank."""
    qwen = cx.evaluate("qwen3-235b-a22b", H100, tp=[1, 4, 8], batch=1, seq_len=1, efficiency="ideal")
    assert qwen.kv_bytes_per_sequence.values.tolist() == [192_512, 48_128, 48_128]
    deepseek = cx.evaluate("deepseek-v3", H100, tp=[1, 8], batch=1, seq_len=1, efficiency="ideal")
    assert deepseek.kv_bytes_per_sequence.values.reshape(-1).tolist() in ([70_272], [70_272, 70_272])
