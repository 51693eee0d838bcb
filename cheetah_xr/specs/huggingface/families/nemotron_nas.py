"""Llama-Nemotron (Super-49B, Ultra-253B): a Llama of which a search left every layer another share."""

from __future__ import annotations

from ..common import Fields, gqa, grouped, heads, outside, rotary
from ..config import Config

MULTIPLE = 256
"""Widths of MLPs are rounded up to a multiple of this."""
NOTHING: Fields = {"attention": "none", "mlp": "none"}
"""A layer that lost both: nothing is stored or computed, so it is none."""


def nemotron_nas(config: Config) -> Fields:
    """Llama-Nemotron: `block_configs` has KV heads and MLP width of every layer, or that it has none."""
    config.only(attention_bias=False, mlp_bias=False, num_key_value_heads=None, intermediate_size=None)
    widths = heads(config, multi_head=True)
    n_heads, hidden = widths.pop("n_kv_heads"), config.whole("hidden_size")
    layers = [_attention(block, n_heads) | _mlp(block, hidden) for block in _blocks(config)]
    return {
        **outside(config),
        **widths,
        **rotary(config),
        "groups": grouped(layer for layer in layers if layer != NOTHING),
    }


def _blocks(config: Config) -> list[Config]:
    """What is said of every layer."""
    layers, blocks = config.layers(), config.get("block_configs")
    if not isinstance(blocks, list):
        what = "is missing" if blocks is None else f"has value {blocks!r}: expected a list with one entry per layer"
        raise config.fail(f"field block_configs {what}")
    if len(blocks) != layers:
        raise config.fail(f"field block_configs has {len(blocks)} entries for {layers} layers")
    named = Config({f"block_configs[{i}]": block for i, block in enumerate(blocks)}, config.where)
    return [named.section(name) for name in named.fields]


def _attention(block: Config, n_heads: int) -> Fields:
    """Grouped-query attention of a layer, or none."""
    attention = block.section("attention")
    attention.only(replace_with_linear=False, sparsify=None, window_length=None, num_sink_tokens=None)
    attention.only(unshifted_sink=False, use_prefill_window_in_sink_attention=False)
    without = attention.flag("no_op")
    if without:
        attention.only(n_heads_in_group=None)
    group = 1 if without else attention.whole("n_heads_in_group")
    attention.reject_the_rest()
    if n_heads % group:
        raise attention.fail(f"n_heads_in_group {group} does not divide {n_heads} heads")
    return {"attention": "none"} if without else gqa(n_kv_heads=n_heads // group)


def _mlp(block: Config, hidden: int) -> Fields:
    """MLP of a layer, or none: two thirds of so many times `hidden`, since a third matrix is the gate."""
    ffn = block.section("ffn")
    ffn.only(replace_with_linear=False, sparsify=None)
    without = ffn.flag("no_op")
    if without:
        ffn.only(ffn_mult=None)
    multiple = ffn.get("ffn_mult")
    ffn.reject_the_rest()
    block.reject_the_rest()
    if without:
        return {"mlp": "none"}
    if isinstance(multiple, bool) or not isinstance(multiple, (int, float)) or not 0 < multiple < hidden:
        what = "is missing" if multiple is None else f"has value {multiple!r}: expected a factor of hidden_size"
        raise ffn.fail(f"field ffn_mult {what}")
    return {"mlp": "dense", "intermediate": -(-max(int(2 * multiple * hidden / 3), 1) // MULTIPLE) * MULTIPLE}
