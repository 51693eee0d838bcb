"""Families of multi-head latent attention, with or without an indexer that keeps the best tokens."""

from __future__ import annotations

from ..common import Fields, experts, grouped, layer_types, moe_layers, outside, prediction, shared_experts
from ..config import Config

RANKS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

INDEXED = ("deepseek_sparse_attention", "indexed_attention")
"""Old and new name of the one kind of layer that families with an indexer have."""


def deepseek_v2(config: Config) -> Fields:
    """DeepSeek-V2: softmax routing without a correction bias."""
    _routing(config, "greedy", "group_limited_greedy")
    return _model(config, router_bias=False)


def deepseek_v3(config: Config) -> Fields:
    """DeepSeek-V3, R1, V3.1 and Kimi-K2; checkpoints repeat the embeddings of the prediction layer."""
    _routing(config, "noaux_tc")
    return _model(config) | _prediction(config, "none", embeddings=True)


def glm4_moe_lite(config: Config) -> Fields:
    """GLM-4.7-Flash: shaped as DeepSeek-V3."""
    return deepseek_v3(config)


def deepseek_v32(config: Config) -> Fields:
    """DeepSeek-V3.2: an indexer in every layer."""
    _routing(config, "noaux_tc")
    layers = config.layers()
    layer_types(config, layers, INDEXED, ())
    return _model(config, ["own"] * layers) | indexer(config) | _prediction(config, "own", embeddings=True)


def glm_moe_dsa(config: Config) -> Fields:
    """GLM-5: an indexer in every layer, or, from 5.2 on, in some, whose choice the others reuse."""
    _routing(config, "noaux_tc")
    layers = config.layers()
    layer_types(config, layers, INDEXED, ())
    config.ignore("indexer_rope_interleave", "index_share_for_mtp_iteration")
    return _model(config, _indexers(config, layers)) | indexer(config) | _prediction(config, "own")


def _indexers(config: Config, layers: int) -> list[str]:
    """Which layers have an indexer of their own."""
    if config.given("indexer_types"):
        # The schedule the list was made from.
        config.ignore("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern")
        types = config.items("indexer_types", layers, ("full", "shared"))
        if types[0] != "full":
            raise config.fail("the first of indexer_types must be full: there is no choice to reuse")
        return ["own" if kind == "full" else "shared" for kind in types]
    config.only(index_topk_freq=1, index_topk_pattern=None)
    config.ignore("index_skip_topk_offset")
    return ["own"] * layers


def indexer(config: Config) -> Fields:
    """Widths of the indexer."""
    return {
        "index_heads": config.whole("index_n_heads"),
        "index_dim": config.whole("index_head_dim"),
        "index_top_k": config.whole("index_topk"),
    }


def latent(config: Config) -> Fields:
    """Widths of multi-head latent attention."""
    n_heads = config.whole("num_attention_heads")
    ranks = {name: config.whole(name) for name in RANKS}
    config.only(attention_bias=False)
    config.ignore("head_dim")
    config.same("num_key_value_heads", n_heads, "num_attention_heads")
    config.same("qk_head_dim", ranks["qk_nope_head_dim"] + ranks["qk_rope_head_dim"], "the sum of its parts")
    return {
        "n_heads": n_heads,
        **ranks,
        "q_lora_rank": config.whole_or_null("q_lora_rank", "queries are not compressed"),
    }


def _model(config: Config, indexers: list[str] | None = None, *, router_bias: bool = True) -> Fields:
    layers = config.layers()
    kinds = zip(indexers or ["none"] * layers, moe_layers(config, layers), strict=True)
    return {
        **outside(config),
        **latent(config),
        **experts(config),
        **shared_experts(config),
        "router_bias": router_bias,
        "intermediate": config.whole("intermediate_size"),
        "groups": grouped(_layer(index, "moe" if routed else "dense") for index, routed in kinds),
    }


def _layer(index: str, mlp: str) -> Fields:
    return {"attention": "mla", "mlp": mlp} | ({} if index == "none" else {"indexer": index})


def _prediction(config: Config, index: str, *, embeddings: bool = False) -> Fields:
    return prediction(config, "num_nextn_predict_layers", [_layer(index, "moe")], embeddings=embeddings)


def _routing(config: Config, *methods: str) -> None:
    """Reject a routing with another correction bias than the family's."""
    if config.given("topk_method") and config.get("topk_method") not in methods:
        raise config.fail(
            f"topk_method {config.get('topk_method')!r} is not supported; supported: {', '.join(methods)}"
        )
