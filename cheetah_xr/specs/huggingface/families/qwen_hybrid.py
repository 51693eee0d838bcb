"""Qwen3-Next and Qwen3.5: three layers of gated delta rule, then one of gated attention."""

from __future__ import annotations

from ..common import FULL, Fields, experts, gqa, heads, layer_types, merged, mlps, outside, prediction, rotary
from ..config import Config
from .moe import dense_width, sparse_layers

LINEAR = "linear_attention"


def qwen3_next(config: Config) -> Fields:
    """Qwen3-Next; its config does not name the prediction layer of its checkpoint."""
    config.only(use_sliding_window=False)
    return _model(config, sparse_layers(config, config.layers()))


def qwen3_5(config: Config) -> Fields:
    """Qwen3.5, dense."""
    config.only(mlp_only_layers=[])
    return _model(config, [False] * config.layers()) | _prediction(config, "dense")


def qwen3_5_moe(config: Config) -> Fields:
    """Qwen3.5 with experts."""
    return _model(config, sparse_layers(config, config.layers())) | _prediction(config, "moe")


def _prediction(config: Config, mlp: str) -> Fields:
    """A layer of full attention."""
    config.only(mtp_use_dedicated_embeddings=False)
    return prediction(config, "mtp_num_hidden_layers", [gqa() | {"mlp": mlp}])


def _model(config: Config, routed: list[bool]) -> Fields:
    config.only(attention_bias=False, attn_output_gate=True)
    config.ignore("mamba_ssm_dtype", "output_gate_type")
    return {
        **outside(config),
        **heads(config, derived=False),
        **rotary(config, default=0.25),
        "qk_norm": "head",
        "output_gate": True,
        **_delta_rule(config),
        **(_experts(config) if any(routed) else {}),
        **dense_width(config, routed),
        "groups": merged(_mixers(config, len(routed)), mlps(routed)),
    }


def _delta_rule(config: Config) -> Fields:
    """Widths of the recurrent layers."""
    return {
        "linear_key_heads": config.whole("linear_num_key_heads"),
        "linear_value_heads": config.whole("linear_num_value_heads"),
        "linear_key_dim": config.whole("linear_key_head_dim"),
        "linear_value_dim": config.whole("linear_value_head_dim"),
        "linear_conv": config.whole("linear_conv_kernel_dim"),
    }


def _experts(config: Config) -> Fields:
    shared = config.whole("shared_expert_intermediate_size", least=0)
    return experts(config) | ({"shared_intermediate": shared, "shared_gate": True} if shared else {})


def _mixers(config: Config, layers: int) -> list[Fields]:
    """Mixers of the layers: by ``layer_types``, else every so manieth is attention."""
    every = config.whole("full_attention_interval", default=4)
    default = [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    types = layer_types(config, layers, (FULL, LINEAR), default)
    return [gqa() if kind == FULL else {"attention": "deltanet"} for kind in types]
