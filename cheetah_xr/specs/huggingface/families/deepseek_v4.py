"""DeepSeek-V4: compressed attention, hyper-connections, experts looked up by token in the first layers."""

from __future__ import annotations

from ..common import Fields, experts, grouped, outside, prediction, shared_experts
from ..config import Config
from .mla import indexer

RATIOS: dict[int, Fields] = {0: {}, 4: {"compress": 4, "indexer": "own"}, 128: {"compress": 128}}
"""Tokens behind one entry -> what a layer has: only those of 4 tokens are chosen by an indexer."""


def deepseek_v4(config: Config) -> Fields:
    """DeepSeek-V4; the last compression ratios belong to the MTP module."""
    layers, more = config.layers(), config.whole("num_nextn_predict_layers", least=0, default=0)
    config.only(num_key_value_heads=1, attention_bias=False, topk_method="noaux_tc")
    config.ignore("hc_eps", "hc_sinkhorn_iters", "compress_rope_theta", "expert_dtype")
    ratios = config.items("compress_ratios", layers + more, tuple(RATIOS))
    hashed = config.whole("num_hash_layers", least=0)
    if hashed > layers:
        raise config.fail(f"num_hash_layers {hashed} is above num_hidden_layers {layers}")
    window = config.whole("sliding_window")
    kinds = [{"attention": "compressed", "mlp": "moe", "window": window, **RATIOS[ratio]} for ratio in ratios]
    by_token = [{"hash_routing": True}] * hashed + [{}] * (layers - hashed)
    return {
        **outside(config),
        **{name: config.whole(name) for name in ("head_dim", "q_lora_rank", "qk_rope_head_dim", *_OUTPUT)},
        **indexer(config),
        **experts(config),
        **shared_experts(config),
        "n_heads": config.whole("num_attention_heads"),
        "router_bias": True,
        "residual_streams": config.whole("hc_mult"),
        "groups": grouped(kind | hashing for kind, hashing in zip(kinds[:layers], by_token, strict=True)),
        **prediction(config, "num_nextn_predict_layers", kinds[layers:]),
    }


_OUTPUT = ("o_groups", "o_lora_rank")
