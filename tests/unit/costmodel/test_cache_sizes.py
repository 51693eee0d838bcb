"""Bytes of caches, recurrent states and weights of every family, by hand from the published configs.

The factors come from each model's config.json, not from the catalogue. Of weights only the matrices count: norms,
biases, sinks and lookup tables do not; a vision tower does, and tied embeddings count once.
"""

import pytest

import cheetah_xr as cx

RACK = {"name": "rack", "memory_gb": 186, "hbm_bandwidth_gb_s": 8000, "peak_bf16_tflops": 2500, "link_gb_s": 900}
RACK |= {"link_domain": 72, "peak_fp8_tflops": 5000}
ANY_MEMORY = cx.Options(on_infeasible="ignore")
ANY_LENGTH = {"model.max_seq_len": 1 << 24}
LENGTHS = [1, 3, 100, 127, 512, 1000, 1024, 1025, 4097, 8192, 131_072, 1_000_003]
BF16, FP32 = 2, 4
KV = 2  # keys and values


def size(model, variable="kv_bytes_per_sequence", precision="bf16", seq_len=1024, options=ANY_MEMORY, **more):
    """Bytes on one GPU, as a list over the lengths; every point must be valid."""
    layout = {"batch": more.get("dp", 1), **more}
    ds = cx.evaluate(
        model, RACK, precision, seq_len=seq_len, efficiency="ideal", options=options, overrides=ANY_LENGTH,
        outputs=[variable, "status"], **layout,
    )  # fmt: skip
    assert (ds.status == 0).all(), f"status {ds.status.values}"
    return ds[variable].values.tolist()


# ---- caches and states of one sequence on one GPU

CACHES = {
    # dense, 8 KV heads of 128 (GQA)
    "llama-3.1-8b": lambda s: 32 * KV * 8 * 128 * BF16 * s,
    "llama-3.1-70b": lambda s: 80 * KV * 8 * 128 * BF16 * s,
    "llama-3.1-405b": lambda s: 126 * KV * 8 * 128 * BF16 * s,
    # every head has keys and values of its own (MHA): 32 heads of 4096 / 32; 12 heads of 768 / 12
    "llama-2-7b": lambda s: 32 * KV * 32 * 128 * BF16 * s,
    "opt-125m": lambda s: 12 * KV * 12 * 64 * BF16 * s,
    # multi_query: one KV head of 4544 / 71, though the config says num_kv_heads 71
    "falcon-7b": lambda s: 32 * KV * 1 * 64 * BF16 * s,
    # heads of 128 although hidden / heads is 64, 160, 53.3
    "qwen3-0.6b": lambda s: 28 * KV * 8 * 128 * BF16 * s,
    "mistral-small-24b-2501": lambda s: 40 * KV * 8 * 128 * BF16 * s,
    "glm-4.5": lambda s: 92 * KV * 8 * 128 * BF16 * s,
    # experts and a query-key norm over all heads change nothing
    "mixtral-8x7b": lambda s: 32 * KV * 8 * 128 * BF16 * s,
    "minimax-m2": lambda s: 62 * KV * 8 * 128 * BF16 * s,
    # every layer slides over 4,096 tokens in version 0.1, none in 0.3
    "mistral-7b-v0.1": lambda s: 32 * KV * 8 * 128 * BF16 * min(s, 4096),
    "mistral-7b-v0.3": lambda s: 32 * KV * 8 * 128 * BF16 * s,
    # every other layer slides: 23 of 46, 18 of 36, 12 of 24
    "gemma-2-27b": lambda s: KV * 16 * 128 * BF16 * (23 * min(s, 4096) + 23 * s),
    "gpt-oss-120b": lambda s: KV * 8 * 64 * BF16 * (18 * min(s, 128) + 18 * s),
    "gpt-oss-20b": lambda s: KV * 8 * 64 * BF16 * (12 * min(s, 128) + 12 * s),
    # layers 6, 12, ... see everything: 10 of 62, 4 of 26
    "gemma-3-27b": lambda s: KV * 16 * 128 * BF16 * (52 * min(s, 1024) + 10 * s),
    "gemma-3-1b": lambda s: KV * 1 * 256 * BF16 * (22 * min(s, 512) + 4 * s),
    # full layers have heads twice as wide and fewer KV heads; one projection, but keys are rotated and values are not
    "gemma-4-31b": lambda s: KV * BF16 * (50 * 16 * 256 * min(s, 1024) + 10 * 4 * 512 * s),
    "gemma-4-26b-a4b": lambda s: KV * BF16 * (25 * 8 * 256 * min(s, 1024) + 5 * 2 * 512 * s),
    # 3 of 4 layers restart at multiples of 8,192
    "llama-4-scout": lambda s: KV * 8 * 128 * BF16 * (36 * min(s, 8192) + 12 * s),
    "llama-4-maverick": lambda s: KV * 8 * 128 * BF16 * (36 * min(s, 8192) + 12 * s),
    # keys of 192 and values of 128; 39 layers slide over 128 tokens with 8 KV heads, 9 are full with 4
    "mimo-v2-flash": lambda s: (192 + 128) * BF16 * (39 * 8 * min(s, 128) + 9 * 4 * s),
    # one latent of 512 and one rotary key of 64 for all heads
    "deepseek-v3": lambda s: 61 * (512 + 64) * BF16 * s,
    "deepseek-v2-lite": lambda s: 27 * (512 + 64) * BF16 * s,
    "kimi-k2-instruct": lambda s: 61 * (512 + 64) * BF16 * s,
    "glm-4.7-flash": lambda s: 47 * (512 + 64) * BF16 * s,
    # the same alongside one index key of 128 in every layer that has an indexer: all 61, all 78, 21 of 78
    "deepseek-v3.2": lambda s: (61 * (512 + 64) + 61 * 128) * BF16 * s,
    "glm-5": lambda s: (78 * (512 + 64) + 78 * 128) * BF16 * s,
    "glm-5.2": lambda s: (78 * (512 + 64) + 21 * 128) * BF16 * s,
    # every layer: the last 128 vectors of 512; 31 or 20 layers: one more per 128 tokens; 30 or 21: one more and an
    # index key of 128 per 4 tokens
    "deepseek-v4-pro": lambda s: BF16 * (61 * 512 * min(s, 128) + 31 * 512 * (s // 128) + 30 * (512 + 128) * (s // 4)),
    "deepseek-v4-flash": lambda s: (
        BF16 * (43 * 512 * min(s, 128) + 20 * 512 * (s // 128) + 21 * (512 + 128) * (s // 4))
    ),
    # 3 of 4 layers: 32 (48, 64) states of 128 x 128 in float32, the last 3 inputs of a convolution over 16 query and
    # 16 key heads and all value heads of 128; the others 2 (4, 2) KV heads of 256
    "qwen3-next-80b-a3b": lambda s: (
        12 * KV * 2 * 256 * BF16 * s + 36 * (32 * 128 * 128 * FP32 + (16 + 16 + 32) * 128 * 3 * BF16)
    ),
    "qwen3.5-27b": lambda s: (
        16 * KV * 4 * 256 * BF16 * s + 48 * (48 * 128 * 128 * FP32 + (16 + 16 + 48) * 128 * 3 * BF16)
    ),
    "qwen3.5-397b-a17b": lambda s: (
        15 * KV * 2 * 256 * BF16 * s + 45 * (64 * 128 * 128 * FP32 + (16 + 16 + 64) * 128 * 3 * BF16)
    ),
    # 20 (69) layers: 32 (96) states of 128 x 128, three convolutions over as many heads; 7 (24) layers: latent and
    # rotary key
    "kimi-linear-48b-a3b": lambda s: 7 * (512 + 64) * BF16 * s + 20 * (32 * 128 * 128 * FP32 + 3 * 32 * 128 * 3 * BF16),
    "kimi-k3": lambda s: 24 * (512 + 64) * BF16 * s + 69 * (96 * 128 * 128 * FP32 + 3 * 96 * 128 * 3 * BF16),
    # 54 (23, 40, 48) layers: a state of heads x 64 x 256 (128), the last 3 inputs of a convolution over heads x 64
    # channels and twice 8 groups of 256 (128); 10 (6, 8, 12) layers: 8 (2) KV heads of 128
    "nemotron-h-56b": lambda s: (
        10 * KV * 8 * 128 * BF16 * s + 54 * (256 * 64 * 256 * FP32 + (256 * 64 + 2 * 8 * 256) * 3 * BF16)
    ),
    "nemotron-3-nano-30b-a3b": lambda s: (
        6 * KV * 2 * 128 * BF16 * s + 23 * (64 * 64 * 128 * FP32 + (64 * 64 + 2 * 8 * 128) * 3 * BF16)
    ),
    "nemotron-3-super-120b-a12b-fp8": lambda s: (
        8 * KV * 2 * 128 * BF16 * s + 40 * (128 * 64 * 128 * FP32 + (128 * 64 + 2 * 8 * 128) * 3 * BF16)
    ),
    "nemotron-3-ultra-550b-a55b": lambda s: (
        12 * KV * 2 * 128 * BF16 * s + 48 * (256 * 64 * 128 * FP32 + (256 * 64 + 2 * 8 * 128) * 3 * BF16)
    ),
    # 70 layers: 64 states of 128 x 128, no convolution; 10 layers: 8 KV heads of 128
    "minimax-m1": lambda s: 10 * KV * 8 * 128 * BF16 * s + 70 * 64 * 128 * 128 * FP32,
    # 57 of 60 layers choose blocks: one index key of 128 per token; nothing is dropped from the cache
    "minimax-m3": lambda s: 60 * KV * 4 * 128 * BF16 * s + 57 * 128 * BF16 * s,
}


@pytest.mark.parametrize("model", CACHES)
def test_cache_hand_computed(model):
    assert size(model, seq_len=LENGTHS) == [CACHES[model](s) for s in LENGTHS]


def test_the_numbers_of_the_notes():
    per_token = {"llama-3.1-8b": 131_072, "llama-3.1-70b": 327_680, "llama-3.1-405b": 516_096, "falcon-7b": 8_192}
    per_token |= {"deepseek-v3": 70_272, "mistral-small-24b-2501": 163_840}
    assert {model: CACHES[model](1) for model in per_token} == per_token
    assert CACHES["qwen3-next-80b-a3b"](1) - CACHES["qwen3-next-80b-a3b"](0) == 24_576
    convolution = 64 * 128 * 3 * BF16  # rows of query, key and value heads
    assert CACHES["qwen3-next-80b-a3b"](0) - 36 * convolution == pytest.approx(75.5e6, abs=0.05e6)
    assert CACHES["qwen3.5-397b-a17b"](0) - 45 * convolution * 96 // 64 == pytest.approx(188.7e6, abs=0.05e6)


SHARDED = {
    # 8 KV heads: one each; two of them each; copied on 16 ranks
    ("llama-3.1-70b", 8): lambda s: 80 * KV * 1 * 128 * BF16 * s,
    ("llama-3.1-70b", 4): lambda s: 80 * KV * 2 * 128 * BF16 * s,
    ("llama-3.1-70b", 16): lambda s: 80 * KV * 1 * 128 * BF16 * s,
    ("llama-2-7b", 8): lambda s: 32 * KV * 4 * 128 * BF16 * s,
    # 4 KV heads on 8 ranks, the one head of multi-query on 71
    ("qwen3-235b-a22b", 8): lambda s: 94 * KV * 1 * 128 * BF16 * s,
    ("falcon-7b", 71): lambda s: 32 * KV * 1 * 64 * BF16 * s,
    ("gemma-3-27b", 8): lambda s: KV * 2 * 128 * BF16 * (52 * min(s, 1024) + 10 * s),
    ("gpt-oss-120b", 8): lambda s: KV * 1 * 64 * BF16 * (18 * min(s, 128) + 18 * s),
    ("llama-4-scout", 4): lambda s: KV * 2 * 128 * BF16 * (36 * min(s, 8192) + 12 * s),
    # 8 KV heads of sliding layers are divided, 4 of full layers copied
    ("mimo-v2-flash", 8): lambda s: (192 + 128) * BF16 * (39 * 1 * min(s, 128) + 9 * 1 * s),
    ("gemma-4-31b", 8): lambda s: KV * BF16 * (50 * 2 * 256 * min(s, 1024) + 10 * 1 * 512 * s),
    ("gemma-4-26b-a4b", 8): lambda s: KV * BF16 * (25 * 1 * 256 * min(s, 1024) + 5 * 1 * 512 * s),
    # latents, index keys and compressed entries are of all heads: copied
    ("deepseek-v3", 8): lambda s: 61 * (512 + 64) * BF16 * s,
    ("glm-4.7-flash", 4): lambda s: 47 * (512 + 64) * BF16 * s,
    ("deepseek-v3.2", 8): lambda s: (61 * (512 + 64) + 61 * 128) * BF16 * s,
    ("glm-5.2", 8): lambda s: (78 * (512 + 64) + 21 * 128) * BF16 * s,
    ("deepseek-v4-flash", 8): lambda s: (
        BF16 * (43 * 512 * min(s, 128) + 20 * 512 * (s // 128) + 21 * (512 + 128) * (s // 4))
    ),
    ("minimax-m3", 8): lambda s: 60 * KV * 1 * 128 * BF16 * s + 57 * 128 * BF16 * s,
    # value heads and key heads of the state are divided by 8; 2 KV heads copied
    ("qwen3-next-80b-a3b", 8): lambda s: (
        12 * KV * 1 * 256 * BF16 * s + 36 * (4 * 128 * 128 * FP32 + (2 + 2 + 4) * 128 * 3 * BF16)
    ),
    ("qwen3.5-397b-a17b", 16): lambda s: (
        15 * KV * 1 * 256 * BF16 * s + 45 * (4 * 128 * 128 * FP32 + (1 + 1 + 4) * 128 * 3 * BF16)
    ),
    ("kimi-linear-48b-a3b", 8): lambda s: (
        7 * (512 + 64) * BF16 * s + 20 * (4 * 128 * 128 * FP32 + 3 * 4 * 128 * 3 * BF16)
    ),
    ("kimi-k3", 8): lambda s: 24 * (512 + 64) * BF16 * s + 69 * (12 * 128 * 128 * FP32 + 3 * 12 * 128 * 3 * BF16),
    # heads divided; 8 groups divided by 8, and copied on 16 ranks
    ("nemotron-3-nano-30b-a3b", 8): lambda s: (
        6 * KV * 1 * 128 * BF16 * s + 23 * (8 * 64 * 128 * FP32 + (8 * 64 + 2 * 1 * 128) * 3 * BF16)
    ),
    ("nemotron-h-56b", 16): lambda s: (
        10 * KV * 1 * 128 * BF16 * s + 54 * (16 * 64 * 256 * FP32 + (16 * 64 + 2 * 1 * 256) * 3 * BF16)
    ),
    ("minimax-m1", 8): lambda s: 10 * KV * 1 * 128 * BF16 * s + 70 * 8 * 128 * 128 * FP32,
}


@pytest.mark.parametrize(("model", "tp"), SHARDED)
def test_cache_of_one_of_several_gpus_hand_computed(model, tp):
    assert size(model, seq_len=LENGTHS, tp=tp) == [SHARDED[model, tp](s) for s in LENGTHS]


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3.2", "deepseek-v4-flash", "qwen3-next-80b-a3b"])
def test_data_parallel_ranks_and_experts_change_no_sequence(model):
    layout = {"tp": 2, "dp": 4, "ep": 1 if model.startswith("llama") else 8}
    assert size(model, seq_len=LENGTHS, **layout) == size(model, seq_len=LENGTHS, tp=2)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v4-pro", "kimi-k3", "minimax-m1"])
def test_a_prefill_holds_prompt_and_cached_tokens(model):
    cached = cx.Options(on_infeasible="ignore", cached_tokens=5000)
    assert size(model, seq_len=LENGTHS, phase="prefill") == [CACHES[model](s) for s in LENGTHS]
    assert size(model, seq_len=LENGTHS, phase="prefill", options=cached) == [CACHES[model](s + 5000) for s in LENGTHS]


# ---- 8-bit caches: neither states nor convolutions shrink; index keys are 128 bytes and a scale of 4

FP8_KV = {
    "llama-3.1-8b": lambda s: 32 * KV * 8 * 128 * s,
    "deepseek-v3": lambda s: 61 * (512 + 64) * s,
    "deepseek-v3.2": lambda s: 61 * (512 + 64) * s + 61 * 132 * s,
    "deepseek-v4-flash": lambda s: (
        43 * 512 * min(s, 128) + 20 * 512 * (s // 128) + 21 * 512 * (s // 4) + 21 * 132 * (s // 4)
    ),
    "qwen3-next-80b-a3b": lambda s: (
        12 * KV * 2 * 256 * s + 36 * (32 * 128 * 128 * FP32 + (16 + 16 + 32) * 128 * 3 * BF16)
    ),
    "nemotron-3-nano-30b-a3b": lambda s: (
        6 * KV * 2 * 128 * s + 23 * (64 * 64 * 128 * FP32 + (64 * 64 + 2 * 8 * 128) * 3 * BF16)
    ),
    "minimax-m3": lambda s: 60 * KV * 4 * 128 * s + 57 * 132 * s,
}


@pytest.mark.parametrize("model", FP8_KV)
def test_cache_in_8_bits_hand_computed(model):
    assert size(model, seq_len=LENGTHS, precision="fp8-kv8") == [FP8_KV[model](s) for s in LENGTHS]


# ---- drafters keep a cache of their own

MTP = {
    # one more layer of the kind it is: latent; latent with an indexer of its own; window alone; full attention
    "deepseek-v3": lambda s: 62 * (512 + 64) * BF16 * s,
    "glm-5.2": lambda s: (79 * (512 + 64) + 22 * 128) * BF16 * s,
    "deepseek-v4-pro": lambda s: CACHES["deepseek-v4-pro"](s) + 512 * min(s, 128) * BF16,
    "qwen3-next-80b-a3b": lambda s: CACHES["qwen3-next-80b-a3b"](s) + KV * 2 * 256 * BF16 * s,
    "nemotron-3-super-120b-a12b-fp8": lambda s: CACHES["nemotron-3-super-120b-a12b-fp8"](s) + KV * 2 * 128 * BF16 * s,
}


@pytest.mark.parametrize("model", MTP)
def test_cache_of_the_mtp_module_hand_computed(model):
    drafts = cx.Options(on_infeasible="ignore", draft_tokens=1, drafter="mtp")
    assert size(model, seq_len=LENGTHS, options=drafts) == [MTP[model](s) for s in LENGTHS]


def test_a_draft_model_adds_its_cache_and_weights():
    drafts = cx.Options(on_infeasible="ignore", draft_tokens=3, drafter="llama-3.1-8b")
    both = [CACHES["llama-3.1-70b"](s) + CACHES["llama-3.1-8b"](s) for s in LENGTHS[:8]]
    assert size("llama-3.1-70b", seq_len=LENGTHS[:8], options=drafts) == both
    weights = WEIGHTS["llama-3.1-70b"] + WEIGHTS["llama-3.1-8b"]
    assert size("llama-3.1-70b", "weight_bytes", options=drafts) == weights * BF16


# ---- weights: elements of all matrices

EXPERT_V3 = 3 * 7168 * 2048  # gate, up, down; the shared expert is as wide
LATENT_V3 = 7168 * 1536 + 1536 * 128 * (128 + 64) + 7168 * (512 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * 7168
DENSE_V3 = 3 * 7168 * 18432
LATENT_GLM5 = 6144 * 2048 + 2048 * 64 * (192 + 64) + 6144 * (512 + 64) + 512 * 64 * (192 + 256) + 64 * 256 * 6144
INDEXER_GLM5 = 2048 * 32 * 128 + 6144 * 128 + 6144 * 32  # queries, one key, one weight per head
V4_FLASH_COPIED = 4096 * 1024 + 4096 * 512  # query latent, the vector that is key and value
V4_FLASH_SHARDED = 1024 * 64 * 512 + (64 * 512 // 8) * 8 * 1024 + 8 * 1024 * 4096  # queries, output in 8 groups
V4_FLASH_CSA = 4096 * 2 * 2 * 512 + 1024 * 64 * 128 + 4096 * 64 + 4096 * 2 * 2 * 128  # entries, indexer, its entries
V4_FLASH_HCA = 4096 * 2 * 512
V4_FLASH_STREAMS = 2 * (4 * 4096) * (4 + 4 + 4 * 4)  # mixing of 4 streams before attention and before the experts
V4_FLASH_EXPERT = 3 * 4096 * 2048
NEXT_EXPERT = 3 * 2048 * 512

WEIGHTS = {
    # embedding and head; queries, keys, values, output; gate, up, down
    "llama-3.1-8b": 2 * 128256 * 4096 + 32 * (4096 * (32 + 8 + 8 + 32) * 128 + 3 * 4096 * 14336),
    "llama-3.1-70b": 2 * 128256 * 8192 + 80 * (8192 * (64 + 8 + 8 + 64) * 128 + 3 * 8192 * 28672),
    # heads of 128 are 2,048 wide alongside a hidden width of 1,024; tied
    "qwen3-0.6b": 151936 * 1024 + 28 * (1024 * (16 + 8 + 8 + 16) * 128 + 3 * 1024 * 3072),
    # tied; one KV head; MLP of 4 x 4544 without a gate
    "falcon-7b": 65024 * 4544 + 32 * (4544 * (71 + 1 + 1 + 71) * 64 + 2 * 4544 * 4 * 4544),
    # tied; vision tower and projector
    "gemma-3-27b": 262208 * 5376 + 62 * (5376 * (32 + 16 + 16 + 32) * 128 + 3 * 5376 * 21504) + 423_060_336,
    # tied; sliding layers; full layers with 2 KV heads of 512 and no value projection; experts alongside a dense MLP
    "gemma-4-26b-a4b": 262144 * 2816
    + 25 * 2816 * (16 + 8 + 8 + 16) * 256
    + 5 * 2816 * (16 + 2 + 16) * 512
    + 30 * (3 * 2816 * 2112 + 128 * 3 * 2816 * 704 + 2816 * 128)
    + 572_794_416,
    # every layer: attention, router, 128 experts
    "gpt-oss-120b": 2 * 201088 * 2880 + 36 * (2880 * (64 + 8 + 8 + 64) * 64 + 2880 * 128 + 128 * 3 * 2880 * 2880),
    # keys of 192, values of 128; 9 full layers with 4 KV heads, 39 with 8; the first layer is dense
    "mimo-v2-flash": 2 * 152576 * 4096
    + 9 * 4096 * (64 * 192 + 4 * 192 + 4 * 128 + 64 * 128)
    + 39 * 4096 * (64 * 192 + 8 * 192 + 8 * 128 + 64 * 128)
    + 3 * 4096 * 16384
    + 47 * (4096 * 256 + 256 * 3 * 4096 * 2048),
    # every second layer has one of 128 experts and a shared one, the others are 16,384 wide; vision tower
    "llama-4-maverick": 2 * 202048 * 5120
    + 48 * 5120 * (40 + 8 + 8 + 40) * 128
    + 24 * (5120 * 128 + (128 + 1) * 3 * 5120 * 8192)
    + 24 * 3 * 5120 * 16384
    + 871_932_416,
    "deepseek-v3": 2 * 129280 * 7168 + 61 * LATENT_V3 + 3 * DENSE_V3 + 58 * (7168 * 256 + (256 + 1) * EXPERT_V3),
    # indexers in 21 layers only
    "glm-5.2": 2 * 154880 * 6144
    + 78 * LATENT_GLM5
    + 21 * INDEXER_GLM5
    + 3 * 3 * 6144 * 12288
    + 75 * (6144 * 256 + (256 + 1) * 3 * 6144 * 2048),
    "deepseek-v4-flash": 2 * 129280 * 4096
    + 43 * (V4_FLASH_COPIED + V4_FLASH_SHARDED + V4_FLASH_STREAMS)
    + 21 * V4_FLASH_CSA
    + 20 * V4_FLASH_HCA
    + 43 * (4096 * 256 + (256 + 1) * V4_FLASH_EXPERT),
    # linear layers: queries, keys, values, gate; decay and write strength per value head; convolution of 4; output.
    # Full layers: queries and their gate, keys, values, output. Shared expert with a gate of its own
    "qwen3-next-80b-a3b": 2 * 151936 * 2048
    + 36 * (2048 * (2048 + 2048 + 4096 + 4096) + 2048 * 2 * 32 + (2048 + 2048 + 4096) * 4 + 4096 * 2048)
    + 12 * 2048 * (16 + 16 + 2 + 2 + 16) * 256
    + 48 * (2048 * 512 + (512 + 1) * NEXT_EXPERT + 2048),
    # delta layers: queries, keys, values, output; three convolutions of 4; decay and gate by way of 128; write
    # strength. Latent layers without a query latent
    "kimi-linear-48b-a3b": 2 * 163840 * 2304
    + 20 * (2304 * 4 * 4096 + 3 * 4096 * 4 + 2 * (2304 * 128 + 128 * 4096) + 2304 * 32)
    + 7 * (2304 * 32 * (128 + 64) + 2304 * (512 + 64) + 512 * 32 * (128 + 128) + 32 * 128 * 2304)
    + 3 * 2304 * 9216
    + 26 * (2304 * 256 + (256 + 1) * 3 * 2304 * 1024),
    # Mamba-2: gate and input of 64 x 64, two of 8 x 128, a step per head; convolution; output. MLPs have two matrices
    "nemotron-3-nano-30b-a3b": 2 * 131072 * 2688
    + 23 * (2688 * (2 * 4096 + 2 * 1024 + 64) + (4096 + 2 * 1024) * 4 + 4096 * 2688)
    + 6 * 2688 * (32 + 2 + 2 + 32) * 128
    + 23 * (2688 * 128 + 128 * 2 * 2688 * 1856 + 2 * 2688 * 3712),
    # lightning: queries, keys, values, gate, output
    "minimax-m1": 2 * 200064 * 6144
    + 70 * 6144 * 5 * 64 * 128
    + 10 * 6144 * (64 + 8 + 8 + 64) * 128
    + 80 * (6144 * 32 + 32 * 3 * 6144 * 9216),
}


@pytest.mark.parametrize("model", WEIGHTS)
def test_weights_hand_computed(model):
    assert size(model, "weight_bytes") == WEIGHTS[model] * BF16


@pytest.mark.parametrize("model", WEIGHTS)
def test_what_is_left_out_of_memory_is_small(model):
    """Norms, biases, sinks and lookup tables: below 0.04 % of the parameters, and never negative."""
    record = cx.load_model(model)
    left_out = record.n_parameters + record.vision_parameters - WEIGHTS[model]
    assert 0 < left_out < 4e-4 * WEIGHTS[model]


SHARDED_WEIGHTS = {
    # everything is divided; 8 KV heads too
    ("llama-3.1-70b", (8, 1, 1)): WEIGHTS["llama-3.1-70b"] / 8,
    # 16 ranks copy 8 KV heads: keys and values of one head each
    ("llama-3.1-70b", (16, 1, 1)): 2 * 128256 * 8192 / 16 + 80 * (8192 * (4 + 1 + 1 + 4) * 128 + 3 * 8192 * 28672 / 16),
    ("gemma-3-27b", (8, 1, 1)): WEIGHTS["gemma-3-27b"] / 8,
    # routers are copied; experts are divided by columns, or dealt out whole
    ("gpt-oss-120b", (8, 1, 1)): (WEIGHTS["gpt-oss-120b"] - 36 * 2880 * 128) / 8 + 36 * 2880 * 128,
    ("gpt-oss-120b", (8, 1, 8)): (WEIGHTS["gpt-oss-120b"] - 36 * 2880 * 128) / 8 + 36 * 2880 * 128,
    ("gpt-oss-120b", (1, 8, 8)): 2 * 201088 * 2880
    + 36 * (2880 * (64 + 8 + 8 + 64) * 64 + 2880 * 128 + 16 * 3 * 2880 * 2880),
    # query latent, latent and rotary key come from matrices that every rank has, as the router
    ("deepseek-v3", (8, 1, 1)): (WEIGHTS["deepseek-v3"] - 61 * 7168 * (1536 + 512 + 64) - 58 * 7168 * 256) / 8
    + 61 * 7168 * (1536 + 512 + 64)
    + 58 * 7168 * 256,
    # data-parallel attention: everything but the experts on every rank
    ("deepseek-v3", (1, 8, 8)): WEIGHTS["deepseek-v3"] - 58 * (256 - 32) * EXPERT_V3,
    ("deepseek-v3", (1, 64, 64)): WEIGHTS["deepseek-v3"] - 58 * (256 - 4) * EXPERT_V3,
    # the indexer too
    ("glm-5.2", (8, 1, 1)): (WEIGHTS["glm-5.2"] - 78 * 6144 * (2048 + 512 + 64) - 21 * INDEXER_GLM5 - 75 * 6144 * 256)
    / 8
    + 78 * 6144 * (2048 + 512 + 64)
    + 21 * INDEXER_GLM5
    + 75 * 6144 * 256,
    # query latent, keys, compressors, indexer, mixing of streams and router on every rank
    ("deepseek-v4-flash", (8, 1, 1)): (2 * 129280 * 4096 + 43 * V4_FLASH_SHARDED + 43 * (256 + 1) * V4_FLASH_EXPERT) / 8
    + 43 * (V4_FLASH_COPIED + V4_FLASH_STREAMS + 4096 * 256)
    + 21 * V4_FLASH_CSA
    + 20 * V4_FLASH_HCA,
    ("deepseek-v4-flash", (1, 8, 8)): WEIGHTS["deepseek-v4-flash"] - 43 * (256 - 32) * V4_FLASH_EXPERT,
    # 2 KV heads copied on 4 ranks; router and gate of the shared expert on every rank
    ("qwen3-next-80b-a3b", (4, 1, 1)): (
        WEIGHTS["qwen3-next-80b-a3b"] - 12 * 2048 * (2 + 2) * 256 - 48 * (2048 * 512 + 2048)
    )
    / 4
    + 12 * 2048 * (1 + 1) * 256
    + 48 * (2048 * 512 + 2048),
    # the narrow halves of decay and gate, the latent and the router on every rank
    ("kimi-linear-48b-a3b", (8, 1, 1)): (
        WEIGHTS["kimi-linear-48b-a3b"] - 20 * 2 * 2304 * 128 - 7 * 2304 * (512 + 64) - 26 * 2304 * 256
    )
    / 8
    + 20 * 2 * 2304 * 128
    + 7 * 2304 * (512 + 64)
    + 26 * 2304 * 256,
    # 8 groups divided, 2 KV heads copied
    ("nemotron-3-nano-30b-a3b", (8, 1, 1)): (
        WEIGHTS["nemotron-3-nano-30b-a3b"] - 6 * 2688 * (2 + 2) * 128 - 23 * 2688 * 128
    )
    / 8
    + 6 * 2688 * (1 + 1) * 128
    + 23 * 2688 * 128,
}


@pytest.mark.parametrize(("model", "layout"), SHARDED_WEIGHTS)
def test_weights_of_one_of_several_gpus_hand_computed(model, layout):
    degrees = dict(zip(("tp", "dp", "ep"), layout, strict=True))
    assert size(model, "weight_bytes", **degrees) == SHARDED_WEIGHTS[model, layout] * BF16


def test_redundant_experts_take_memory():
    spare = cx.Options(on_infeasible="ignore", redundant_experts=32)
    more = SHARDED_WEIGHTS["deepseek-v3", (1, 8, 8)] + 58 * 4 * EXPERT_V3
    assert size("deepseek-v3", "weight_bytes", dp=8, ep=8, options=spare) == more * BF16


def test_weights_of_the_mtp_module():
    """Its layer and the projection of state and embedding; embedding and head are those of the model."""
    drafts = cx.Options(on_infeasible="ignore", draft_tokens=1, drafter="mtp")
    module = LATENT_V3 + 7168 * 256 + (256 + 1) * EXPERT_V3 + 2 * 7168 * 7168
    assert size("deepseek-v3", "weight_bytes", options=drafts) == (WEIGHTS["deepseek-v3"] + module) * BF16


def test_weights_by_class_of_precision():
    """Experts in 4 bits and a scale of 8 per 32 elements; the rest as the published checkpoints have it."""
    experts = 36 * 128 * 3 * 2880 * 2880
    rest = WEIGHTS["gpt-oss-120b"] - experts
    assert size("gpt-oss-120b", "weight_bytes", precision="mxfp4-experts") == experts * (0.5 + 1 / 32) + rest * BF16
    routed = 43 * 256 * V4_FLASH_EXPERT
    compressors = 21 * (V4_FLASH_CSA - 1024 * 64 * 128) + 20 * V4_FLASH_HCA  # with the indexer's weights per head
    wide = 2 * 129280 * 4096 + 43 * (4096 * 256 + V4_FLASH_STREAMS) + compressors  # as embedding, head, routers: bf16
    fp8 = WEIGHTS["deepseek-v4-flash"] - routed - wide
    mixed = routed * (0.5 + 1 / 32) + fp8 + wide * BF16
    assert size("deepseek-v4-flash", "weight_bytes", precision="fp8-fp4-experts") == mixed
