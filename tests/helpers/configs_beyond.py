"""Configs of families that the catalogue has no model of, and what their checkpoints count."""

from tests.helpers.configs import CONFIGS

# KV group (None: no attention) and MLP multiple (None: no MLP) of the layers of Llama-3_3-Nemotron-Super-49B-v1
SUPER_49B = [(8, 2.625), *[(8, 5.25)] * 5, *[(None, 2.625)] * 2, *[(8, 5.25)] * 3, (None, 3.28125), *[(8, 5.25)] * 30]
SUPER_49B += [(None, m) for m in (1.3125, 2.625, 2.625, 1.3125, 5.25, 1.3125, 2.625, 1.3125, 1.3125, 1.3125)]
SUPER_49B += [(8, 5.25), *[(None, m) for m in (1.3125, 1.0, 1.0, 1.3125, 1.0, 1.0, 1.0, 1.3125, 1.3125)]]
SUPER_49B += [(None, m) for m in (0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5)] + [(8, 5.25)] * 9


def blocks(layers):
    """`block_configs` of layers given as KV group and MLP multiple."""
    unused = {"num_sink_tokens": None, "replace_with_linear": False, "sparsify": None, "unshifted_sink": False}
    unused |= {"use_prefill_window_in_sink_attention": False, "window_length": None}
    return [
        {
            "attention": {"n_heads_in_group": group, "no_op": group is None, **unused},
            "ffn": {"ffn_mult": multiple, "no_op": multiple is None, "replace_with_linear": False, "sparsify": None},
        }
        for group, multiple in layers
    ]


M3 = {k: v for k, v in CONFIGS["minimax-m3"].items() if k not in ("model_type", "first_k_dense_replace")}
del M3["moe_intermediate_size"], M3["num_nextn_predict_layers"]
COMPRESSION = {
    "image_token_compression_method": "patch_merge",
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}

# fmt: off
QWEN_VISION = {
    "in_channels": 3, "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}
BEYOND = {
    "qwen3-vl-2b": {
        "model_type": "qwen3_vl", "image_token_id": 151655, "tie_word_embeddings": True, "video_token_id": 151656,
        "text_config": {
            "model_type": "qwen3_vl_text", "attention_bias": False, "head_dim": 128, "hidden_size": 2048,
            "intermediate_size": 6144, "max_position_embeddings": 262144, "num_attention_heads": 16,
            "num_hidden_layers": 28, "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 151936,
        },
        "vision_config": {
            **QWEN_VISION, "model_type": "qwen3_vl", "deepstack_visual_indexes": [5, 11, 17], "depth": 24,
            "hidden_size": 1024, "intermediate_size": 4096,
        },
    },
    "qwen3-vl-30b-a3b": {
        "model_type": "qwen3_vl_moe", "image_token_id": 151655, "tie_word_embeddings": False, "video_token_id": 151656,
        "text_config": {
            "model_type": "qwen3_vl_moe_text", "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128,
            "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144, "mlp_only_layers": [],
            "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
            "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936,
        },
        "vision_config": {
            **QWEN_VISION, "model_type": "qwen3_vl_moe", "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
            "hidden_size": 1152, "intermediate_size": 4304,
        },
    },
    "minimax-m3-vl": {
        "model_type": "minimax_m3_vl", "img_token_compression_config": COMPRESSION, "multimodal_projector_bias": True,
        "num_reward_heads": 0, "projector_hidden_act": "gelu", "projector_hidden_size": 6144,
        "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
        "text_config": M3 | {"num_mtp_modules": 1},
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": 1280, "image_size": 2016,
            "img_token_compression_config": COMPRESSION, "intermediate_size": 5120, "num_channels": 3,
            "num_hidden_layers": 32, "patch_size": 14, "position_embedding_type": "rope", "projection_dim": 6144,
        },
    },
    "mimo-7b": {
        "model_type": "mimo", "attention_bias": True, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 32768, "max_window_layers": 32, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "sliding_window": 32768,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151680,
    },
    "llama-3.3-nemotron-super-49b": {
        "model_type": "nemotron-nas", "attention_bias": False, "block_configs": blocks(SUPER_49B), "hidden_size": 8192,
        "intermediate_size": None, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 64,
        "num_hidden_layers": 80, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 128256,
    },
}
# fmt: on

COUNTS = {
    "qwen3-vl-2b": (1_720_574_976, 0, 406_957_056, 2_127_532_032),
    "qwen3-vl-30b-a3b": (30_532_122_624, 0, 538_631_408, 31_070_754_032),
    "minimax-m3-vl": (426_174_572_928, 0, 865_567_232, 427_040_140_160),
    "mimo-7b": (7_622_619_136, 210_790_400, 0, 7_833_409_536),
    "llama-3.3-nemotron-super-49b": (49_867_145_216, 0, 0, 49_867_145_216),
}
"""Text model, prediction layer, vision tower; the last is Hugging Face's safetensors total."""
