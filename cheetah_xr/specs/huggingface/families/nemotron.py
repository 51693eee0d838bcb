"""Nemotron-H and Nemotron-3: one mixer or MLP per layer."""

from __future__ import annotations

from typing import Any

from ..common import Fields, grouped, outside, prediction
from ..config import Config

BLOCKS: dict[str, Fields] = {
    "mamba": {"attention": "mamba2", "mlp": "none"},
    "attention": {"attention": "gqa", "mlp": "none"},
    "moe": {"attention": "none", "mlp": "moe"},
    "mlp": {"attention": "none", "mlp": "dense"},
}
LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}


def nemotron_h(config: Config) -> Fields:
    """Nemotron: Mamba-2, a few attention layers without positions, experts or MLPs without a gate."""
    blocks = _blocks(config, "hybrid_override_pattern", "layers_block_type")
    config.same("num_hidden_layers", len(blocks), "the number of blocks")
    config.only(mamba_proj_bias=False, use_bias=False, mlp_bias=False, sliding_window=None)
    # Attention has no rotary positions, whatever the file names; the inner width of Mamba-2 is heads times head width.
    config.ignore("partial_rotary_factor", "expand", "num_logits_to_keep", "rescale_prenorm_residual")
    config.ignore(
        "residual_in_fp32", "mamba_hidden_act", "mlp_hidden_act", "mamba_ssm_cache_dtype", "use_mamba_kernels"
    )
    config.ignore(*(f"time_step_{x}" for x in ("floor", "limit", "max", "min", "rank")), "moe_shared_expert_overlap")
    config.ignore("intermediate_size")
    bias = config.flag("attention_bias", False)
    return {
        **outside(config),
        "n_heads": config.whole("num_attention_heads"),
        "n_kv_heads": config.whole("num_key_value_heads"),
        "head_dim": config.whole("head_dim", "attention_head_dim"),
        "rotary": 0.0,
        "qkv_bias": bias,
        "o_bias": bias,
        **_mamba(config),
        **({"intermediate": config.whole("intermediate_size")} if "mlp" in blocks else {}),
        **(_experts(config) if "moe" in blocks else {}),
        "gated": False,
        "groups": grouped(BLOCKS[block] for block in blocks),
        **_prediction(config),
    }


def _blocks(config: Config, pattern: str, names: str) -> list[str]:
    """Blocks of the layers, as a string of letters or a list of names."""
    if config.given(names):
        listed: Any = config.get(names)
        if config.given(pattern):
            raise config.fail(f"field {pattern} or {names} is given as {pattern} and {names}")
        return config.items(names, len(listed) if isinstance(listed, list) else 0, tuple(BLOCKS))
    letters = config.get(pattern)
    if not isinstance(letters, str) or not letters or set(letters) - set(LETTERS):
        what = "is missing" if letters is None else f"has value {letters!r}: expected letters of {''.join(LETTERS)}"
        raise config.fail(f"field {pattern} or {names} {what}")
    return [LETTERS[letter] for letter in letters]


def _mamba(config: Config) -> Fields:
    """Widths of Mamba-2."""
    return {
        "linear_key_heads": config.whole("n_groups"),
        "linear_value_heads": config.whole("mamba_num_heads"),
        "linear_key_dim": config.whole("ssm_state_size"),
        "linear_value_dim": config.whole("mamba_head_dim"),
        "linear_conv": config.whole("conv_kernel"),
        "linear_conv_bias": config.flag("use_conv_bias"),
        "linear_chunk": config.whole("chunk_size"),
    }


def _experts(config: Config) -> Fields:
    """Experts, in a latent width if one is named, and one shared expert of full width."""
    config.only(n_shared_experts=1)
    latent = config.whole("moe_latent_size", least=0, default=0)
    return {
        "n_experts": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "expert_intermediate": config.whole("moe_intermediate_size"),
        "shared_intermediate": config.whole("moe_shared_expert_intermediate_size"),
        "router_bias": True,
        **({"expert_hidden": latent} if latent else {}),
    }


def _prediction(config: Config) -> Fields:
    names = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if not config.whole("num_nextn_predict_layers", least=0, default=0):
        config.ignore(*names)
        return {}
    return prediction(config, "num_nextn_predict_layers", [BLOCKS[block] for block in _blocks(config, *names)])
