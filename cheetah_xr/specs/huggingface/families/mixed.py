"""Families whose layers differ: chunks or windows between layers that see everything, experts in some of them."""

from __future__ import annotations

from ..common import (
    FULL,
    Fields,
    experts,
    gqa,
    grouped,
    heads,
    merged,
    mlps,
    moe_layers,
    outside,
    rotary,
    shared_experts,
)
from ..config import Config


def llama4(config: Config) -> Fields:
    """Llama 4: rotary layers with chunked attention, between them layers without positions that see everything."""
    layers = config.layers()
    config.only(attention_bias=False)
    # The norm on queries and keys has no weights; the temperature is a factor.
    config.ignore("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor")
    routed = _llama4_moe_layers(config, layers)
    width = config.whole("intermediate_size")
    return {
        **outside(config),
        **heads(config, derived=False),
        **experts(config, "intermediate_size"),
        "shared_intermediate": width,
        **({} if all(routed) else {"intermediate": config.whole("intermediate_size_mlp")}),
        "groups": merged(_llama4_attention(config, layers), mlps(routed)),
    }


def _llama4_attention(config: Config, layers: int) -> list[Fields]:
    every = config.whole("no_rope_layer_interval", default=4)
    with_rope = [int((i + 1) % every != 0) for i in range(layers)]
    if config.get("no_rope_layers"):
        with_rope = config.items("no_rope_layers", layers, (0, 1))
    chunk = config.whole("attention_chunk_size")
    if config.given("layer_types"):
        types = config.items("layer_types", layers, (FULL, "chunked_attention"))
        if any((kind == FULL) == bool(rope) for kind, rope in zip(types, with_rope, strict=True)):
            raise config.fail("layer_types contradicts which layers have rotary positions (no_rope_layers)")
    return [gqa(chunk=chunk) if rope else gqa(rotary=0.0) for rope in with_rope]


def _llama4_moe_layers(config: Config, layers: int) -> list[bool]:
    config.ignore("intermediate_size_mlp")
    if config.given("moe_layers"):
        listed = config.get("moe_layers")
        if not isinstance(listed, list) or any(type(i) is not int or not 0 <= i < layers for i in listed):
            raise config.fail(f"field moe_layers has value {listed!r}: expected numbers of layers below {layers}")
        config.ignore("interleave_moe_layer_step")
        return [i in listed for i in range(layers)]
    step = config.whole("interleave_moe_layer_step")
    return [(i + 1) % step == 0 for i in range(layers)]


def mimo_v2_flash(config: Config) -> Fields:
    """MiMo-V2-Flash: narrow values, sliding layers with KV heads and sinks of their own."""
    layers = config.layers()
    routed = moe_layers(config, layers)
    config.only(attention_bias=False)
    config.ignore("swa_rope_theta", "attention_value_scale")
    config.same("sliding_window_size", config.get("sliding_window"), "sliding_window")
    config.same("attention_chunk_size", config.get("sliding_window"), "sliding_window")
    config.same("swa_num_attention_heads", config.get("num_attention_heads"), "num_attention_heads")
    slides = config.items("hybrid_layer_pattern", layers, (0, 1))
    window, whole = _mimo_layers(config)
    return {
        **outside(config),
        **heads(config, derived=False),
        **rotary(config),
        "v_head_dim": config.whole("v_head_dim"),
        **experts(config),
        **shared_experts(config),
        "router_bias": True,
        "intermediate": config.whole("intermediate_size"),
        "groups": grouped((window if s else whole) | mlp for s, mlp in zip(slides, mlps(routed), strict=True)),
    }


def _mimo_layers(config: Config) -> tuple[Fields, Fields]:
    """A sliding layer and one that sees everything."""
    window = gqa(
        config.whole("sliding_window"),
        sinks=config.flag("add_swa_attention_sink_bias") or None,
        n_kv_heads=config.whole("swa_num_key_value_heads"),
    )
    own = {f: config.whole(f"swa_{f}") for f in ("head_dim", "v_head_dim")}
    own = {f: width for f, width in own.items() if width != config.whole(f)}
    return window | own, gqa(sinks=config.flag("add_full_attention_sink_bias") or None)
