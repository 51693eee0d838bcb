"""Read a Hugging Face ``config.json`` of the families this version prices exactly; refuse everything else by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .record import SpecError

GQA_FAMILIES = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"}
MLA_FAMILIES = {"deepseek_v3"}
MOE_FAMILIES = {"mixtral", "qwen3_moe", "deepseek_v3"}
SUPPORTED = sorted(GQA_FAMILIES | MLA_FAMILIES)

NOT_STRUCTURAL = {
    # numerics, tokens, training and bookkeeping: no effect on work, bytes or parameters
    *("architectures", "attention_dropout", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "hidden_act"),
    *("initializer_range", "model_type", "norm_topk_prob", "output_router_logits", "pretraining_tp", "rms_norm_eps"),
    *("rope_scaling", "rope_theta", "rope_parameters", "routed_scaling_factor", "router_aux_loss_coef", "scoring_func"),
    *("torch_dtype", "dtype", "transformers_version", "use_cache", "max_window_layers", "aux_loss_alpha", "seq_aux"),
    *("ep_size", "n_group", "topk_group", "topk_method", "router_jitter_noise", "_name_or_path", "quantization_config"),
    *("attention_bias_o", "original_max_position_embeddings"),
}
STRUCTURAL = {
    *("hidden_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "attention_bias", "mlp_bias"),
    *("sliding_window", "use_sliding_window", "num_experts", "num_local_experts", "n_routed_experts"),
    *("num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "decoder_sparse_step", "mlp_only_layers"),
    *("first_k_dense_replace", "moe_layer_freq", "num_nextn_predict_layers", "kv_lora_rank", "q_lora_rank"),
    *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "layer_types"),
}

SINGLE_VALUES: dict[str, Any] = {
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "mlp_bias": False,
}
"""Structural fields of which only one value is understood."""


def model_fields(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Translate a config's fields to those of :class:`~cheetah_xr.specs.model.Model`.

    Raises
    ------
    SpecError
        For an unsupported ``model_type``, an unknown field, or one that is missing or contradictory, by name.
    """
    family = config.get("model_type")
    if family not in SUPPORTED:
        raise SpecError(f"{where}: model_type {family!r} is not supported; supported: {', '.join(SUPPORTED)}")
    unknown = sorted(set(config) - NOT_STRUCTURAL - STRUCTURAL)
    if unknown:
        raise SpecError(
            f"{where}: unknown fields {', '.join(unknown)}: they may change the architecture; remove those that do not"
        )
    for name, allowed in SINGLE_VALUES.items():
        if config.get(name, allowed) != allowed:
            raise SpecError(f"{where}: {name} {config[name]!r} is not supported; supported: {allowed!r}")
    types = config.get("layer_types")
    if types is not None and set(types) != {"full_attention"}:
        raise SpecError(f"{where}: layer_types {sorted(set(types))} is not supported; supported: full_attention")
    attention, kind = _attention(config, str(family), where)
    mlp, groups = _mlp(config, str(family), where)
    return {
        "hidden": _need(config, where, "hidden_size"),
        "vocab": _need(config, where, "vocab_size"),
        "tie_embeddings": bool(config.get("tie_word_embeddings", False)),
        "max_seq_len": config.get("max_position_embeddings"),
        "n_heads": _need(config, where, "num_attention_heads"),
        **attention,
        **mlp,
        "groups": [{**group, **kind} for group in groups if group["count"]],
    }


def _need(config: Mapping[str, Any], where: str, *names: str) -> Any:
    """The one of several spellings that is given."""
    given = [n for n in names if config.get(n) is not None]
    if len(given) != 1:
        what = "is missing" if not given else f"is given as {' and '.join(given)}"
        raise SpecError(f"{where}: field {' or '.join(names)} {what}")
    return config[given[0]]


def _attention(config: Mapping[str, Any], family: str, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of the attention, and its kind in every layer group."""
    if family in MLA_FAMILIES:
        names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        ranks = {name: _need(config, where, name) for name in names}
        return ranks | {"q_lora_rank": config.get("q_lora_rank") or 0}, {"attention": "mla"}
    heads = _need(config, where, "num_attention_heads")
    fields = {
        "n_kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or _exact(_need(config, where, "hidden_size"), heads, where),
        "qk_norm": family in {"qwen3", "qwen3_moe"},
        "qkv_bias": bool(config.get("attention_bias", family == "qwen2")),
    }
    return fields, {"attention": "gqa", "window": _window(config, family)}


def _mlp(config: Mapping[str, Any], family: str, where: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fields of the MLP, and the layer groups."""
    layers = _need(config, where, "num_hidden_layers")
    if family not in MOE_FAMILIES:
        return {"intermediate": _need(config, where, "intermediate_size")}, [{"count": layers, "mlp": "dense"}]
    width = _need(config, where, "intermediate_size" if family == "mixtral" else "moe_intermediate_size")
    fields = {
        "n_experts": _need(config, where, "num_experts", "num_local_experts", "n_routed_experts"),
        "top_k": _need(config, where, "num_experts_per_tok"),
        "expert_intermediate": width,
        "shared_intermediate": (config.get("n_shared_experts") or 0) * width,
        "router_bias": family == "deepseek_v3",
    }
    dense = config.get("first_k_dense_replace") or 0
    if dense:
        fields["intermediate"] = _need(config, where, "intermediate_size")
    return fields, [{"count": dense, "mlp": "dense"}, {"count": layers - dense, "mlp": "moe"}]


def _exact(hidden: int, heads: int, where: str) -> int:
    if hidden % heads:
        raise SpecError(f"{where}: head_dim is missing and hidden_size {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _window(config: Mapping[str, Any], family: str) -> int | None:
    """Sliding window when every layer slides (Mistral 7B v0.1); the Qwen files name one they switch off."""
    window: int | None = config.get("sliding_window")
    switched_on = config.get("use_sliding_window", family == "mistral")
    return window if switched_on else None
