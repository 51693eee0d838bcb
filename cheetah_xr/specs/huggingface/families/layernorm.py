"""Falcon and OPT: LayerNorm with biases, an MLP without a gate, tied embeddings."""

from __future__ import annotations

from ..common import Fields, full, merged, mlps, outside, rotary
from ..config import Config


def falcon(config: Config) -> Fields:
    """Falcon 7B and its like: one KV head, attention and MLP side by side."""
    layers = config.layers()
    config.only(alibi=False, new_decoder_architecture=False, num_ln_in_parallel_attn=1)
    config.ignore("activation", "apply_residual_connection_post_layernorm")
    around = outside(config, tied=True)
    hidden, n_heads = around["hidden"], config.whole("num_attention_heads")
    if hidden % n_heads:
        raise config.fail(f"hidden_size {hidden} is not a multiple of {n_heads} heads")
    parallel, bias = config.flag("parallel_attn", True), config.flag("bias", False)
    return {
        **around,
        **rotary(config),
        "n_heads": n_heads,
        "n_kv_heads": _falcon_kv_heads(config, n_heads),
        "head_dim": hidden // n_heads,
        "parallel_blocks": parallel,
        "norms_per_layer": 2 if parallel else 4,
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": bias,
        "intermediate": config.whole("ffn_hidden_size", default=4 * hidden),
        "gated": False,
        "extra_parameters": hidden,  # bias of the final norm
        "groups": merged(full(config, layers), mlps([False] * layers)),
    }


def _falcon_kv_heads(config: Config, n_heads: int) -> int:
    """With ``multi_query`` there is one KV head, whatever ``num_kv_heads`` says."""
    if config.flag("multi_query", True):
        config.ignore("num_kv_heads")
        return 1
    config.same("num_kv_heads", n_heads, "num_attention_heads without multi_query")
    return n_heads


def opt(config: Config) -> Fields:
    """OPT: learned positions, biases everywhere."""
    layers = config.layers()
    around = outside(config, tied=True)
    hidden, n_heads = around["hidden"], config.whole("num_attention_heads")
    config.only(do_layer_norm_before=True, enable_bias=True, layer_norm_elementwise_affine=True)
    config.only(_remove_final_layer_norm=False, word_embed_proj_dim=hidden)
    config.ignore("activation_function")
    if hidden % n_heads:
        raise config.fail(f"hidden_size {hidden} is not a multiple of {n_heads} heads")
    positions = config.whole("max_position_embeddings") + 2
    return {
        **around,
        "rotary": 0.0,
        "n_heads": n_heads,
        "n_kv_heads": n_heads,
        "head_dim": hidden // n_heads,
        "norms_per_layer": 4,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "intermediate": config.whole("ffn_dim"),
        "gated": False,
        "extra_parameters": hidden + positions * hidden,  # bias of the final norm; position table
        "groups": merged(full(config, layers), mlps([False] * layers)),
    }
