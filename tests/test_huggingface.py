"""Hugging Face configs: read exactly, or refused by name."""

import json

import pytest
from refusal import refused

import cheetah_xr as cx

BASE = {"vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
LLAMA = {**BASE, "model_type": "llama", "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256}
MISTRAL = {**BASE, "model_type": "mistral", "num_hidden_layers": 32, "intermediate_size": 14336, "sliding_window": 4096}
MISTRAL_SMALL = {**MISTRAL, "hidden_size": 5120, "num_hidden_layers": 40, "intermediate_size": 32768, "head_dim": 128}
MISTRAL_SMALL |= {"vocab_size": 131072, "sliding_window": None}
MIXTRAL = {**MISTRAL, "model_type": "mixtral", "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN2 = {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
QWEN2 |= {"intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064, "tie_word_embeddings": False}
QWEN2 |= {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}
QWEN3 = {**BASE, "model_type": "qwen3", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 25600}
QWEN3 |= {"num_hidden_layers": 64, "num_attention_heads": 64, "vocab_size": 151936, "attention_bias": False}
QWEN3_MOE = {**QWEN3, "model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "num_experts": 128}
QWEN3_MOE |= {"num_key_value_heads": 4, "num_hidden_layers": 48, "num_experts_per_tok": 8, "intermediate_size": 6144}
QWEN3_MOE |= {"moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "vocab_size": 129280, "num_hidden_layers": 61}
DEEPSEEK |= {"num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "q_lora_rank": 1536}
DEEPSEEK |= {"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8}
DEEPSEEK |= {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK |= {"first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "attention_bias": False}

FAMILIES = {
    "llama": (LLAMA, 8_030_261_248),
    "mistral": (MISTRAL, 7_241_732_096),
    "mistral head_dim": (MISTRAL_SMALL, 23_572_403_200),
    "mixtral": (MIXTRAL, 46_702_792_704),
    "qwen2": (QWEN2, 7_615_616_512),
    "qwen3": (QWEN3, 32_762_123_264),
    "qwen3_moe": (QWEN3_MOE, 30_532_122_624),
    "deepseek_v3": (DEEPSEEK, 671_026_419_200),
}


@pytest.mark.parametrize(("config", "parameters"), FAMILIES.values(), ids=FAMILIES)
def test_families_to_the_last_parameter(config, parameters, write, tmp_path):
    path = write(config, "acme-7b/config.json")
    from_file = cx.load_model(path)
    assert from_file.n_parameters == parameters
    assert from_file.name == "acme-7b"
    assert cx.load_model(tmp_path / "acme-7b") == cx.load_model(f"{tmp_path}/acme-7b/") == from_file
    assert cx.load_model(config).n_parameters == parameters
    assert cx.load_model(write(config, "other.json")).name == "other"


@pytest.mark.parametrize(
    ("config", "name"), [(QWEN3, "qwen3-32b"), (DEEPSEEK, "deepseek-v3"), (MIXTRAL, "mixtral-8x7b")]
)
def test_config_and_catalogue_are_the_same_architecture(config, name):
    ignored = {"name", "sources", "notes", "max_seq_len"}
    read, ours = (cx.load_model(x).model_dump(exclude=ignored) for x in (config, name))
    assert read == ours


def test_details_that_change_work():
    assert {g.window for g in cx.load_model(MISTRAL).groups} == {4096}
    assert {g.window for g in cx.load_model(MISTRAL_SMALL).groups} == {None}
    qwen = cx.load_model(QWEN2)
    assert (qwen.qkv_bias, qwen.qk_norm, {g.window for g in qwen.groups}) == (True, False, {None})
    assert cx.load_model({**LLAMA, "tie_word_embeddings": True}).n_parameters == 8_030_261_248 - 128256 * 4096
    assert cx.load_model({**LLAMA, "max_position_embeddings": 8192}).max_seq_len == 8192
    deepseek = cx.load_model(DEEPSEEK)
    assert [(g.count, g.mlp, g.attention) for g in deepseek.groups] == [(3, "dense", "mla"), (58, "moe", "mla")]


REFUSED = {
    "unknown family": ({**LLAMA, "model_type": "gpt_oss"}, "'gpt_oss'", "deepseek_v3", "llama"),
    "unknown field": ({**LLAMA, "n_hash_layers": 3}, "n_hash_layers"),
    "unknown experts": ({**DEEPSEEK, "num_routed_experts": 256}, "num_routed_experts"),
    "two spellings": ({**DEEPSEEK, "num_experts": 256}, "num_experts", "n_routed_experts"),
    "MoE every other layer": ({**QWEN3_MOE, "decoder_sparse_step": 2}, "decoder_sparse_step", "2"),
    "some layers dense": ({**QWEN3_MOE, "mlp_only_layers": [0, 1]}, "mlp_only_layers", "[0, 1]"),
    "MoE frequency": ({**DEEPSEEK, "moe_layer_freq": 2}, "moe_layer_freq", "2"),
    "sliding layers": ({**LLAMA, "layer_types": ["sliding_attention", "full_attention"]}, "layer_types", "sliding"),
    "MLP bias": ({**LLAMA, "mlp_bias": True}, "mlp_bias"),
    "head_dim not derivable": ({**LLAMA, "hidden_size": 4100}, "head_dim", "4100", "32"),
    "top_k beyond experts": ({**MIXTRAL, "num_experts_per_tok": 9}, "top_k 9", "8"),
    "text as number": ({**LLAMA, "vocab_size": "128256"}, "vocab", "'128256'"),
    "bool as number": ({**LLAMA, "num_hidden_layers": True}, "True"),
    "fraction": ({**LLAMA, "intermediate_size": 14336.5}, "intermediate", "14336.5"),
    "too many dense layers": ({**DEEPSEEK, "first_k_dense_replace": 70}, "count"),
    # structural numbers of the wrong kind
    "hidden_size as text": ({**LLAMA, "hidden_size": "4096"}, "hidden", "'4096'"),
    "no heads": ({**LLAMA, "num_attention_heads": 0}, "heads", "0"),
    "no KV heads": ({**LLAMA, "num_key_value_heads": 0}, "num_key_value_heads", "0"),
    "layer_types not a list": ({**LLAMA, "layer_types": 5}, "layer_types", "5"),
    "field name not text": ({**LLAMA, 3: 4}, "3"),
    "tie as text": ({**LLAMA, "tie_word_embeddings": "no"}, "tie", "'no'"),
    # fields that another family reads, and this one would silently price as something else
    "experts in a dense family": ({**LLAMA, "num_experts": 8, "num_experts_per_tok": 2}, "num_experts"),
    "window of a mixtral": ({**MIXTRAL, "sliding_window": 4096}, "sliding_window"),
    "window of some qwen2 layers": (
        {**QWEN2, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 14},
        "window",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused_by_name(case):
    config, *words = case
    refused(lambda: cx.load_model(config), "inline model", *words)


NEEDED = {
    "llama": (LLAMA, ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]),
    "mixtral": (MIXTRAL, ["num_local_experts", "num_experts_per_tok", "intermediate_size"]),
    "qwen3_moe": (QWEN3_MOE, ["num_experts", "num_experts_per_tok", "moe_intermediate_size"]),
    # its default in transformers is 128, not hidden_size over heads
    "qwen3": (QWEN3, ["head_dim"]),
    "deepseek_v3": (
        DEEPSEEK,
        [
            *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "intermediate_size", "kv_lora_rank"),
            *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
            # absent, these would price another architecture
            *("n_shared_experts", "first_k_dense_replace", "q_lora_rank"),
        ],
    ),
}
MISSING = [(config, field) for config, fields in NEEDED.values() for field in fields]


@pytest.mark.parametrize(("config", "field"), MISSING, ids=[f"{c['model_type']}-{f}" for c, f in MISSING])
def test_a_missing_structural_field_is_refused_by_name(config, field, write):
    path = write({k: v for k, v in config.items() if k != field}, "config.json")
    refused(lambda: cx.load_model(path), str(path), field)


def test_explicit_null_is_no_query_compression():
    assert cx.load_model({**DEEPSEEK, "q_lora_rank": None}).q_lora_rank == 0


BAD_JSON = {
    "not JSON": ("{", "not valid JSON"),
    "list": ("[1]", "mapping"),
    "not UTF-8": (b"\xff", "not valid JSON"),
    "huge": (b" " * 5_000_000, "larger than"),
    "NaN": (json.dumps({**LLAMA, "head_dim": float("nan")}), "nan"),
    "deep": ("[" * 200_000, "not valid JSON"),
    "twice": ('{"hidden_size": 2048, ' + json.dumps(LLAMA)[1:], "hidden_size"),
}


@pytest.mark.parametrize(("content", "word"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_files(content, word, write):
    refused(lambda: cx.load_model(write(content, "config.json")), "config.json", word)
