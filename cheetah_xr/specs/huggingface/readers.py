"""Read a Hugging Face ``config.json`` of the families this version prices exactly; reject everything else by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .config import Config
from .families import (
    deepseek_v4,
    dense,
    gemma,
    kimi,
    layernorm,
    minimax,
    mixed,
    mla,
    moe,
    nemotron,
    nemotron_nas,
    qwen_hybrid,
)
from .families.multimodal import WRAPPERS, text_config
from .quantization import default_precision
from .vision import vision_parameters

READERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "deepseek_v2": mla.deepseek_v2,
    "deepseek_v3": mla.deepseek_v3,
    "deepseek_v32": mla.deepseek_v32,
    "deepseek_v4": deepseek_v4.deepseek_v4,
    "falcon": layernorm.falcon,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "gemma4_text": gemma.gemma4,
    "glm4_moe": moe.glm4_moe,
    "glm4_moe_lite": mla.glm4_moe_lite,
    "glm_moe_dsa": mla.glm_moe_dsa,
    "gpt_oss": moe.gpt_oss,
    "kimi_k2": mla.deepseek_v3,
    "kimi_linear": kimi.kimi_linear,
    "llama": dense.llama,
    "llama4_text": mixed.llama4,
    "mimo": dense.mimo,
    "mimo_v2_flash": mixed.mimo_v2_flash,
    "minimax_m1": minimax.minimax_m1,
    "minimax_m2": moe.minimax_m2,
    "minimax_m3": minimax.minimax_m3,
    "ministral3": dense.ministral3,
    "mistral": dense.mistral,
    "mixtral": moe.mixtral,
    "nemotron-nas": nemotron_nas.nemotron_nas,
    "nemotron_h": nemotron.nemotron_h,
    "opt": layernorm.opt,
    "phi3": dense.phi3,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "qwen3_5_moe_text": qwen_hybrid.qwen3_5_moe,
    "qwen3_5_text": qwen_hybrid.qwen3_5,
    "qwen3_moe": moe.qwen3_moe,
    "qwen3_next": qwen_hybrid.qwen3_next,
    "qwen3_vl_moe_text": moe.qwen3_moe,
    "qwen3_vl_text": dense.qwen3,
}
"""Model type of a text model -> its reader."""

SUPPORTED = sorted({*READERS, *WRAPPERS})


def model_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Translate a config's fields to those of :class:`~cheetah_xr.specs.model.Model`.

    Parameters
    ----------
    fields
        Fields of a ``config.json``, of a text model or of a wrapper with ``text_config`` and ``vision_config``.
    where
        What to call the config in errors.

    Raises
    ------
    SpecError
        For an unsupported ``model_type``, an unknown field, or one that is missing or contradictory, by name.
    """
    config = Config(fields, where)
    family = fields.get("model_type")
    if not isinstance(family, str) or family not in SUPPORTED:
        raise config.fail(f"model_type {family!r} is not supported; supported: {', '.join(SUPPORTED)}")
    text = text_config(config, family) if family in WRAPPERS else config
    model = READERS[str(text.fields["model_type"])](text)
    text.reject_the_rest()
    if text is not config and fields["vision_config"] is not None:
        model["vision_parameters"] = vision_parameters(fields, model["hidden"], where)
    return {**model, "default_precision": default_precision(fields, where)}
