"""Read a Hugging Face ``config.json`` of the families this version prices exactly; refuse everything else by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .record import SpecError

MOE_FAMILIES = {"mixtral", "qwen3_moe", "deepseek_v3"}
SUPPORTED = sorted({"llama", "mistral", "qwen2", "qwen3"} | MOE_FAMILIES)

NOT_STRUCTURAL = {
    # numerics, tokens, training and bookkeeping: no effect on work, bytes or parameters
    *("architectures", "attention_dropout", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "hidden_act"),
    *("initializer_range", "model_type", "norm_topk_prob", "output_router_logits", "pretraining_tp", "rms_norm_eps"),
    *("rope_scaling", "rope_theta", "rope_parameters", "routed_scaling_factor", "router_aux_loss_coef", "scoring_func"),
    *("torch_dtype", "dtype", "transformers_version", "use_cache", "max_window_layers", "aux_loss_alpha", "seq_aux"),
    *("ep_size", "n_group", "topk_group", "topk_method", "router_jitter_noise", "_name_or_path", "quantization_config"),
    *("original_max_position_embeddings", "use_mrope"),
}
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
EXPERT_FIELDS = {
    *(*EXPERT_COUNTS, "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "decoder_sparse_step"),
    *("mlp_only_layers", "first_k_dense_replace", "moe_layer_freq", "shared_expert_intermediate_size"),
}
MLA_FIELDS = {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}
STRUCTURAL = {
    *("hidden_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "attention_bias", "mlp_bias"),
    *("sliding_window", "use_sliding_window", "num_nextn_predict_layers", "layer_types", "qkv_bias", "use_qk_norm"),
    *EXPERT_FIELDS,
    *MLA_FIELDS,
}
SINGLE_VALUES: dict[str, Any] = {
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "mlp_bias": False,
    "shared_expert_intermediate_size": 0,
}
"""Structural fields of which only one value is understood."""


@dataclass(frozen=True)
class Config:
    """A config with what to call it in errors."""

    fields: Mapping[str, Any]
    where: str

    def fail(self, message: str) -> SpecError:
        """An error of this config."""
        return SpecError(f"{self.where}: {message}")

    def given(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.fields.get(name) is not None

    def whole(self, *names: str, least: int = 1) -> int:
        """A whole number under the one of several spellings that is given."""
        found = [n for n in names if self.given(n)]
        if len(found) != 1:
            what = "is missing" if not found else f"is given as {' and '.join(found)}"
            raise self.fail(f"field {' or '.join(names)} {what}")
        value = self.fields[found[0]]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(f"field {found[0]} has value {value!r}: expected a whole number of at least {least}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A true or false; null and absent are the default."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fail(f"field {name} has value {value!r}: expected true or false")
        return default if value is None else value


def model_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Translate a config's fields to those of :class:`~cheetah_xr.specs.model.Model`.

    Raises
    ------
    SpecError
        For an unsupported ``model_type``, an unknown field, or one that is missing or contradictory, by name.
    """
    config = Config(fields, where)
    family = fields.get("model_type")
    if family not in SUPPORTED:
        raise config.fail(f"model_type {family!r} is not supported; supported: {', '.join(SUPPORTED)}")
    _check_understood(config, str(family))
    attention, kind = _attention(config, str(family))
    mlp, groups = _mlp(config, str(family))
    longest = (
        {"max_seq_len": config.whole("max_position_embeddings")} if config.given("max_position_embeddings") else {}
    )
    return {
        "hidden": config.whole("hidden_size"),
        "vocab": config.whole("vocab_size"),
        "tie_embeddings": config.flag("tie_word_embeddings", False),
        "n_heads": config.whole("num_attention_heads"),
        **longest,
        **attention,
        **mlp,
        "groups": [{**group, **kind} for group in groups if group["count"]],
    }


def _check_understood(config: Config, family: str) -> None:
    """Refuse what is unknown, belongs to another family, or has a value this version does not price."""
    unknown = sorted(str(name) for name in config.fields if name not in NOT_STRUCTURAL | STRUCTURAL)
    if unknown:
        raise config.fail(
            f"unknown fields {', '.join(unknown)}: they may change the architecture; remove those that do not"
        )
    foreign = (set() if family in MOE_FAMILIES else EXPERT_FIELDS) | (set() if family == "deepseek_v3" else MLA_FIELDS)
    stray = sorted(name for name in foreign if config.fields.get(name) not in (None, 0, []))
    if stray:
        raise config.fail(f"fields {', '.join(stray)} do not belong to model_type {family!r}")
    for name, allowed in SINGLE_VALUES.items():
        if config.given(name) and config.fields[name] != allowed:
            raise config.fail(f"{name} {config.fields[name]!r} is not supported; supported: {allowed!r}")
    types = config.fields.get("layer_types")
    if types is not None and not (isinstance(types, list) and all(kind == "full_attention" for kind in types)):
        raise config.fail(f"layer_types {types!r} is not supported; supported: full_attention in every layer")


def _attention(config: Config, family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of the attention, and its kind in every layer group."""
    if family == "deepseek_v3":
        names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        ranks = {name: config.whole(name) for name in names}
        if "q_lora_rank" not in config.fields:
            raise config.fail("field q_lora_rank is missing; null means queries are projected directly")
        if config.flag("attention_bias", False):
            raise config.fail("attention_bias True is not supported with multi-head latent attention")
        return ranks | {"q_lora_rank": config.whole("q_lora_rank") if config.given("q_lora_rank") else 0}, {
            "attention": "mla"
        }
    heads = config.whole("num_attention_heads")
    bias = config.flag("attention_bias", False)
    fields = {
        "n_kv_heads": config.whole("num_key_value_heads") if config.given("num_key_value_heads") else heads,
        "head_dim": _head_dim(config, family, heads),
        "qk_norm": config.flag("use_qk_norm", family in {"qwen3", "qwen3_moe"}),
        "qkv_bias": config.flag("qkv_bias", bias or family == "qwen2"),
        "o_bias": bias and family != "qwen2",
    }
    return fields, {"attention": "gqa", "window": _window(config, family)}


def _head_dim(config: Config, family: str, heads: int) -> int:
    if config.given("head_dim") or family in {"qwen3", "qwen3_moe"}:
        return config.whole("head_dim")
    hidden = config.whole("hidden_size")
    if hidden % heads:
        raise config.fail(f"head_dim is missing and hidden_size {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _window(config: Config, family: str) -> int | None:
    """Sliding window when every layer slides (Mistral 7B v0.1); the Qwen files name one they switch off."""
    if not config.given("sliding_window"):
        return None
    if family == "mistral":
        return config.whole("sliding_window")
    if family in {"qwen2", "qwen3", "qwen3_moe"} and not config.flag("use_sliding_window", False):
        return None
    raise config.fail(f"sliding_window {config.fields['sliding_window']!r} is not supported for model_type {family!r}")


def _mlp(config: Config, family: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fields of the MLP, and the layer groups."""
    layers = config.whole("num_hidden_layers")
    if family not in MOE_FAMILIES:
        return {"intermediate": config.whole("intermediate_size")}, [{"count": layers, "mlp": "dense"}]
    width = config.whole("intermediate_size" if family == "mixtral" else "moe_intermediate_size")
    fields = {
        "n_experts": config.whole(*EXPERT_COUNTS),
        "top_k": config.whole("num_experts_per_tok"),
        "expert_intermediate": width,
        "router_bias": family == "deepseek_v3",
    }
    dense = 0
    if family == "deepseek_v3":
        dense = config.whole("first_k_dense_replace", least=0)
        fields["intermediate"] = config.whole("intermediate_size")
        fields["shared_intermediate"] = config.whole("n_shared_experts", least=0) * width
    return fields, [{"count": dense, "mlp": "dense"}, {"count": layers - dense, "mlp": "moe"}]
