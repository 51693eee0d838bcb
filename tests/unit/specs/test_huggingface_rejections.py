"""Hugging Face configs that are not understood: rejected.

One unknown, one missing and one contradictory field for every file of readers, and what was special.
"""

import copy

import pytest

import cheetah_xr as cx
from tests.helpers.config_edits import changed, without
from tests.helpers.configs import CONFIGS, FULL, SLIDES
from tests.helpers.configs_beyond import BEYOND, blocks
from tests.helpers.rejection import rejected

UNKNOWN = {"n_hash_layers": 3}
MINIMAX_BLOCKS = CONFIGS["minimax-m3"]["sparse_attention_config"]
NAS = "llama-3.3-nemotron-super-49b"


def nas(part, **fields):
    """The NAS with other fields in its layer 7, which has no attention."""
    config = copy.deepcopy(BEYOND[NAS])
    config["block_configs"][7].setdefault(part, {}).update(fields)
    return config


BLOCKS = [
    ("linear attention", "attention", {"replace_with_linear": True}, "attention", "replace_with_linear"),
    ("window", "attention", {"window_length": 8192}, "window_length 8192"),
    ("sinks", "attention", {"num_sink_tokens": 4}, "num_sink_tokens 4"),
    ("no attention with heads", "attention", {"n_heads_in_group": 8}, "n_heads_in_group 8"),
    ("heads unsaid", "attention", {"no_op": False}, "n_heads_in_group"),
    ("heads that do not divide", "attention", {"no_op": False, "n_heads_in_group": 7}, "n_heads_in_group 7", "64"),
    ("unsaid", "attention", {"no_op": None}, "no_op"),
    ("unknown attention", "attention", {"llama4": {}}, "llama4"),
    ("unknown MLP", "ffn", {"moe": {}}, "moe"),
    ("unknown part", "mamba", {"state": 1}, "mamba"),
    ("linear MLP", "ffn", {"replace_with_linear": True}, "ffn", "replace_with_linear"),
    ("width unsaid", "ffn", {"ffn_mult": None}, "ffn_mult"),
    ("width of no MLP", "ffn", {"no_op": True}, "ffn_mult 2.625"),
    ("no width", "ffn", {"ffn_mult": -1.0}, "ffn_mult", "-1.0"),
    ("endless width", "ffn", {"ffn_mult": float("inf")}, "ffn_mult", "inf"),
    ("width as text", "ffn", {"ffn_mult": "2"}, "ffn_mult", "'2'"),
]
KDA = CONFIGS["kimi-linear-48b-a3b"]["linear_attn_config"]
REJECTED = {
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
    "no biases in a MiMo": (changed("mimo-7b", attention_bias=False), "attention_bias"),
    "two prediction layers of a MiMo": (changed("mimo-7b", num_nextn_predict_layers=2), "num_nextn_predict_layers 2"),
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
    "keys of no earlier layer": (changed("gemma-4-31b", num_kv_shared_layers=56), "num_kv_shared_layers 56"),
    "keys of no layer": (changed("gemma-4-31b", num_kv_shared_layers=60), "num_kv_shared_layers 60"),
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
    "two spellings": (changed("glm-4.5", num_experts=128), "num_experts 128", "n_routed_experts 160", "contradict"),
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
    "kinds of layers": (changed("glm-5.2", layer_types=[FULL] * 78), "layer_types", "full_attention"),
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
    "language model only": ({**CONFIGS["qwen3.5-27b"], "language_model_only": True}, "language_model_only"),
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
    # nemotron_nas
    "NAS unknown": (changed(NAS, **UNKNOWN), "n_hash_layers"),
    "NAS missing": (without(NAS, "block_configs"), "block_configs"),
    "NAS not a list": (changed(NAS, block_configs={"0": {}}), "block_configs"),
    "NAS contradictory": (changed(NAS, num_hidden_layers=49), "80 entries for 49 layers"),
    "KV heads of a NAS": (changed(NAS, num_key_value_heads=8), "num_key_value_heads 8"),
    "width of a NAS": (changed(NAS, intermediate_size=28672), "intermediate_size 28672"),
    "nothing left": (changed(NAS, block_configs=blocks([(None, None)] * 80)), "groups"),
    **{f"block: {name}": (nas(part, **fields), "block_configs[7]", *words) for name, part, fields, *words in BLOCKS},
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
    "reward heads": ({**BEYOND["minimax-m3-vl"], "num_reward_heads": 1}, "num_reward_heads 1"),
    "another compression": (
        {**BEYOND["minimax-m3-vl"], "img_token_compression_config": {"image_token_compression_method": "pool"}},
        "img_token_compression_config",
    ),
    "fields of another wrapper": ({**CONFIGS["gemma-3-27b"], "projector_hidden_size": 5376}, "projector_hidden_size"),
    "text model of an M3": (changed("minimax-m3-vl", model_type="minimax_m2"), "'minimax_m2'", "minimax_m3"),
    "widths of an M3": (changed("minimax-m3-vl", moe_intermediate_size=2048), "2048", "3072", "contradict"),
    "audio": ({**CONFIGS["gemma-4-31b"], "audio_config": {"hidden_size": 1}}, "audio_config"),
}


@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
def test_what_is_not_understood_is_rejected(case):
    config, *words = case
    rejected(lambda: cx.load_model(config), "inline model", *words)
