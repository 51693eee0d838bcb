"""Which classes of weights a checkpoint's list of unquantised modules leaves out, and in which layers.

Lists are written in three ways: names ("model.layers.3.self_attn.o_proj"), globs ("model.layers.3.self_attn*") and
regular expressions ("re:.*self_attn.*"). Each entry is put down to a class of weights by what its name ends in. One
that is not understood is an error, and so is a class of which only some layers, or some matrices, are left out: a
precision has one format per class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import SpecError
from .config import MAX_LAYERS

CLASSES = ("attention", "dense_mlp", "experts", "shared_experts")
"""Classes that quantisation is about; routers and embeddings are never quantised, the LM head is looked at apart."""

KINDS = (
    # outside the text model's layers, or vectors and slivers next to the matrices of a class
    ("none", r"vision|visual|audio|mm_projector|multi_modal|patch_merge|(^|\.)mtp\b|embed|_res_proj"),
    ("none", r"norm$|bias$|conv1d$|A_log$|shared_expert_gate$|eh_proj$|indexers_proj$|in_proj_(a|b|ba)$"),
    ("none", r"(^|\.)(gate|router)(\.\w+)?$"),
    ("lm_head", r"(^|\.)(lm_)?head$"),
    ("shared_experts", r"(^|\.)shared_experts?$"),
    ("experts", r"(^|\.)experts$"),
    ("attention", r"(^|\.)(self_attn|linear_attn|attn)$"),
    ("attention part", r"(^|\.)self_attn\.(?P<part>\w+)$"),
    ("dense_mlp", r"(^|\.)mlp\.\([\w|]+\)_proj$"),
    ("mlp", r"(^|\.)mlp$"),
    ("layer", r"(^|\.)layers\.\d+$"),
)
"""Class of an entry -> what it ends in, once wild cards at both ends are off. The first that fits holds."""

WHOLE_ATTENTION = (
    {"q_proj", "k_proj", "v_proj", "o_proj"},
    {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"},
)
"""Matrices that make up an attention when they are listed one by one."""

SHARED_WIDTHS = (
    *("n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size", "shared_intermediate_size"),
    *("moe_shared_expert_intermediate_size", "share_expert_dim"),
)


@dataclass(frozen=True)
class Layout:
    """Layers of a text model that have each class of weights."""

    layers: Mapping[str, frozenset[int]]

    @property
    def present(self) -> tuple[str, ...]:
        """Classes the model has at all."""
        return tuple(kind for kind in CLASSES if self.layers[kind])


def layout(text: Mapping[str, Any], where: str) -> Layout:
    """Layers with a dense MLP, routed and shared experts, from the fields of the text model."""
    types = text.get("layers_block_type")
    count = text.get("num_hidden_layers") or len(types if isinstance(types, list) else ())
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MAX_LAYERS:
        raise SpecError(f"{where}: num_hidden_layers has value {count!r}: expected a whole number of layers")
    every = frozenset(range(count))
    if not any(text.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        dense, routed = every, frozenset[int]()
    elif text.get("enable_moe_block"):
        dense = routed = every
    else:
        dense = every & frozenset(_dense_layers(text, every))
        routed = every - dense
    shared = routed if text.get("model_type") == "llama4_text" or any(text.get(n) for n in SHARED_WIDTHS) else ()
    return Layout({"attention": every, "dense_mlp": dense, "experts": routed, "shared_experts": frozenset(shared)})


def _dense_layers(text: Mapping[str, Any], every: frozenset[int]) -> Iterable[int]:
    """Layers without experts in a model that has some, in the families' spellings."""
    kinds, frequency, step = (text.get(n) for n in ("mlp_layer_types", "moe_layer_freq", "interleave_moe_layer_step"))
    if isinstance(kinds, list):
        return [layer for layer, kind in enumerate(kinds) if kind == "dense"]
    if isinstance(frequency, list):
        return [layer for layer, routed in enumerate(frequency) if not routed]
    if isinstance(step, int) and step > 1:
        return [layer for layer in every if (layer + 1) % step]
    first, only = text.get("first_k_dense_replace") or 0, text.get("mlp_only_layers") or ()
    return [layer for layer in every if layer in (only if isinstance(only, list) else ()) or layer < first]


def left_out(entries: Iterable[str], model: Layout, where: str) -> set[str]:
    """Classes of weights, and "lm_head", that a list of unquantised modules names in full.

    Raises
    ------
    SpecError
        For an entry that is not understood, and a class that is left out in part.
    """
    skipped: dict[str, set[int]] = {kind: set() for kind in (*CLASSES, "lm_head")}
    parts: dict[int, set[str]] = {}
    every = model.layers["attention"]
    for entry in entries:
        kind, layers, part = _place(entry, every, where)
        if kind == "attention part":
            for layer in layers:
                parts.setdefault(layer, set()).add(part)
        elif kind == "lm_head":
            skipped[kind] |= {0}
        elif kind != "none":
            for one in _classes(kind, model, entry, where):
                skipped[one] |= layers
    for layer, names in parts.items():
        if not any(whole <= names for whole in WHOLE_ATTENTION):
            raise SpecError(f"{where}: leaves out only {', '.join(sorted(names))} of the attention of layer {layer}")
        skipped["attention"] |= {layer}
    return {kind for kind, layers in skipped.items() if _whole(kind, layers, model, where)}


def _place(entry: str, every: frozenset[int], where: str) -> tuple[str, set[int], str]:
    """Class of an entry, the layers it holds for, and the name of the matrix where it names one."""
    name = entry.removeprefix("re:").replace("\\.", ".").strip(".*^$")
    for kind, pattern in KINDS:
        match = re.search(pattern, name)
        if match:
            number = re.search(r"layers\.(\d+)", name)
            if number is None:
                return kind, set(every), match.groupdict().get("part") or ""
            layer = number[1]
            # a glob that ends in the number of a layer is the start of longer numbers too
            open_end = kind == "layer" and re.search(r"\d\*$", entry)
            layers = {one for one in every if str(one) == layer or (open_end and str(one).startswith(layer))}
            return kind, layers, match.groupdict().get("part") or ""
    raise SpecError(f"{where}: leaves out {entry!r}, which is not understood")


def _classes(kind: str, model: Layout, entry: str, where: str) -> Iterable[str]:
    """Classes behind an entry: all of a whole layer; a whole MLP only where it has no experts inside."""
    if kind == "layer":
        return CLASSES
    if kind != "mlp":
        return (kind,)
    if model.layers["experts"] and model.layers["experts"] != model.layers["dense_mlp"]:
        raise SpecError(f"{where}: leaves out {entry!r}, experts included, which is not understood")
    return ("dense_mlp",)


def _whole(kind: str, layers: set[int], model: Layout, where: str) -> bool:
    """Whether a class is left out everywhere it is; in part is an error."""
    if kind == "lm_head":
        return bool(layers)
    there = model.layers[kind]
    if layers & there and not there <= layers:
        raise SpecError(f"{where}: leaves out {kind} in {len(layers & there)} of {len(there)} layers")
    return bool(there) and there <= layers
