"""What readers of several families share: widths, layer lists, experts and MTP modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .config import Config

Fields = dict[str, Any]
"""Fields of a model or of one of its layers."""

FULL, SLIDING = "full_attention", "sliding_attention"


def outside(config: Config, *, tied: bool = False, vocab: int | None = None) -> Fields:
    """Fields around the layers; `tied` and `vocab` are the family's defaults for a config that does not say."""
    names = [n for n in ("max_position_embeddings", "model_max_length") if config.given(n)]
    fields = {
        "hidden": config.whole("hidden_size"),
        "vocab": config.whole("vocab_size", default=vocab),
        "tie_embeddings": config.flag("tie_word_embeddings", tied),
    }
    return fields | ({"max_seq_len": config.whole(*names)} if names else {})


def grouped(layers: Iterable[Fields]) -> list[Fields]:
    """Layer groups: equal layers counted together, in order of first appearance."""
    kinds: list[Fields] = []
    counts: list[int] = []
    for layer in layers:
        if layer not in kinds:
            kinds.append(layer)
            counts.append(0)
        counts[kinds.index(layer)] += 1
    return [{"count": count, **kind} for count, kind in zip(counts, kinds, strict=True)]


def merged(left: Iterable[Fields], right: Iterable[Fields]) -> list[Fields]:
    """Groups of layers whose two halves are given one by one."""
    return grouped(a | b for a, b in zip(left, right, strict=True))


# ---- attention


def heads(config: Config, *, multi_head: bool = False, derived: bool = True) -> Fields:
    """Heads of grouped-query attention.

    `multi_head`: without ``num_key_value_heads`` every head has its own keys. `derived`: without ``head_dim`` the
    heads share ``hidden_size``; families whose class has another default must name it.
    """
    n_heads = config.whole("num_attention_heads")
    n_kv_heads = config.whole("num_key_value_heads", default=n_heads if multi_head else None)
    if n_heads % n_kv_heads:
        raise config.fail(f"num_attention_heads {n_heads} is not a multiple of num_key_value_heads {n_kv_heads}")
    head_dim = config.whole("head_dim") if config.given("head_dim") or not derived else _shared(config, n_heads)
    return {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim}


def _shared(config: Config, n_heads: int) -> int:
    hidden = config.whole("hidden_size")
    if hidden % n_heads:
        raise config.fail(f"head_dim is missing and hidden_size {hidden} is not a multiple of {n_heads} heads")
    return hidden // n_heads


def rotary(config: Config, head_dim: int = 0, default: float = 1.0) -> Fields:
    """Rotated fraction of a head: ``partial_rotary_factor``, also inside ``rope_parameters``, or ``rotary_dim``."""
    fractions = {}
    if config.given("partial_rotary_factor"):
        fractions["partial_rotary_factor"] = config.get("partial_rotary_factor")
    inside = config.get("rope_parameters")
    if isinstance(inside, Mapping) and inside.get("partial_rotary_factor") is not None:
        fractions["rope_parameters.partial_rotary_factor"] = inside["partial_rotary_factor"]
    if head_dim and config.given("rotary_dim"):
        fractions["rotary_dim"] = config.whole("rotary_dim") / head_dim
    for name, value in fractions.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise config.fail(f"{name} {value!r} is not a fraction of the head")
    if len(set(fractions.values())) > 1:
        raise config.fail(f"{' and '.join(fractions)} contradict each other")
    return {"rotary": float(next(iter(fractions.values()), default))}


def gqa(window: int | None = None, **more: Any) -> Fields:
    """A layer of grouped-query attention, without the fields that are None."""
    return {"attention": "gqa"} | {k: v for k, v in {"window": window, **more}.items() if v is not None}


def layer_types(config: Config, layers: int, allowed: Sequence[str], default: Sequence[str] | None) -> Sequence[str]:
    """Kind of every layer: ``layer_types``, or the family's default where the class has one."""
    if default is not None and not config.given("layer_types"):
        return default
    return config.items("layer_types", layers, allowed)


def full(config: Config, layers: int) -> list[Fields]:
    """Attention layers of a family without windows."""
    layer_types(config, layers, (FULL,), ())
    return [gqa()] * layers


def every_layer(config: Config, layers: int) -> list[Fields]:
    """Equal attention layers; ``sliding_window`` slides in all of them."""
    window = config.whole("sliding_window") if config.given("sliding_window") else None
    layer_types(config, layers, (FULL if window is None else SLIDING,), ())
    return [gqa(window)] * layers


def sliding(config: Config, types: Iterable[str]) -> list[Fields]:
    """Attention layers of which the sliding ones have the window of ``sliding_window``."""
    window = config.whole("sliding_window")
    return [gqa(window) if kind == SLIDING else gqa() for kind in types]


# ---- experts

EXPERT_WIDTH = "moe_intermediate_size"


def moe_layers(config: Config, layers: int) -> list[bool]:
    """Which layers have experts, by ``first_k_dense_replace``, a list ``moe_layer_freq`` or ``mlp_layer_types``."""
    routed_layers: dict[str, list[bool]] = {}
    if config.given("first_k_dense_replace"):
        dense = config.whole("first_k_dense_replace", least=0)
        if dense > layers:
            raise config.fail(f"first_k_dense_replace {dense} is above num_hidden_layers {layers}")
        routed_layers["first_k_dense_replace"] = [i >= dense for i in range(layers)]
    if isinstance(config.get("moe_layer_freq"), list):
        routed_layers["moe_layer_freq"] = [x == 1 for x in config.items("moe_layer_freq", layers, (0, 1))]
    else:
        config.only(moe_layer_freq=1)
    if config.given("mlp_layer_types"):
        types = config.items("mlp_layer_types", layers, ("dense", "sparse"))
        routed_layers["mlp_layer_types"] = [kind == "sparse" for kind in types]
    if not routed_layers:
        raise config.fail("field first_k_dense_replace is missing")
    (first, routed), *others = routed_layers.items()
    for name, other in others:
        if other != routed:
            raise config.fail(f"{name} contradicts {first}")
    return routed


def mlps(routed: Iterable[bool]) -> list[Fields]:
    """MLPs of the layers."""
    return [{"mlp": "moe" if experts else "dense"} for experts in routed]


def experts(config: Config, *width: str) -> Fields:
    """Routed experts: their number under its usual spellings, how many a token meets, their width."""
    return {
        "n_experts": config.whole("num_experts", "num_local_experts", "n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "expert_intermediate": config.whole(*width or (EXPERT_WIDTH,)),
    }


def shared_experts(config: Config, *width: str) -> Fields:
    """Shared experts, each as wide as a routed one."""
    count = config.whole_or_null("n_shared_experts", "there are no shared experts")
    return {"shared_intermediate": count * config.whole(*width or (EXPERT_WIDTH,))} if count else {}


# ---- multi-token prediction


def prediction(config: Config, name: str, layers: Sequence[Fields], *, embeddings: bool = False) -> Fields:
    """Multi-token prediction, when the config names it; `embeddings`: checkpoints repeat embedding and head in it."""
    count = config.whole(name, least=0, default=0)
    if count > 1:
        raise config.fail(f"{name} {count} is not supported; supported: 0 or 1")
    return {"mtp": grouped(layers)} | ({"mtp_embeddings": True} if embeddings else {}) if count else {}
