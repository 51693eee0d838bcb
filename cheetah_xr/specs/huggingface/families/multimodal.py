"""Configs that wrap a text model and a vision tower."""

from __future__ import annotations

from ..config import Config

WRAPPERS: dict[str, tuple[str, ...]] = {
    "gemma3": ("gemma3_text",),
    "gemma4": ("gemma4_text",),
    "kimi_k25": ("kimi_k2", "deepseek_v3"),
    "kimi_k3": ("kimi_linear",),
    "llama4": ("llama4_text",),
    "minimax_m3_vl": ("minimax_m3",),
    "mistral3": ("mistral", "ministral3"),
    "qwen3_5": ("qwen3_5_text",),
    "qwen3_5_moe": ("qwen3_5_moe_text",),
    "qwen3_vl": ("qwen3_vl_text",),
    "qwen3_vl_moe": ("qwen3_vl_moe_text",),
}
"""Wrapper -> model types its text model may have."""

UNNAMED = ("minimax_m3_vl",)
"""Wrappers whose files do not name the type of the text model."""

WRAPPER_FIELDS = {
    "minimax_m3_vl": {
        # read with the vision tower
        *("img_token_compression_config", "projector_hidden_size"),
        # how images are cut
        *("image_grid_pinpoints", "image_seq_length", "process_image_mode", "video_token_index"),
        "vision_feature_select_strategy",
    },
}
"""Fields outside the text model that a wrapper alone has."""

TOKENS = {
    # tokens that stand for images, and how images are cut
    *("image_token_index", "image_token_id", "boi_token_index", "eoi_token_index", "boi_token_id", "eoi_token_id"),
    *("boa_token_id", "eoa_token_id", "eoa_token_index", "audio_token_id", "video_token_id", "vision_start_token_id"),
    *("vision_end_token_id", "media_placeholder_token_id", "image_placeholder", "video_placeholder"),
    *("mm_tokens_per_image", "vision_soft_tokens_per_image", "image_processor_config", "use_unified_vision_chunk"),
    # read with the vision tower
    *("multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "vision_feature_layer"),
}


def text_config(config: Config, family: str) -> Config:
    """The config of the text model inside a wrapper, with the wrapper's word on tied embeddings."""
    inner = config.section("text_config")
    if family in UNNAMED and inner.fields.get("model_type") is None:
        inner = Config({**inner.fields, "model_type": WRAPPERS[family][0]}, inner.where)
    kind = inner.fields.get("model_type")
    if kind not in WRAPPERS[family]:
        allowed = ", ".join(WRAPPERS[family])
        raise inner.fail(f"model_type {kind!r} is not supported inside {family!r}; supported: {allowed}")
    if "vision_config" not in config.fields:
        raise config.fail("field vision_config is missing; null means the text model alone")
    config.ignore("vision_config", *TOKENS, *WRAPPER_FIELDS.get(family, ()))
    config.only(audio_config=None, language_model_only=False, num_reward_heads=0)
    tied = config.get("tie_word_embeddings")
    config.reject_the_rest()
    if tied is None:
        return inner
    inner.same("tie_word_embeddings", tied, f"{config.where}: tie_word_embeddings")
    return Config({**inner.fields, "tie_word_embeddings": tied}, inner.where)
