"""Hugging Face configs: read exactly, or refused by name."""

import copy
import json

import pytest
from configs import CONFIGS, FULL, SLIDES
from refusal import refused

import cheetah_xr as cx
from cheetah_xr.specs.huggingface import READERS, SUPPORTED

NOT_ARCHITECTURE = {"name", "sources", "notes", "status", "default_precision"}
NOT_IN_THE_CONFIG = {
    "qwen3-next-80b-a3b": {"mtp"},
    "minimax-m3": {"vision_parameters"},
    "falcon-7b": {"max_seq_len"},
    "gemma-3-27b": {"max_seq_len"},
    "glm-4.5": set(),
}
"""What the catalogue knows from elsewhere."""


def architecture(model, without=frozenset()):
    return cx.load_model(model).model_dump(exclude=NOT_ARCHITECTURE | without)


def changed(name, **fields):
    """A config with other fields, of its text model where it has one."""
    config = copy.deepcopy(CONFIGS[name])
    text = config.get("text_config", config)
    text.update(fields)
    return config


def without(name, *fields):
    config = copy.deepcopy(CONFIGS[name])
    text = config.get("text_config", config)
    for field in fields:
        del text[field]
    return config


def test_every_supported_family_has_a_config_here():
    inner = {c["text_config"]["model_type"] for c in CONFIGS.values() if "text_config" in c}
    assert {c["model_type"] for c in CONFIGS.values()} | inner == set(SUPPORTED)
    assert set(READERS) <= set(SUPPORTED)


@pytest.mark.parametrize("name", CONFIGS)
def test_config_and_catalogue_are_the_same_architecture(name):
    other = NOT_IN_THE_CONFIG.get(name, set())
    assert architecture(CONFIGS[name], other) == architecture(name, other)


def test_a_config_may_be_a_file_or_its_folder(write, tmp_path):
    config = CONFIGS["mistral-7b-v0.1"]
    from_file = cx.load_model(write(config, "acme-7b/config.json"))
    assert (from_file.n_parameters, from_file.name) == (7_241_732_096, "acme-7b")
    assert cx.load_model(tmp_path / "acme-7b") == cx.load_model(f"{tmp_path}/acme-7b/") == from_file
    assert cx.load_model(write(config, "other.json")).name == "other"


def test_text_models_of_wrappers_stand_alone():
    for name, config in CONFIGS.items():
        if "text_config" in config:
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


# ---- refusals: one unknown, one missing and one contradictory field for every file of readers, and what was special

UNKNOWN = {"n_hash_layers": 3}
MINIMAX_BLOCKS = CONFIGS["minimax-m3"]["sparse_attention_config"]
KDA = CONFIGS["kimi-linear-48b-a3b"]["linear_attn_config"]
REFUSED = {
    "unknown family": (changed("llama-3.1-8b", model_type="mamba"), "'mamba'", "deepseek_v3", "llama", "qwen3_5_moe"),
    "family not text": (changed("llama-3.1-8b", model_type=["llama"]), "llama"),
    # dense
    "dense unknown": (changed("llama-3.1-8b", **UNKNOWN), "n_hash_layers", "'llama'"),
    "dense missing": (without("llama-3.1-8b", "num_attention_heads"), "num_attention_heads"),
    "dense contradictory": (changed("llama-3.1-8b", num_key_value_heads=5), "num_key_value_heads 5", "32"),
    "window of a llama": (changed("llama-3.1-8b", sliding_window=4096), "sliding_window"),
    "sliding layers of a llama": (changed("llama-3.1-8b", layer_types=[SLIDES] * 32), "layer_types", "sliding"),
    "layer_types too short": (changed("llama-3.1-8b", layer_types=[FULL]), "layer_types", "1", "32"),
    "layer_types not a list": (changed("llama-3.1-8b", layer_types=5), "layer_types", "5"),
    "experts of a llama": (changed("llama-3.1-8b", num_experts=8, num_experts_per_tok=2), "num_experts"),
    "residual multiplier": (changed("llama-3.1-8b", residual_multiplier=0.2), "residual_multiplier"),
    "head_dim not derivable": (changed("llama-3.1-8b", hidden_size=4100), "head_dim", "4100", "32"),
    "head_dim of a qwen3": (without("qwen3-32b", "head_dim"), "head_dim"),  # its class default is 128
    "window of some qwen2 layers": (
        changed("qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=14),
        "use_sliding_window",
        "layer_types",
    ),
    "head_dim of a ministral": (without("devstral-2-123b", "head_dim"), "head_dim"),
    "text as number": (changed("llama-3.1-8b", vocab_size="128256"), "vocab_size", "'128256'"),
    "bool as number": (changed("llama-3.1-8b", num_hidden_layers=True), "num_hidden_layers", "True"),
    "fraction": (changed("llama-3.1-8b", intermediate_size=14336.5), "intermediate_size", "14336.5"),
    "no KV heads": (changed("llama-3.1-8b", num_key_value_heads=0), "num_key_value_heads", "0"),
    "too many layers": (changed("llama-3.1-8b", num_hidden_layers=10**9), "num_hidden_layers", "1000000000"),
    "field name not text": ({**CONFIGS["llama-3.1-8b"], 3: 4}, "3"),
    "tie as text": (changed("llama-3.1-8b", tie_word_embeddings="no"), "tie_word_embeddings", "'no'"),
    "rotary share": (changed("llama-3.1-8b", partial_rotary_factor=2), "partial_rotary_factor", "2"),
    # gemma
    "gemma unknown": (changed("gemma-3-1b", **UNKNOWN), "n_hash_layers"),
    "gemma missing": (without("gemma-2-27b", "sliding_window"), "sliding_window"),
    "gemma contradictory": (changed("gemma-2-27b", sliding_window_size=512), "sliding_window_size 512", "4096"),
    "embeddings per layer": (changed("gemma-4-31b", hidden_size_per_layer_input=256), "hidden_size_per_layer_input"),
    "embeddings per layer unsaid": (
        without("gemma-4-31b", "hidden_size_per_layer_input"),
        "hidden_size_per_layer_input",
    ),
    "keys of earlier layers": (changed("gemma-4-31b", num_kv_shared_layers=20), "num_kv_shared_layers 20"),
    "double-wide MLP": (changed("gemma-4-31b", use_double_wide_mlp=True), "use_double_wide_mlp"),
    "bidirectional": (changed("gemma-3-1b", use_bidirectional_attention=True), "use_bidirectional_attention"),
    "last layer slides": (changed("gemma-4-31b", layer_types=[FULL] * 59 + [SLIDES]), "layer_types"),
    # layernorm
    "layernorm unknown": (changed("opt-125m", **UNKNOWN), "n_hash_layers"),
    "layernorm missing": (without("opt-125m", "ffn_dim"), "ffn_dim"),
    "layernorm contradictory": (changed("falcon-7b", multi_query=False, num_kv_heads=8), "num_kv_heads 8", "71"),
    "new Falcon": (changed("falcon-7b", new_decoder_architecture=True), "new_decoder_architecture"),
    "alibi": (changed("falcon-7b", alibi=True), "alibi"),
    "projected embeddings": (changed("opt-125m", word_embed_proj_dim=512), "word_embed_proj_dim 512"),
    # moe
    "moe unknown": (changed("mixtral-8x7b", **UNKNOWN), "n_hash_layers"),
    "moe missing": (without("glm-4.5", "use_qk_norm"), "use_qk_norm"),
    "moe contradictory": (changed("gpt-oss-20b", experts_per_token=8), "experts_per_token 8", "4"),
    "unknown experts": (changed("glm-4.5", num_routed_experts=256), "num_routed_experts"),
    "two spellings": (changed("glm-4.5", num_experts=160), "num_experts", "n_routed_experts"),
    "top_k beyond experts": (changed("mixtral-8x7b", num_experts_per_tok=9), "top_k 9", "8"),
    "layers without experts": (changed("qwen3-30b-a3b", mlp_only_layers=[48]), "mlp_only_layers", "[48]"),
    "two prediction layers": (changed("glm-4.5", num_nextn_predict_layers=2), "num_nextn_predict_layers 2"),
    "lightning in an M2": (changed("minimax-m2.5", attn_type_list=[0] + [1] * 61), "attn_type_list", "0"),
    "rotary twice": (changed("minimax-m2.5", rotary_dim=32), "partial_rotary_factor", "rotary_dim"),
    # mixed
    "mixed unknown": (changed("llama-4-maverick", **UNKNOWN), "text_config", "n_hash_layers"),
    "mixed missing": (without("llama-4-maverick", "attention_chunk_size"), "attention_chunk_size"),
    "mixed contradictory": (changed("mimo-v2-flash", attention_chunk_size=64), "attention_chunk_size 64", "128"),
    "pattern too short": (changed("mimo-v2-flash", hybrid_layer_pattern=[0, 1]), "hybrid_layer_pattern", "2", "48"),
    "positions and types": (changed("llama-4-maverick", layer_types=[FULL] * 48), "layer_types", "no_rope_layers"),
    # mla
    "mla unknown": (changed("deepseek-v3", **UNKNOWN), "n_hash_layers"),
    "mla missing": (without("deepseek-v3", "q_lora_rank"), "q_lora_rank", "null"),
    "mla contradictory": (changed("glm-5.2", qk_head_dim=128), "qk_head_dim 128", "256"),
    "KV heads of latent attention": (changed("deepseek-v3", num_key_value_heads=8), "num_key_value_heads 8", "128"),
    "bias of latent attention": (changed("deepseek-v3", attention_bias=True), "attention_bias"),
    "MoE frequency": (changed("deepseek-v3", moe_layer_freq=2), "moe_layer_freq", "2"),
    "too many dense layers": (changed("deepseek-v3", first_k_dense_replace=70), "first_k_dense_replace 70", "61"),
    "dense twice": (changed("glm-5.2", first_k_dense_replace=2), "mlp_layer_types", "first_k_dense_replace"),
    "correction bias of V2": (changed("deepseek-v2-lite", topk_method="noaux_tc"), "topk_method", "greedy"),
    "schedule without a list": (without("glm-5.2", "indexer_types"), "index_topk_freq 4"),
    "nothing to reuse": (changed("glm-5.2", indexer_types=["shared"] * 78), "indexer_types"),
    # deepseek_v4
    "V4 unknown": (changed("deepseek-v4-flash", **UNKNOWN), "n_hash_layers"),
    "V4 missing": (without("deepseek-v4-flash", "num_hash_layers"), "num_hash_layers"),
    "V4 contradictory": (changed("deepseek-v4-flash", num_hash_layers=44), "num_hash_layers 44", "43"),
    "V4 ratio": (changed("deepseek-v4-flash", compress_ratios=[8] * 44), "compress_ratios", "8"),
    "V4 ratios too few": (changed("deepseek-v4-flash", compress_ratios=[4] * 43), "compress_ratios", "43", "44"),
    # qwen_hybrid
    "hybrid unknown": (changed("qwen3.5-27b", **UNKNOWN), "n_hash_layers"),
    "hybrid missing": (without("qwen3.5-27b", "linear_num_value_heads"), "linear_num_value_heads"),
    "hybrid contradictory": (changed("qwen3.8-2.4t-a95b", partial_rotary_factor=0.5), "partial_rotary_factor"),
    "no output gate": (changed("qwen3.5-27b", attn_output_gate=False), "attn_output_gate"),
    "embeddings of the prediction layer": (
        changed("qwen3.5-27b", mtp_use_dedicated_embeddings=True),
        "mtp_use_dedicated_embeddings",
    ),
    # minimax
    "minimax unknown": (changed("minimax-m1", **UNKNOWN), "n_hash_layers"),
    "minimax missing": (without("minimax-m1", "attn_type_list"), "attn_type_list"),
    "minimax contradictory": (
        changed("minimax-m3", first_k_dense_replace=4),
        "moe_layer_freq",
        "first_k_dense_replace",
    ),
    "index values": (
        changed("minimax-m3", sparse_attention_config={**MINIMAX_BLOCKS, "sparse_disable_index_value": [0] * 60}),
        "sparse_attention_config",
        "sparse_disable_index_value",
    ),
    "blocks unknown": (
        changed("minimax-m3", sparse_attention_config={**MINIMAX_BLOCKS, "sparse_stride": 2}),
        "sparse_attention_config",
        "sparse_stride",
    ),
    "blocks at the start": (
        changed("minimax-m3", sparse_attention_config={**MINIMAX_BLOCKS, "sparse_init_block": 1}),
        "sparse_init_block 1",
    ),
    # kimi
    "kimi unknown": (changed("kimi-k3", **UNKNOWN), "n_hash_layers"),
    "kimi missing": (without("kimi-linear-48b-a3b", "linear_attn_config"), "linear_attn_config"),
    "kimi contradictory": (
        changed("kimi-linear-48b-a3b", linear_attn_config={**KDA, "kda_layers": [*KDA["kda_layers"], 27]}),
        "kda_layers",
        "full_attn_layers",
    ),
    "prediction layer of a kimi": (
        changed("kimi-linear-48b-a3b", num_nextn_predict_layers=1),
        "num_nextn_predict_layers",
    ),
    "norm without a latent width": (without("kimi-k3", "routed_expert_hidden_size"), "latent_moe_use_norm"),
    # nemotron
    "nemotron unknown": (changed("nemotron-h-56b", **UNKNOWN), "n_hash_layers"),
    "nemotron missing": (without("nemotron-h-56b", "hybrid_override_pattern"), "hybrid_override_pattern"),
    "nemotron contradictory": (changed("nemotron-h-56b", num_hidden_layers=52), "num_hidden_layers 52", "118"),
    "unknown block": (changed("nemotron-h-56b", hybrid_override_pattern="M-X"), "hybrid_override_pattern", "M-X"),
    "two patterns": (
        changed("nemotron-h-56b", layers_block_type=["mamba"]),
        "hybrid_override_pattern",
        "layers_block_type",
    ),
    "bias of a mixer": (changed("nemotron-h-56b", use_bias=True), "use_bias"),
    # multimodal
    "wrapper unknown": ({**CONFIGS["qwen3.5-27b"], **UNKNOWN}, "n_hash_layers", "'qwen3_5'"),
    "wrapper missing": (
        {k: v for k, v in CONFIGS["qwen3.5-27b"].items() if k != "vision_config"},
        "vision_config",
        "null",
    ),
    "wrapper contradictory": ({**CONFIGS["gemma-4-31b"], "tie_word_embeddings": False}, "tie_word_embeddings"),
    "no text model": ({"model_type": "gemma3", "vision_config": None}, "text_config"),
    "another text model": (
        {**CONFIGS["gemma-3-27b"], "text_config": CONFIGS["gemma-2-27b"]},
        "'gemma2'",
        "'gemma3'",
        "gemma3_text",
    ),
    "audio": ({**CONFIGS["gemma-4-31b"], "audio_config": {"hidden_size": 1}}, "audio_config"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused_by_name(case):
    config, *words = case
    refused(lambda: cx.load_model(config), "inline model", *words)


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


# ---- the same for every field of every config

ABSENT_MEANS_NONE = {
    *("max_position_embeddings", "model_max_length", "num_nextn_predict_layers", "mtp_num_hidden_layers"),
    *("partial_rotary_factor", "rope_parameters", "moe_latent_size", "mla_use_output_gate", "attn_res_block_size"),
    *("sliding_window", "tie_word_embeddings", "vision_config"),
}
"""Fields whose absence is a statement: no such feature, whole heads rotated, the embeddings of the family."""
CLASS_DEFAULTS = {
    "llama-3.1-8b": "num_key_value_heads",  # every head its own keys
    "phi-4": "num_key_value_heads",
    "mistral-small-3.1-24b": "head_dim",  # hidden_size over heads
    "gemma-3-1b": "vocab_size",
    "kimi-k3": "use_full_rank_gate",
}
"""Fields whose class has another default than the config."""


def leaves(name):
    """Paths of every field of the text model of a config."""
    text = CONFIGS[name].get("text_config", CONFIGS[name])
    for field, value in text.items():
        if field not in {"model_type", "rope_parameters"}:
            yield (field,)
            if isinstance(value, dict):
                yield from ((field, inner) for inner in value)


def outcome(name, path, edit):
    """Architecture of a config after `edit` of the mapping that holds the field, or the message of its refusal."""
    config = copy.deepcopy(CONFIGS[name])
    holder = config.get("text_config", config)
    for field in path[:-1]:
        holder = holder[field]
    edit(holder, path[-1])
    try:
        return architecture(config)
    except cx.SpecError as error:
        return str(error)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_field_left_out_never_prices_another_architecture(name):
    whole = architecture(CONFIGS[name])
    for path in leaves(name):
        found = outcome(name, path, lambda holder, field: holder.pop(field))
        defaults = {*ABSENT_MEANS_NONE, CLASS_DEFAULTS.get(name)}
        assert found == whole or isinstance(found, str) or path[-1] in defaults, path


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("value", ["x", -1, 1.5, [None], {"a": 1}, float("nan")], ids=repr)
def test_a_field_of_the_wrong_kind_never_prices_another_architecture(name, value):
    whole = architecture(CONFIGS[name])
    for path in leaves(name):
        found = outcome(name, path, lambda holder, field: holder.update({field: value}))
        assert found == whole or isinstance(found, str), path
        if isinstance(found, str) and path[-1] not in {"model_type"}:
            assert "\n" not in found, path


@pytest.mark.parametrize("name", CONFIGS)
def test_an_unknown_field_is_refused_wherever_it_stands(name):
    places = {path[:-1] for path in leaves(name)}
    for place in places:
        found = outcome(name, (*place, "n_hash_layers"), lambda holder, field: holder.update({field: 3}))
        assert isinstance(found, str)
        assert "n_hash_layers" in found


# ---- files

BAD_JSON = {
    "not JSON": ("{", "not valid JSON"),
    "list": ("[1]", "mapping"),
    "not UTF-8": (b"\xff", "not valid JSON"),
    "huge": (b" " * 5_000_000, "larger than"),
    "NaN": (json.dumps({**CONFIGS["llama-3.1-8b"], "head_dim": float("nan")}), "nan"),
    "deep": ("[" * 200_000, "not valid JSON"),
    "twice": ('{"hidden_size": 2048, ' + json.dumps(CONFIGS["llama-3.1-8b"])[1:], "hidden_size"),
}


@pytest.mark.parametrize(("content", "word"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_files(content, word, write):
    refused(lambda: cx.load_model(write(content, "config.json")), "config.json", word)
