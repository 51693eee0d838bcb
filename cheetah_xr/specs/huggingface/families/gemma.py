"""Gemma 2, 3 and 4: layers that slide and layers that see everything, norms around every block, tied embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common import FULL, SLIDING, Fields, gqa, grouped, heads, layer_types, merged, mlps, outside, rotary, sliding
from ..config import Config

GEMMA3_VOCAB = 262_208
PATTERN = 6
"""Class defaults of Gemma 3: vocabulary; every sixth layer sees everything (Gemma 4 too)."""


def gemma2(config: Config) -> Fields:
    """Gemma 2: the even layers slide."""
    layers = config.layers()
    config.same("sliding_window_size", config.get("sliding_window"), "sliding_window")
    types = layer_types(config, layers, (FULL, SLIDING), _pattern(layers, 2))
    return {
        **_dense(config),
        "groups": merged(sliding(config, types), mlps([False] * layers)),
    }


def gemma3(config: Config) -> Fields:
    """Gemma 3: every sixth layer, or as the pattern says, sees everything; norms on queries and keys."""
    layers = config.layers()
    config.ignore("rope_local_base_freq")
    config.only(use_bidirectional_attention=False)
    pattern = config.whole("sliding_window_pattern", default=PATTERN)
    types = layer_types(config, layers, (FULL, SLIDING), _pattern(layers, pattern))
    return {
        **_dense(config, GEMMA3_VOCAB),
        "qk_norm": "head",
        "groups": merged(sliding(config, types), mlps([False] * layers)),
    }


def gemma4(config: Config) -> Fields:
    """Gemma 4: layers that see everything have wider heads, KV heads of their own and no value projection."""
    layers = config.layers()
    # A second vocabulary with embeddings and projections in every layer (E2B and E4B): no such work is priced.
    config.only(hidden_size_per_layer_input=0)
    config.only(use_bidirectional_attention="vision", attention_bias=False)
    if config.get("hidden_size_per_layer_input") is None:
        raise config.fail("field hidden_size_per_layer_input is missing; 0 means no embeddings per layer")
    config.ignore("vocab_size_per_layer_input")
    types = layer_types(config, layers, (FULL, SLIDING), _pattern(layers, PATTERN))
    if types[-1] != FULL:
        raise config.fail("the last of layer_types must be full_attention")
    mlp, kind = _gemma4_mlp(config)
    wide, narrow = _gemma4_full(config), gqa(config.whole("sliding_window"))
    own = [(wide if t == FULL else narrow) | kind for t in types]
    return {
        **outside(config, tied=True),
        **heads(config, derived=False),
        **mlp,
        "qk_norm": "head",
        "groups": grouped(_gemma4_shared(config, types, own)),
    }


def _gemma4_shared(config: Config, types: Sequence[str], own: list[Fields]) -> list[Fields]:
    """The last layers take keys and values from the last one of their kind before them; their MLPs may be wider."""
    shared = config.whole("num_kv_shared_layers", least=0, default=0)
    double = config.flag("use_double_wide_mlp", False)
    first = len(own) - shared
    if first < 1 or set(types[first:]) - set(types[:first]):
        raise config.fail(f"num_kv_shared_layers {shared}: some have no layer of their kind before them to take from")
    more: Fields = {"kv_shared": True} | ({"intermediate": 2 * config.whole("intermediate_size")} if double else {})
    later = [{field: value for field, value in layer.items() if field != "k_eq_v"} | more for layer in own[first:]]
    return own[:first] + later


def _gemma4_full(config: Config) -> Fields:
    """A layer that sees everything."""
    shared = config.flag("attention_k_eq_v")
    kv_heads = config.whole("num_global_key_value_heads") if shared else None
    config.ignore("num_global_key_value_heads")
    share: Fields = {"rotary": 0.25}
    if config.given("rope_parameters"):
        share = rotary(config.section("rope_parameters").section(FULL))
    return gqa(n_kv_heads=kv_heads, head_dim=config.whole("global_head_dim"), k_eq_v=shared or None) | share


def _gemma4_mlp(config: Config) -> tuple[Fields, Fields]:
    """Widths of the MLP, and its kind in every layer: with experts, a dense MLP works in parallel."""
    dense: dict[str, Any] = {"intermediate": config.whole("intermediate_size"), "norms_per_layer": 4}
    config.ignore("expert_intermediate_size")
    # One scale per layer; with experts three more norms, and scales of the router's input and of every expert.
    if not config.flag("enable_moe_block", False):
        config.only(num_experts=0, top_k_experts=0, moe_intermediate_size=0)
        return dense, {"mlp": "dense", "extra_parameters": 1}
    n_experts = config.whole("num_experts")
    routed = {
        "n_experts": n_experts,
        "top_k": config.whole("top_k_experts"),
        "expert_intermediate": config.whole("moe_intermediate_size"),
        "norms_per_layer": 7,
    }
    return dense | routed, {"mlp": "moe+dense", "extra_parameters": 1 + config.whole("hidden_size") + n_experts}


def _dense(config: Config, vocab: int | None = None) -> Fields:
    """Widths of Gemma 2 and 3."""
    bias = config.flag("attention_bias", False)
    return {
        **outside(config, tied=True, vocab=vocab),
        **heads(config, derived=False),
        **rotary(config),
        "intermediate": config.whole("intermediate_size"),
        "norms_per_layer": 4,
        "qkv_bias": bias,
        "o_bias": bias,
    }


def _pattern(layers: int, every: int) -> list[str]:
    """Types of layers of which every so manieth sees everything."""
    return [SLIDING if (i + 1) % every else FULL for i in range(layers)]
