"""Hugging Face configs: read exactly, or rejected."""

import pytest

import cheetah_xr as cx
from cheetah_xr.specs.huggingface.readers import READERS, SUPPORTED
from tests.helpers.config_edits import ALL, architecture, changed, without
from tests.helpers.configs import CONFIGS, FULL, SLIDES
from tests.helpers.configs_beyond import BEYOND, COUNTS, blocks

NOT_IN_THE_CONFIG = {
    "qwen3-next-80b-a3b": {"mtp"},
    "minimax-m3": {"vision_parameters"},
    "falcon-7b": {"max_seq_len"},
    "gemma-3-27b": {"max_seq_len"},
    "glm-4.5": set(),
}
"""What the catalogue knows from elsewhere."""


def test_every_supported_family_has_a_config_here():
    inner = {c["text_config"].get("model_type") for c in ALL.values() if "text_config" in c}
    assert {c["model_type"] for c in ALL.values()} | inner - {None} == set(SUPPORTED)
    assert set(READERS) <= set(SUPPORTED)


@pytest.mark.parametrize("name", CONFIGS)
def test_config_and_catalogue_are_the_same_architecture(name):
    other = NOT_IN_THE_CONFIG.get(name, set())
    assert architecture(CONFIGS[name], other) == architecture(name, other)


@pytest.mark.parametrize("name", BEYOND)
def test_counts_of_families_the_catalogue_does_not_have(name):
    model = cx.load_model(BEYOND[name])
    assert (model.n_parameters, model.n_parameters_mtp, model.vision_parameters) == COUNTS[name][:3]
    assert model.n_parameters_checkpoint == COUNTS[name][3]


def test_a_family_inside_a_wrapper_is_the_same_family():
    assert architecture(BEYOND["minimax-m3-vl"]) == architecture("minimax-m3")
    other = {"max_seq_len", "vision_parameters"}
    assert architecture(BEYOND["qwen3-vl-2b"], other) == architecture("qwen3-1.7b", other)
    assert architecture(BEYOND["qwen3-vl-30b-a3b"], other) == architecture("qwen3-30b-a3b", other)


def test_text_models_of_wrappers_stand_alone():
    for name, config in ALL.items():
        if "model_type" in config.get("text_config", {}):
            tied = config.get("tie_word_embeddings")
            text = config["text_config"] | ({} if tied is None else {"tie_word_embeddings": tied})
            assert architecture(text, {"vision_parameters"}) == architecture(config, {"vision_parameters"}), name


# ---- details that change work


def groups(config, *fields):
    return [tuple(getattr(g, f) for f in ("count", *fields)) for g in cx.load_model(config).groups]


def test_windows_and_chunks():
    assert groups(CONFIGS["mistral-7b-v0.1"], "window") == [(32, 4096)]
    assert groups(changed("mistral-7b-v0.1", sliding_window=None), "window") == [(32, None)]
    assert groups(changed("mixtral-8x7b", sliding_window=4096), "window") == [(32, 4096)]
    assert groups(CONFIGS["qwen2.5-7b"], "window") == [(28, None)]
    some = {"use_sliding_window": True, "sliding_window": 4096, "layer_types": [FULL] * 14 + [SLIDES] * 14}
    assert groups(changed("qwen2.5-7b", **some), "window") == [(14, None), (14, 4096)]
    assert groups(CONFIGS["gemma-2-27b"], "window") == [(23, 4096), (23, None)]
    assert groups(CONFIGS["gemma-3-27b"], "window") == [(52, 1024), (10, None)]
    assert groups(changed("gemma-3-1b", layer_types=[SLIDES] * 25 + [FULL]), "window") == [(25, 512), (1, None)]
    assert groups(CONFIGS["gpt-oss-20b"], "window", "sinks") == [(12, 128, True), (12, None, True)]
    assert groups(CONFIGS["llama-4-maverick"], "chunk", "mlp", "rotary") == [
        (24, 8192, "dense", None),
        (12, 8192, "moe", None),
        (12, None, "moe", 0.0),
    ]
    every_third = changed("llama-4-maverick", no_rope_layers=[1, 1, 0] * 16)
    assert sum(count for count, chunk in groups(every_third, "chunk") if chunk is None) == 16
    assert groups(CONFIGS["mimo-v2-flash"], "window", "n_kv_heads", "sinks", "mlp") == [
        (1, None, None, False, "dense"),
        (39, 128, 8, True, "moe"),
        (8, None, None, False, "moe"),
    ]


def test_sparse_and_compressed_attention():
    assert groups(CONFIGS["glm-5.2"], "mlp", "indexer") == [
        (3, "dense", "own"),
        (57, "moe", "shared"),
        (18, "moe", "own"),
    ]
    before = without("glm-5.2", "indexer_types", "index_topk_freq")
    assert groups(before, "mlp", "indexer") == [(3, "dense", "own"), (75, "moe", "own")]
    assert groups(CONFIGS["minimax-m3"], "mlp", "indexer") == [(3, "dense", "none"), (57, "moe", "own")]
    assert cx.load_model(CONFIGS["minimax-m3"]).index_top_k == 17 * 128
    assert groups(CONFIGS["deepseek-v4-flash"], "compress", "indexer", "hash_routing") == [
        (2, None, "none", True),
        (1, 4, "own", True),
        (20, 128, "none", False),
        (20, 4, "own", False),
    ]


def test_mixers_of_hybrids():
    assert groups(CONFIGS["qwen3.5-27b"], "attention") == [(48, "deltanet"), (16, "gqa")]
    every_other = changed("qwen3-next-80b-a3b", full_attention_interval=2)
    assert groups(every_other, "attention") == [(24, "deltanet"), (24, "gqa")]
    assert groups(CONFIGS["kimi-linear-48b-a3b"], "attention", "mlp") == [
        (1, "kda", "dense"),
        (19, "kda", "moe"),
        (7, "mla", "moe"),
    ]
    assert groups(CONFIGS["minimax-m1"], "attention") == [(70, "lightning"), (10, "gqa")]
    assert groups(CONFIGS["nemotron-h-56b"], "attention", "mlp") == [
        (54, "mamba2", "none"),
        (54, "none", "dense"),
        (10, "gqa", "none"),
    ]
    named = without("nemotron-h-56b", "hybrid_override_pattern", "num_hidden_layers")
    named["layers_block_type"] = ["mamba", "mlp", "attention"] * 5
    assert groups(named, "attention", "mlp") == [(5, "mamba2", "none"), (5, "none", "dense"), (5, "gqa", "none")]


def test_experts_in_some_layers():
    assert groups(changed("qwen3-30b-a3b", decoder_sparse_step=2), "mlp") == [(24, "dense"), (24, "moe")]
    some = changed("qwen3-30b-a3b", mlp_only_layers=[0, 1])
    assert groups(some, "mlp") == [(2, "dense"), (46, "moe")]
    assert cx.load_model(some).intermediate == 6144
    assert groups(changed("llama-4-maverick", moe_layers=[0, 5]), "mlp")[0] == (2, "moe")
    assert groups(changed("deepseek-v3", first_k_dense_replace=0), "mlp") == [(61, "moe")]
    assert cx.load_model(changed("deepseek-v3", n_shared_experts=None)).shared_intermediate == 0


def test_biases_norms_and_heads():
    assert (
        cx.load_model(changed("llama-3.1-8b", tie_word_embeddings=True)).n_parameters == 8_030_261_248 - 128256 * 4096
    )
    biased = cx.load_model(changed("llama-3.1-8b", attention_bias=True, mlp_bias=True))
    assert biased.n_parameters - 8_030_261_248 == 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    assert cx.load_model(without("llama-3.1-8b", "num_key_value_heads")).n_kv_heads == 32
    assert cx.load_model(changed("falcon-7b", multi_query=False)).n_kv_heads == 71
    sequential = cx.load_model(changed("falcon-7b", parallel_attn=False, bias=True))
    assert (sequential.parallel_blocks, sequential.norms_per_layer, sequential.mlp_bias) == (False, 4, True)
    air = cx.load_model(changed("glm-4.5", use_qk_norm=False))
    assert (air.qk_norm, air.rotary, air.qkv_bias, air.o_bias) == ("none", 0.5, True, False)
    assert cx.load_model(changed("minimax-m2.5", use_qk_norm=False)).qk_norm == "none"
    assert cx.load_model(changed("deepseek-v3", q_lora_rank=None)).q_lora_rank == 0
    assert groups(CONFIGS["gemma-4-31b"], "n_kv_heads", "head_dim", "k_eq_v", "rotary") == [
        (50, None, None, False, None),
        (10, 4, 512, True, 0.25),
    ]


def test_keys_and_values_of_earlier_layers():
    whole = cx.load_model(CONFIGS["gemma-4-31b"])
    shared = changed("gemma-4-31b", num_kv_shared_layers=18)
    assert groups(shared, "head_dim", "n_kv_heads", "k_eq_v", "kv_shared", "intermediate") == [
        (35, None, None, False, False, None),
        (7, 512, 4, True, False, None),
        (15, None, None, False, True, None),
        (3, 512, 4, False, True, None),
    ]
    # per layer: keys and values of 16 heads of 256 in a window, keys of 4 heads of 512 elsewhere, and a norm
    saved = 15 * (2 * 5376 * 16 * 256 + 256) + 3 * (5376 * 4 * 512 + 512)
    assert whole.n_parameters - cx.load_model(shared).n_parameters == saved
    wider = changed("gemma-4-31b", num_kv_shared_layers=18, use_double_wide_mlp=True)
    assert cx.load_model(wider).n_parameters == whole.n_parameters - saved + 18 * 3 * 5376 * 21504
    assert cx.load_model(changed("gemma-4-31b", use_double_wide_mlp=True)) == whole


def test_layers_without_attention_or_mlp():
    nas = "llama-3.3-nemotron-super-49b"
    layers = [(8, 5.25), (16, None), (None, 1.0), (None, None)]
    model = changed(nas, num_hidden_layers=4, block_configs=blocks(layers))
    assert groups(model, "attention", "n_kv_heads", "mlp", "intermediate") == [
        (1, "gqa", 8, "dense", 28672),
        (1, "gqa", 4, "none", None),
        (1, "none", None, "dense", 5632),
    ]
    attention, mlp = 8192 * 128 * (64 + 8 + 8 + 64) + 8192, 3 * 8192 * 28672 + 8192
    narrow, small = 8192 * 128 * (64 + 4 + 4 + 64) + 8192, 3 * 8192 * 5632 + 8192
    outside = 2 * 128256 * 8192 + 8192
    assert cx.load_model(model).n_parameters == attention + mlp + narrow + small + outside


def test_spellings_that_agree():
    assert architecture(changed("glm-4.5", num_experts=160)) == architecture("glm-4.5")
    named = changed("glm-5.2", num_experts=256, layer_types=["deepseek_sparse_attention"] * 78, mlp_bias=False)
    assert architecture(named) == architecture("glm-5.2")
    assert architecture({**CONFIGS["qwen3.5-27b"], "language_model_only": False}) == architecture("qwen3.5-27b")


def test_prediction_layers():
    for name, embeddings in (("deepseek-v3", True), ("glm-4.5", True), ("glm-5.2", False), ("qwen3.5-27b", False)):
        model = cx.load_model(CONFIGS[name])
        assert (len(model.mtp), model.mtp_embeddings) == (1, embeddings)
    field = "num_nextn_predict_layers"
    assert (
        cx.load_model(without("deepseek-v3", field)).mtp
        == cx.load_model(changed("deepseek-v3", **{field: 0})).mtp
        == ()
    )


def test_a_wrapper_may_say_that_it_has_no_vision_tower():
    assert cx.load_model({**CONFIGS["gemma-3-27b"], "vision_config": None}).vision_parameters == 0


OFF = {
    "sliding_window": None,
    "num_experts": 0,
    "mlp_only_layers": [],
    "add_cross_attention": False,
    "q_lora_rank": None,
}


def test_what_other_families_switch_off_may_stand_in_a_config():
    assert architecture({**CONFIGS["llama-3.1-8b"], **OFF}) == architecture("llama-3.1-8b")
