"""Dense families of grouped-query attention with RMSNorm and a gated MLP."""

from __future__ import annotations

from ..common import (
    FULL,
    SLIDING,
    Fields,
    every_layer,
    full,
    gqa,
    heads,
    merged,
    mlps,
    outside,
    prediction,
    rotary,
    sliding,
)
from ..config import Config


def llama(config: Config) -> Fields:
    """Llama 1 to 3; biases where the config asks for them."""
    layers = config.layers()
    bias = config.flag("attention_bias", False)
    return {
        **_dense(config, multi_head=True),
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": config.flag("mlp_bias", False),
        "groups": merged(full(config, layers), mlps([False] * layers)),
    }


def mistral(config: Config) -> Fields:
    """Mistral: a window, if any, slides in every layer."""
    layers = config.layers()
    return {**_dense(config), "groups": merged(every_layer(config, layers), mlps([False] * layers))}


def ministral3(config: Config) -> Fields:
    """Ministral 3 and Devstral 2: shaped as Mistral, but the class does not derive the head width."""
    config.whole("head_dim")
    return mistral(config)


def phi3(config: Config) -> Fields:
    """Phi-3 and Phi-4: fused matrices without biases."""
    layers = config.layers()
    config.only(attention_bias=False)
    return {
        **_dense(config, multi_head=True),
        "groups": merged(every_layer(config, layers), mlps([False] * layers)),
    }


def qwen2(config: Config) -> Fields:
    """Qwen2 and 2.5: biases on queries, keys and values."""
    layers = config.layers()
    return {
        **_dense(config),
        "qkv_bias": config.flag("qkv_bias", True),
        "groups": merged(qwen_attention(config, layers), mlps([False] * layers)),
    }


def mimo(config: Config) -> Fields:
    """MiMo-7B: shaped as Qwen2, with a prediction layer."""
    config.only(attention_bias=True, qkv_bias=True)
    return qwen2(config) | prediction(config, "num_nextn_predict_layers", [gqa() | {"mlp": "dense"}])


def qwen3(config: Config) -> Fields:
    """Qwen3: norms on queries and keys; its class does not derive the head width."""
    layers = config.layers()
    return {
        **_dense(config, derived=False),
        **qwen3_attention(config),
        "groups": merged(qwen_attention(config, layers), mlps([False] * layers)),
    }


def qwen3_attention(config: Config) -> Fields:
    """Norms and biases of Qwen3, dense or with experts."""
    bias = config.flag("attention_bias", False)
    return {
        "qk_norm": "head" if config.flag("use_qk_norm", True) else "none",
        "qkv_bias": config.flag("qkv_bias", bias),
        "o_bias": bias,
    }


def qwen_attention(config: Config, layers: int) -> list[Fields]:
    """Attention of Qwen2 and Qwen3: the files name a window and mostly switch it off."""
    config.ignore("max_window_layers", "sliding_window")
    if not config.flag("use_sliding_window", False):
        return full(config, layers)
    if not config.given("layer_types"):
        # Which side of max_window_layers slides differs between the documentation and the code.
        raise config.fail("use_sliding_window True needs layer_types, which layers slide")
    return sliding(config, config.items("layer_types", layers, (FULL, SLIDING)))


def _dense(config: Config, *, multi_head: bool = False, derived: bool = True) -> Fields:
    """Widths of a dense model."""
    return {
        **outside(config),
        **heads(config, multi_head=multi_head, derived=derived),
        **rotary(config),
        "intermediate": config.whole("intermediate_size"),
    }
