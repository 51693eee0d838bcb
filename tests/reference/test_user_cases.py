"""What users of serving engines and calculators report as wrong, with the right value: memory, layouts, configs.

Elsewhere: batch 0, negative, NaN, "eight" and lengths beyond the maximum (test_bad_input, test_cli); 28 query and 4 KV
heads of a model of one's own, expert parallelism at tp 1 (test_bad_input); dense peaks, link rates and gigabytes of
accelerators (test_specs); times against bytes and FLOPs at random points (test_properties) and over the catalogue
(test_catalogue_physics); efficiency per kernel and precision (test_efficiency_profiles). Not modelled or not in the
catalogue: two RTX 3090 without NVLink, DeepSeek-Coder-V2.
"""

import re

import numpy as np
import pytest

import cheetah_xr as cx
from tests.helpers.rejection import rejected

GIB = 2**30
H200 = {"name": "h200", "memory_bytes": 143_771 * 2**20, "hbm_bandwidth_gb_s": 4800, "peak_bf16_tflops": 989.4}
H200 |= {"peak_fp8_tflops": 1978.9, "link_gb_s": 450, "link_domain": 8, "nic_gb_s": 50}
B200 = {"name": "b200", "memory_bytes": 183_359 * 2**20, "hbm_bandwidth_gb_s": 8000, "peak_bf16_tflops": 2250}
B200 |= {"peak_fp8_tflops": 4500, "link_gb_s": 900, "link_domain": 8}
IGNORE = cx.Options(on_infeasible="ignore")


def evaluate(model, precision="bf16", gpu=H200, batch=1, seq_len=1, options=None, **more):
    return cx.evaluate(model, gpu, precision, batch=batch, seq_len=seq_len, efficiency="ideal", options=options, **more)


def per_sequence(model, precision="bf16", **more):
    ds = evaluate(model, precision, options=IGNORE, outputs=["kv_bytes_per_sequence"], **more)
    return ds.kv_bytes_per_sequence.values.tolist()


def weights(model, precision="bf16", **more):
    return float(evaluate(model, precision, options=IGNORE, outputs=["weight_bytes"], **more).weight_bytes)


# ---- bytes of one token


@pytest.mark.parametrize("precision", ["bf16", "w8a16", "w4a16", "w8a8", "fp8"])
def test_narrow_weights_do_not_shrink_the_cache(precision):
    assert per_sequence("qwen2.5-7b", precision) == 28 * 2 * 4 * 128 * 2 == 57_344
    shrunk = weights("qwen2.5-7b", precision) < weights("qwen2.5-7b")
    assert shrunk == (precision != "bf16")


def test_qwen3_235b_on_four_gpus():
    """94 layers, keys and values, one of 4 KV heads of 128; an engine's log implies 1.2 % more."""
    actual = per_sequence("qwen3-235b-a22b-fp8", "fp8", tp=4)
    assert actual == 94 * 2 * 1 * 128 * 2 == 48_128
    assert actual == pytest.approx(48_681, rel=0.012)


CODER_30B = {"model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128, "num_hidden_layers": 48}
CODER_30B |= {"num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "num_experts": 128}
CODER_30B |= {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "vocab_size": 151936, "decoder_sparse_step": 1}
CODER_30B |= {"mlp_only_layers": [], "max_position_embeddings": 262144, "tie_word_embeddings": False}
CODER_30B |= {"attention_bias": False, "norm_topk_prob": True, "use_sliding_window": False}


def test_qwen3_coder_30b_from_its_config():
    assert per_sequence(CODER_30B) == 48 * 2 * 4 * 128 * 2 == 98_304
    assert per_sequence("qwen3-30b-a3b") == 98_304


def test_a_head_is_not_overlapped_over_heads():
    model = cx.load_model("mistral-small-24b-2501")
    assert model.hidden / model.n_heads == 160
    assert per_sequence("mistral-small-24b-2501") == 40 * 2 * 8 * 128 * 2 == 163_840


# ---- windows: a sequence costs a part with a cap and a part per token


def test_gemma_3_at_long_context():
    sliding, full = (layers * 2 * 16 * 128 * 2 for layers in (52, 10))
    lengths = [1, 500, 1023, 1024, 1025, 8192, 131_072]
    expected = [s * full + min(s, 1024) * sliding for s in lengths]
    assert per_sequence("gemma-3-27b", seq_len=lengths) == expected
    uniform = 131_072 * (sliding + full)
    assert expected[-1] / uniform == pytest.approx(0.168, abs=0.001)  # what one number per token gets wrong


@pytest.mark.parametrize(
    ("model", "window"), [("mistral-7b-v0.1", 4096), ("gemma-2-27b", 4096), ("llama-4-scout", 8192)]
)
def test_a_window_larger_than_the_context_takes_no_memory(model, window):
    lengths = [window // 2, window, 2 * window]
    one, *actual = per_sequence(model, seq_len=[1, *lengths])
    assert actual[:2] == [s * one for s in lengths[:2]]
    assert actual[2] < lengths[2] * one


# ---- hybrids: the state does not shrink with the cache


@pytest.mark.parametrize(
    ("model", "seq_len", "gain"),
    [
        ("llama-3.1-8b", 32_768, 2.0),
        ("qwen3-235b-a22b", 100, 2.0),
        ("qwen3-next-80b-a3b", 32_768, 1.84),
        ("qwen3-next-80b-a3b", 1, 1.0),
        ("qwen3-next-80b-a3b", 100, 1.0),
        ("minimax-m1", 1, 1.0),
        ("nemotron-3-nano-30b-a3b", 100, 1.0),
    ],
)
def test_gain_of_an_8_bit_cache(model, seq_len, gain):
    wide, narrow = (per_sequence(model, p, seq_len=seq_len) for p in ("fp8", "fp8-kv8"))
    assert wide / narrow == pytest.approx(gain, abs=0.02)


def test_gain_of_an_8_bit_cache_in_sequences():
    fits = [
        float(evaluate("qwen3-next-80b-a3b", p, seq_len=32_768, tp=2, outputs=["max_batch"]).max_batch)
        for p in ("fp8", "fp8-kv8")
    ]
    assert fits[1] / fits[0] == pytest.approx(1.84, abs=0.02)


# ---- bytes that engines report of single layers


def test_glm_5_2_in_packed_records():
    """54,728 bytes per token with the prediction layer (local-inference-lab/vllm pull request 82).

    A record of 656 bytes (512 FP8, 4 scales, 64 rotary elements in bf16) in 79 layers, index keys of 132 in 22.
    """
    packed = cx.load_precision("fp8-kv8").model_copy(update={"kv_bytes": 656 / 576})
    drafts = cx.Options(on_infeasible="ignore", drafter="mtp", draft_tokens=1)
    ds = evaluate("glm-5.2", packed, seq_len=1000, options=drafts, outputs=["kv_bytes_per_sequence"])
    assert float(ds.kv_bytes_per_sequence) / 1000 == pytest.approx(54_728, rel=1e-12)


@pytest.mark.parametrize(("state_bytes", "megabytes"), [(4.0, 4.27), (2.0, 2.17)])
def test_a_slot_of_qwen3_5_397b(state_bytes, megabytes):
    """State and convolution of one layer (vllm-project/tpu-inference pull request 2482)."""
    precision = cx.load_precision("bf16").model_copy(update={"state_bytes": state_bytes})
    one, two = per_sequence("qwen3.5-397b-a17b", precision, seq_len=[1, 2])
    assert (2 * one - two) / 45 / 1e6 == pytest.approx(megabytes, abs=0.005)


# ---- weights: total parameters decide what fits, active ones what is read


def test_deepseek_v3_by_precision():
    """The gap to 671 GB is embedding and head, which stay bf16."""
    assert weights("deepseek-v3", "bf16") / 1e9 == pytest.approx(1342, abs=0.5)
    fp8 = weights("deepseek-v3", "fp8")
    kept = 2 * 129_280 * 7168 + 58 * 256 * 7168  # and the routers
    assert fp8 / 1e9 == pytest.approx(671, rel=0.004)
    assert (fp8 - kept) / 1e9 == pytest.approx(671, abs=0.15)


@pytest.mark.parametrize("precision", ["nvfp4", "w4a16"])
def test_deepseek_v3_in_4_bits_is_not_22_gigabytes(precision):
    assert 340 < weights("deepseek-v3", precision) / 1e9 < 395
    active = cx.load_model("deepseek-v3").n_parameters_active
    assert active / 2 < 22e9 < weights("deepseek-v3", precision) / 15


def test_one_token_reads_the_active_parameters():
    """All of them but the embedding, of which it reads one row, and vectors."""
    model = cx.load_model("deepseek-v3")
    ds = evaluate(model, options=IGNORE)
    read = model.n_parameters_active - model.vocab * model.hidden
    assert float(ds.bytes_weights) == pytest.approx(2 * read, rel=1e-4)
    assert float(ds.weight_bytes) == pytest.approx(2 * model.n_parameters, rel=1e-5)


PUBLISHED = {
    # "865 GB of weights", vllm-project/recipes pull request 779; with the MTP module
    ("deepseek-v4-pro", "fp8-fp4-experts"): 865e9,
    # 46 shards of 294.04 GB, sgl-project/sglang pull request 28620; they keep part of the output projection in bf16
    ("deepseek-v4-flash", "fp8"): 294.04e9,
}


@pytest.mark.parametrize(("model", "precision"), PUBLISHED)
def test_published_checkpoints_in_bytes(model, precision):
    drafts = cx.Options(on_infeasible="ignore", drafter="mtp", draft_tokens=1)
    actual = float(evaluate(model, precision, options=drafts, outputs=["weight_bytes"]).weight_bytes)
    assert 0.99 < actual / PUBLISHED[model, precision] < 1


# ---- budgets: fractions of what


def test_deepseek_v4_pro_in_sglang():
    """Its log on 8 H200: 125.65 GiB loaded, 12.25 left; 0.88 of the free memory is rejected, 0.9113 is the least.

    The 125.65 are an input: the checkpoint's 865 GB are 100.7 GiB on each of 8 GPUs, the rest is the engine's.
    """
    loaded, left = 125.65 * GIB, 12.25 * GIB
    model = {"name": "v4", "n_parameters": loaded * 8 / 2, "n_layers": 61}

    def at(fraction):
        base = {"memory_base": "free_at_start", "memory_fraction": fraction}
        used = {"used_at_start_bytes": H200["memory_bytes"] - loaded - left}
        return evaluate(model, tp=8, options=cx.Options(**base, **used))

    rejected_at = at(0.88)
    assert float(rejected_at.weight_bytes) == loaded
    assert np.isnan(rejected_at.step_time)
    assert float(rejected_at.memory_shortfall) == pytest.approx(loaded - 0.88 * (loaded + left))
    assert [int(at(fraction).status) for fraction in (0.88, 0.911, 0.9113)] == [14, 14, 0]


@pytest.mark.parametrize("base", ["total", "free_at_start", "free_after_load"])
def test_engines_take_the_fraction_of_different_memory(base):
    options = cx.Options(memory_base=base, memory_fraction=0.9, used_at_start_bytes=2e9, reserve_bytes=3e9)
    memory, weight_bytes, one = H200["memory_bytes"], weights("llama-3.1-8b"), 131_072 * 8192
    pool = {
        "total": 0.9 * memory - 3e9 - weight_bytes,
        "free_at_start": 0.9 * (memory - 2e9) - 3e9 - weight_bytes,
        "free_after_load": 0.9 * (memory - 2e9 - weight_bytes) - 3e9,
    }[base]
    ds = evaluate("llama-3.1-8b", seq_len=8192, options=options, outputs=["max_batch"])
    assert int(ds.max_batch) == int(pool // one)


# ---- parallel layouts: what is copied


def test_deepseek_v4_flash_on_eight_b200():
    """vLLM reports 21.4 million tokens at TP8 and 164.6 at DP8: copied caches against divided sequences."""
    engine = cx.Options(memory_fraction=0.95)

    def tokens(**layout):
        ds = evaluate("deepseek-v4-flash", "fp8-fp4-experts", B200, 8, 131_072, engine, outputs=["max_batch"], **layout)
        return float(ds.max_batch) * 131_072

    assert tokens(dp=8, ep=8) / tokens(tp=8) == pytest.approx(164.6 / 21.4, rel=0.01)
    assert tokens(tp=8, ep=8) == tokens(tp=8)


@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v4-flash", "kimi-k2-instruct", "glm-5.2"])
def test_latents_are_copied_on_every_rank(model):
    assert len(set(per_sequence(model, tp=[1, 2, 4, 8], seq_len=8192))) == 1


def test_kv_heads_are_copied_once_tp_exceeds_them():
    one = 80 * 2 * 128 * 2 * 8192
    actual = per_sequence("llama-3.1-70b", tp=[1, 2, 4, 8, 16, 32], seq_len=8192)
    assert actual == [heads * one for heads in (8, 4, 2, 1, 1, 1)]


def test_data_parallel_attention_multiplies_the_sequences_of_mla_only():
    """DeepSeek-V3 on 16 GPUs: 16 caches instead of one, each alongside 60 instead of 43.5 GB of weights, of 173 GB."""
    many = {"gpu": B200 | {"nic_gb_s": 50}, "batch": 16, "seq_len": 8192, "outputs": ["max_batch"]}
    together, apart = (
        float(evaluate("deepseek-v3", "fp8", **many, **layout).max_batch)
        for layout in ({"tp": 16}, {"dp": 16, "ep": 16})
    )
    assert apart / together == pytest.approx(16 * (173 - 60) / (173 - 43.5), rel=0.01)
    together, apart = (float(evaluate("llama-3.1-8b", **many, **layout).max_batch) for layout in ({"tp": 8}, {"dp": 8}))
    assert apart < together  # its heads are divided either way; only the weights are copied


# ---- heads decide the valid tp

HEADS = {
    # MLP widths of 28,672 and 14,336 would allow 7
    "64 heads, tp 3": ("llama-3.1-70b", 3, "1, 2, 4, 8, 16, 32, 64"),
    "64 heads, tp 7": ("llama-3.1-70b", 7, "1, 2, 4, 8, 16, 32, 64"),
    "32 heads, tp 3": ("llama-3.1-8b", 3, "1, 2, 4, 8, 16, 32"),
    "28 heads, tp 7": ("qwen2.5-7b", 7, "1, 2, 4"),
    "71 heads, tp 8": ("falcon-7b", 8, "1, 71"),
    "40 heads, 10 KV heads, tp 4": ("phi-4", 4, "1, 2, 5, 10, 20, 40"),
}


@pytest.mark.parametrize("case", HEADS.values(), ids=HEADS)
def test_a_wrong_tp_is_rejected_with_the_valid_ones(case, cli):
    model, tp, valid = case
    ran = cli("estimate", "--model", model, "--gpu", "h100-sxm", "--tp", tp)
    assert ran.code == 2
    assert ran.err.strip().endswith(f"valid tp: {valid}"), ran.err


def test_52_heads(cli, write):
    fields = {"hidden": 6656, "vocab": 32_000, "intermediate": 17_920, "head_dim": 128, "n_heads": 52, "n_kv_heads": 52}
    model = write({**fields, "groups": [{"count": 60, "attention": "gqa", "mlp": "dense"}]}, "model.yaml")
    ran = cli("estimate", "--model", model, "--gpu", "h100-sxm", "--tp", 8)
    assert ran.code == 2
    assert "tp_heads" in ran.err
    assert ran.err.strip().endswith("valid tp: 1, 2, 4"), ran.err  # 13, 26 and 52 do not divide the MLP


@pytest.mark.parametrize(
    ("n_gpus", "model", "valid"),
    [
        (64, "llama-3.1-70b", [1, 2, 4, 8, 16, 32, 64]),
        (24, "llama-3.1-8b", [1, 2, 4, 8]),
        (28, "qwen2.5-7b", [1, 2, 4]),
    ],
)
def test_layouts_offer_valid_tp_only(n_gpus, model, valid):
    assert sorted(set(cx.layouts(n_gpus, model).tp.values.tolist())) == valid


def test_expert_parallelism_without_tensor_parallelism_is_offered():
    actual = cx.layouts(8, "deepseek-v3")
    assert (1, 8, 8) in zip(
        actual.tp.values.tolist(), actual.dp.values.tolist(), actual.ep.values.tolist(), strict=True
    )


# ---- what does not fit has no latency


def test_405b_on_one_h100(cli):
    """One tool prints TPOT 459.7 ms."""
    ds = evaluate("llama-3.1-405b", gpu="h100-sxm", seq_len=2048, outputs=["step_time", "tpot", "memory_shortfall"])
    assert np.isnan(ds.step_time)
    assert np.isnan(ds.tpot)
    missing = weights("llama-3.1-405b") + 2048 * 516_096 - 0.9 * 85_520_809_984
    assert float(ds.memory_shortfall) == pytest.approx(missing, rel=1e-9)
    ran = cli("estimate", "--model", "llama-3.1-405b", "--gpu", "h100-sxm", "--seq-len", 2048)
    assert ran.code == 2
    assert "459" not in ran.out + ran.err
    assert ran.err.strip().endswith("the smallest tp that fits is 16")  # 811.7 / 8 is above 77, 811.7 / 16 below
    assert float(re.search(r"([\d.,]+) GB short", ran.err)[1].replace(",", "")) == pytest.approx(
        missing / 1e9, abs=0.01
    )


# ---- Hugging Face: routed experts under every name, or no answer

V32 = {"model_type": "deepseek_v32", "hidden_size": 7168, "vocab_size": 129280, "num_hidden_layers": 61}
V32 |= {"num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "q_lora_rank": 1536}
V32 |= {"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8}
V32 |= {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_layer_freq": 1}
V32 |= {"first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "attention_bias": False, "index_head_dim": 128}
V32 |= {"index_n_heads": 64, "index_topk": 2048, "max_position_embeddings": 163840, "tie_word_embeddings": False}


def test_n_routed_experts_makes_experts():
    model = cx.load_model(V32)
    assert (model.n_experts, model.top_k, model.is_moe) == (256, 8, True)
    assert model.n_parameters == 671_877_944_064
    assert 37e9 < model.n_parameters_active < 39e9
    assert weights(V32) == weights("deepseek-v3.2")
    assert per_sequence(V32, seq_len=8192) == per_sequence("deepseek-v3.2", seq_len=8192)


@pytest.mark.parametrize("field", ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "index_topk"])
def test_a_structural_field_that_is_missing_is_named(field):
    rejected(lambda: cx.load_model({name: value for name, value in V32.items() if name != field}), field)


def test_an_unknown_spelling_of_the_experts_is_rejected():
    other = {name: value for name, value in V32.items() if name != "n_routed_experts"}
    rejected(lambda: cx.load_model({**other, "num_routed_experts": 256}), "n_routed_experts", "missing")
    rejected(lambda: cx.load_model({**V32, "num_routed_experts": 256}), "num_routed_experts")


# ---- times that were measured bound the ideal from above


@pytest.mark.parametrize(
    ("gpu", "tpot", "ttft"),
    [("h100-sxm", 6.0, 51.6), ("a100-pcie-80gb", 10.64, 253), ("rtx-4090", 15.85, 365.5)],
)
def test_the_ideal_of_qwen_7b_beats_no_measurement(gpu, tpot, ttft):
    """Qwen2.5-7B FP16 in vLLM, 2,048 tokens in, 256 out, 8 at a time; a TTFT holds one prompt at least."""
    decode = evaluate("qwen2.5-7b", "fp16", gpu, 8, 2048 + 128)
    prefill = evaluate("qwen2.5-7b", "fp16", gpu, 1, 2048, phase="prefill")
    assert 0.7 < float(decode.step_time) * 1e3 / tpot < 1
    assert 0.3 < float(prefill.step_time) * 1e3 / ttft < 1


def test_experts_are_not_priced_by_active_parameters():
    """DeepSeek-V2-Lite FP16 on an H100, 8 at a time: distinct experts give 5.5 ms, active parameters 2.0 at most."""
    ds = evaluate("deepseek-v2-lite", "fp16", "h100-sxm", 8, 2048 + 128)
    assert float(ds.step_time) * 1e3 == pytest.approx(5.5, abs=0.1)
    assert cx.load_model("deepseek-v2-lite").n_parameters_active * 2 / 3.35e12 < 2.0e-3
    distinct = 64 * (1 - (1 - 6 / 64) ** 8)
    assert float(ds.bytes_weights) > 26 * distinct * 3 * 2048 * 1408 * 2
