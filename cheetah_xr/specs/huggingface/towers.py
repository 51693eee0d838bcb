"""Vision towers: the fields each reads, the values it understands, and its parameters by named part.

What a field may be is written down, so that a tower with something more (a pooling head, an adapter, biases) is
rejected instead of miscounted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .config import NOT_STRUCTURAL

Numbers = Mapping[str, int]
Parts = dict[str, int]

HARMLESS = frozenset(
    [
        # numerics, sizes of the input, bookkeeping, and what is harmless in any config
        *("activation_func", "projector_hidden_act", "projector_dropout", "projector_ln_eps", "layer_norm_eps"),
        *("rope_mode", "initializer_factor", "max_position_embeddings", "merge_type", "video_attn_type"),
        *("vision_feature_select_strategy", "vision_segment_max_frames", "pos_emb_interpolation_mode"),
        *("init_pos_emb_time", "default_output_length", "pooling_kernel_size", "video_seq_length"),
        *("image_seq_length", "is_encoder_decoder"),
        # heads divide a width that is given elsewhere; the image's size counts only where positions are learned
        *("num_heads", "num_attention_heads", "vt_num_attention_heads", "head_dim", "global_head_dim", "image_size"),
        # repeats of the tower's width, and of CLIP's vocabulary
        *("mm_hidden_size", "vocab_size"),
        *NOT_STRUCTURAL,
    ]
)
"""Fields of a vision_config without effect on parameters."""


@dataclass(frozen=True)
class Tower:
    """What a tower reads: spellings of its model_type, numbers, and fields of which only some values are understood.

    A name that starts with "top." is a field outside `vision_config`. None among the values allows a field to be
    absent; `optional` numbers have their class's default.
    """

    types: tuple[str, ...]
    numbers: tuple[str, ...]
    parts: Callable[[Numbers, int], Parts]
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    optional: Mapping[str, int] = field(default_factory=dict)


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _plain_layer(hidden: int, intermediate: int) -> int:
    """Encoder layer with biases everywhere: four projections, two matrices, two layer norms."""
    return 4 * _linear(hidden, hidden) + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 4 * hidden


def _gemma3(n: Numbers, text: int) -> Parts:
    """SigLIP without its pooling head; a norm and one matrix to the text model."""
    hidden, patch = n["hidden_size"], n["patch_size"]
    return {
        "patches": _linear(n["num_channels"] * patch**2, hidden),
        "positions": (n["image_size"] // patch) ** 2 * hidden,
        "layers": n["num_hidden_layers"] * _plain_layer(hidden, n["intermediate_size"]),
        "last norm": 2 * hidden,
        "projector": hidden + hidden * text,
    }


def _gemma4(n: Numbers, text: int) -> Parts:
    """Gated MLP, four norms a layer, norms on query and key heads; no biases; mean and deviation of the output."""
    hidden, head = n["hidden_size"], n["head_dim"]
    attention = 2 * hidden * head * (n["num_attention_heads"] + n["num_key_value_heads"]) + 2 * head
    return {
        "patches": 3 * n["patch_size"] ** 2 * hidden,
        "positions": 2 * n["position_embedding_size"] * hidden,
        "layers": n["num_hidden_layers"] * (attention + 3 * hidden * n["intermediate_size"] + 4 * hidden),
        "standardisation": 2 * hidden,
        "projector": hidden * text,
    }


def _llama4(n: Numbers, text: int) -> Parts:
    """A class token with the patches, norms before and after; 2 x 2 patches are one input of the adapter."""
    hidden, patch, middle = n["hidden_size"], n["patch_size"], n["projector_output_dim"]
    return {
        "patches": n["num_channels"] * patch**2 * hidden,
        "class token": hidden,
        "positions": ((n["image_size"] // patch) ** 2 + 1) * hidden,
        "first and last norm": 4 * hidden,
        "layers": n["num_hidden_layers"] * _plain_layer(hidden, n["intermediate_size"]),
        "adapter": 4 * hidden * n["projector_input_dim"] + middle**2,
        "projector": n["vision_output_dim"] * text,
    }


def _mistral3(n: Numbers, text: int) -> Parts:
    """Pixtral: gated MLP, two norms without bias, rotary positions; patches are merged before the projector."""
    hidden = n["hidden_size"]
    return {
        "patches": n["num_channels"] * n["patch_size"] ** 2 * hidden,
        "first norm": hidden,
        "layers": n["num_hidden_layers"] * (4 * hidden**2 + 3 * hidden * n["intermediate_size"] + 2 * hidden),
        "merger": hidden + n["top.spatial_merge_size"] ** 2 * hidden * hidden,
        "projector": hidden * text + text**2,
    }


def _qwen(n: Numbers, text: int) -> Parts:
    """Qwen3-VL and Qwen3.5: learned positions, a merger of 2 x 2 patches, one more per deepstack layer.

    The merger norms a patch, those of deepstack layers the merged patches.
    """
    hidden = n["hidden_size"]
    merged = n["spatial_merge_size"] ** 2 * hidden
    merger = _linear(merged, merged) + _linear(merged, text)
    return {
        "patches": _linear(n["in_channels"] * n["temporal_patch_size"] * n["patch_size"] ** 2, hidden),
        "positions": n["num_position_embeddings"] * hidden,
        "layers": n["depth"] * _plain_layer(hidden, n["intermediate_size"]),
        "merger": 2 * hidden + merger,
        "deepstack": n["deepstack_visual_indexes"] * (2 * merged + merger),
    }


def _kimi_k25(n: Numbers, text: int) -> Parts:
    """MoonViT: biases everywhere, learned positions in height and width (in time they are computed)."""
    hidden = n["vt_hidden_size"]
    merged = 4 * hidden
    return {
        "patches": _linear(3 * n["patch_size"] ** 2, hidden),
        "positions": n["init_pos_emb_height"] * n["init_pos_emb_width"] * hidden,
        "layers": n["vt_num_hidden_layers"] * _plain_layer(hidden, n["vt_intermediate_size"]),
        "last norm": 2 * hidden,
        "projector": 2 * hidden + _linear(merged, merged) + _linear(merged, text),
    }


def _kimi_k3(n: Numbers, text: int) -> Parts:
    """MoonViT without biases, norms without bias, attention wider than the stream; the projector's norm comes last."""
    hidden, attention = n["vt_hidden_size"], 4 * n["vt_hidden_size"] * n["qkv_hidden_size"]
    merged = 4 * hidden
    return {
        "patches": 3 * n["patch_size"] ** 2 * hidden,
        "positions": n["init_pos_emb_height"] * n["init_pos_emb_width"] * hidden,
        "layers": n["vt_num_hidden_layers"] * (attention + 2 * hidden * n["vt_intermediate_size"] + 2 * hidden),
        "last norm": hidden,
        "projector": merged**2 + merged * text + text,
    }


def _minimax_m3(n: Numbers, text: int) -> Parts:
    """CLIP with rotary positions and a first norm only; a projector, then a merger of 2 x 2 projected patches."""
    hidden = n["hidden_size"]
    return {
        "patches": 2 * n["num_channels"] * n["patch_size"] ** 2 * hidden,
        "first norm": 2 * hidden,
        "layers": n["num_hidden_layers"] * _plain_layer(hidden, n["intermediate_size"]),
        "projector": _linear(hidden, text) + _linear(text, text),
        "merger": _linear(4 * text, text) + _linear(text, text),
    }


_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "patch_size")
_QWEN = (
    *("hidden_size", "intermediate_size", "depth", "patch_size", "temporal_patch_size", "spatial_merge_size"),
    *("num_position_embeddings", "out_hidden_size", "in_channels"),
)
_KIMI = (
    *("vt_hidden_size", "vt_intermediate_size", "vt_num_hidden_layers", "patch_size", "init_pos_emb_height"),
    *("init_pos_emb_width", "text_hidden_size"),
)
_KIMI_VALUES = {"merge_kernel_size": ([2, 2],), "pos_emb_type": ("divided_fixed",)}
_PATCH_MERGE = {"image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2}

TOWERS = {
    "gemma3": Tower(
        types=("siglip_vision_model",),
        numbers=(*_SIZES, "image_size"),
        parts=_gemma3,
        allowed={"vision_use_head": (False,)},
        optional={"num_channels": 3},
    ),
    "gemma4": Tower(
        types=("gemma4_vision",),
        numbers=(*_SIZES, "num_attention_heads", "num_key_value_heads", "head_dim", "position_embedding_size"),
        parts=_gemma4,
        allowed={"attention_bias": (False, None), "standardize": (True,), "use_clipped_linears": (False, None)},
    ),
    "llama4": Tower(
        types=("llama4_vision_model",),
        numbers=(*_SIZES, "image_size", "projector_input_dim", "projector_output_dim", "vision_output_dim"),
        parts=_llama4,
        allowed={
            "pixel_shuffle_ratio": (0.5,),
            "multi_modal_projector_bias": (False, None),
            "vision_feature_layer": (-1, None),
        },
        optional={"num_channels": 3},
    ),
    "mistral3": Tower(
        types=("pixtral",),
        numbers=(*_SIZES, "top.spatial_merge_size"),
        parts=_mistral3,
        allowed={"top.multimodal_projector_bias": (False,), "top.vision_feature_layer": (-1, None)},
        optional={"num_channels": 3},
    ),
    **{
        family: Tower((family, f"{family}_vision"), _QWEN, _qwen, optional={"deepstack_visual_indexes": 0})
        for family in ("qwen3_5", "qwen3_5_moe")
    },
    **{
        family: Tower((family, f"{family}_vision"), (*_QWEN, "deepstack_visual_indexes"), _qwen)
        for family in ("qwen3_vl", "qwen3_vl_moe")
    },
    "kimi_k25": Tower(
        types=("",),
        numbers=_KIMI,
        parts=_kimi_k25,
        allowed={**_KIMI_VALUES, "mm_projector_type": ("patchmerger",)},
    ),
    "kimi_k3": Tower(
        types=("",),
        numbers=(*_KIMI, "qkv_hidden_size"),
        parts=_kimi_k3,
        allowed={
            **_KIMI_VALUES,
            "mm_projector_type": ("patchmergerv2",),
            "norm_type": ("rmsnorm",),
            "mlp_type": ("mlp2",),
            **dict.fromkeys(("attn_bias", "linear_bias", "patch_embed_proj_bias"), (False,)),
        },
    ),
    "minimax_m3_vl": Tower(
        types=("clip_vision_model",),
        numbers=(*_SIZES, "num_channels", "projection_dim", "top.projector_hidden_size"),
        parts=_minimax_m3,
        allowed={
            "position_embedding_type": ("rope",),
            "img_token_compression_config": (_PATCH_MERGE,),
            "top.img_token_compression_config": (_PATCH_MERGE, None),
            "top.multimodal_projector_bias": (True,),
            "top.vision_feature_layer": (-1, None),
        },
    ),
}
"""Tower of a top-level model_type: the projector belongs to the model, not to the tower."""
