"""Families of grouped-query attention with experts in every layer, or in all but the first."""

from __future__ import annotations

from ..common import (
    FULL,
    SLIDING,
    Fields,
    every_layer,
    experts,
    full,
    gqa,
    heads,
    layer_types,
    merged,
    mlps,
    moe_layers,
    outside,
    prediction,
    rotary,
    shared_experts,
    sliding,
)
from ..config import Config
from .dense import qwen3_attention, qwen_attention


def mixtral(config: Config) -> Fields:
    """Mixtral: experts in every layer."""
    layers = config.layers()
    return {
        **outside(config),
        **heads(config),
        **rotary(config),
        **experts(config, "intermediate_size"),
        "groups": merged(every_layer(config, layers), mlps([True] * layers)),
    }


def qwen3_moe(config: Config) -> Fields:
    """Qwen3 with experts."""
    layers = config.layers()
    routed = sparse_layers(config, layers)
    config.only(shared_expert_intermediate_size=0)
    return {
        **outside(config),
        **heads(config, derived=False),
        **rotary(config),
        **qwen3_attention(config),
        **experts(config),
        **dense_width(config, routed),
        "groups": merged(qwen_attention(config, layers), mlps(routed)),
    }


def sparse_layers(config: Config, layers: int) -> list[bool]:
    """Which layers of a Qwen model have experts: every so manieth, without those listed as dense."""
    step = config.whole("decoder_sparse_step", default=1)
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(i) is not int or not 0 <= i < layers for i in dense):
        raise config.fail(f"field mlp_only_layers has value {dense!r}: expected numbers of layers below {layers}")
    return [(i + 1) % step == 0 and i not in dense for i in range(layers)]


def dense_width(config: Config, routed: list[bool]) -> Fields:
    """Width of the dense MLP, if some layer has one; files name it in any case."""
    config.ignore("intermediate_size")
    return {} if all(routed) else {"intermediate": config.whole("intermediate_size")}


def gpt_oss(config: Config) -> Fields:
    """gpt-oss: attention sinks, biases on every matrix, alternating windows."""
    layers = config.layers()
    config.only(attention_bias=True)
    config.same("experts_per_token", config.get("num_experts_per_tok"), "num_experts_per_tok")
    types = layer_types(config, layers, (FULL, SLIDING), None)
    return {
        **outside(config),
        **heads(config, derived=False),
        **rotary(config),
        **experts(config, "intermediate_size"),
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "router_bias": True,
        "groups": merged(({**layer, "sinks": True} for layer in sliding(config, types)), mlps([True] * layers)),
    }


def glm4_moe(config: Config) -> Fields:
    """GLM-4.5 to 4.7: biases on queries, keys and values only; checkpoints repeat the embeddings of the MTP layer."""
    layers = config.layers()
    return {
        **outside(config),
        **heads(config, derived=False),
        **rotary(config, default=0.5),
        **experts(config),
        **shared_experts(config),
        "qk_norm": "head" if config.flag("use_qk_norm") else "none",
        "qkv_bias": config.flag("attention_bias"),
        "router_bias": True,
        "intermediate": config.whole("intermediate_size"),
        "groups": merged(full(config, layers), mlps(moe_layers(config, layers))),
        **prediction(config, "num_nextn_predict_layers", [gqa() | {"mlp": "moe"}], embeddings=True),
    }


def minimax_m2(config: Config) -> Fields:
    """MiniMax-M2: norms over all heads and a routing bias unless the file says otherwise; no shared expert."""
    layers = config.layers()
    if config.given("attn_type_list"):
        config.items("attn_type_list", layers, (1,))
    config.only(shared_intermediate_size=0, sliding_window=None, qk_norm_type="per_layer")
    # Named by the file, not in the checkpoint.
    config.ignore("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    widths = heads(config, derived=False)
    return {
        **outside(config),
        **widths,
        **rotary(config, widths["head_dim"]),
        **experts(config, "intermediate_size"),
        "qk_norm": "full" if config.flag("use_qk_norm", True) else "none",
        "router_bias": config.flag("use_routing_bias", True),
        "groups": merged(full(config, layers), mlps([True] * layers)),
    }
