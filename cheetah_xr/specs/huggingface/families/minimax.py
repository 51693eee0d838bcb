"""MiniMax-M1 (lightning attention) and M3 (block-sparse attention)."""

from __future__ import annotations

from ..common import Fields, experts, gqa, heads, layer_types, merged, mlps, moe_layers, outside, rotary, shared_experts
from ..config import Config

LIGHTNING_CHUNK = 256
"""Tokens per block of lightning attention in MiniMax's code; no config names it."""


def minimax_m1(config: Config) -> Fields:
    """MiniMax-M1: ``attn_type_list`` has 0 for lightning attention, 1 for softmax attention."""
    layers = config.layers()
    types = config.items("attn_type_list", layers, (0, 1))
    config.only(shared_intermediate_size=0, sliding_window=None)
    # Where the norm stands and how the branches are weighted: no other work.
    config.ignore("postnorm", "shared_moe_mode")
    config.ignore(*(f"layernorm_{b}_{f}" for b in ("full_attention", "linear_attention", "mlp") for f in _FACTORS))
    widths = heads(config, derived=False)
    return {
        **outside(config),
        **widths,
        **rotary(config, widths["head_dim"], default=0.5),
        **{f"linear_{side}_heads": widths["n_heads"] for side in ("key", "value")},
        **{f"linear_{side}_dim": widths["head_dim"] for side in ("key", "value")},
        "linear_chunk": LIGHTNING_CHUNK,
        **experts(config, "intermediate_size"),
        "groups": merged((gqa() if t else {"attention": "lightning"} for t in types), mlps([True] * layers)),
    }


_FACTORS = ("alpha", "beta")


def minimax_m3(config: Config) -> Fields:
    """MiniMax-M3: from the first layer with experts on, queries see the best blocks of keys."""
    layers = config.layers()
    config.only(qk_norm_type="per_head", sliding_window=None)
    # Prediction modules: named by the file, not in the checkpoint.
    config.ignore("use_gemma_norm", "num_mtp_modules", "num_nextn_predict_layers")
    width = ("moe_intermediate_size", "intermediate_size")
    config.same("shared_intermediate_size", config.whole(*width), "the width of an expert")
    widths = heads(config, derived=False)
    blocks, sparse = _blocks(config, layers)
    return {
        **outside(config),
        **widths,
        **rotary(config, widths["head_dim"]),
        **blocks,
        **experts(config, *width),
        **shared_experts(config, *width),
        "qk_norm": "head" if config.flag("use_qk_norm") else "none",
        "output_gate": config.flag("attention_output_gate", False),
        "router_bias": config.flag("use_routing_bias"),
        "intermediate": config.whole("dense_intermediate_size"),
        "groups": merged((gqa(indexer="own" if s else None) for s in sparse), mlps(moe_layers(config, layers))),
    }


def _blocks(config: Config, layers: int) -> tuple[Fields, list[int]]:
    """Widths of the block selection, and 1 for every layer that has it."""
    layer_types(config, layers, (), ())
    inside = config.section("sparse_attention_config")
    inside.ignore("sparse_score_type")
    # Blocks every query sees are priced at the end of the sequence only; index values would be more weights.
    inside.only(use_sparse_attention=True, sparse_init_block=0)
    sparse = inside.items("sparse_attention_freq", layers, (0, 1))
    inside.same("sparse_disable_index_value", sparse, "sparse_attention_freq")
    kept = inside.whole("sparse_topk_blocks") + inside.whole("sparse_local_block", least=0)
    fields = {
        "index_heads": inside.whole("sparse_num_index_heads"),
        "index_dim": inside.whole("sparse_index_dim"),
        "index_top_k": kept * inside.whole("sparse_block_size"),
    }
    inside.reject_the_rest()
    return fields, sparse
