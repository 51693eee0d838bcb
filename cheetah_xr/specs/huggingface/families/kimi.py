"""Kimi-Linear and Kimi-K3: three layers of Kimi delta attention, then one of latent attention without positions."""

from __future__ import annotations

from ..common import Fields, grouped, mlps, moe_layers, outside
from ..config import Config
from .mla import latent


def kimi_linear(config: Config) -> Fields:
    """Kimi-Linear and the text model of Kimi-K3."""
    layers = config.layers()
    # Which experts, not how many; constants of the activation.
    config.ignore("moe_renormalize", "moe_router_activation_func", "num_expert_group", "use_grouped_topk")
    config.ignore("activation_situ_beta", "activation_situ_linear_beta")
    config.only(num_nextn_predict_layers=0)
    delta, mixers = _delta_attention(config, layers)
    moe, routed_extra = _experts(config)
    residual = _attention_residual(config)
    kinds = [
        mixer | mlp | _extra(residual + (routed_extra if mlp["mlp"] == "moe" else 0))
        for mixer, mlp in zip(mixers, mlps(moe_layers(config, layers)), strict=True)
    ]
    return {
        **outside(config),
        **latent(config),
        "rotary": 0.0 if config.flag("mla_use_nope") else 1.0,
        "output_gate": config.flag("mla_use_output_gate", False),
        **delta,
        **moe,
        "router_bias": True,
        "intermediate": config.whole("intermediate_size"),
        "groups": grouped(kinds),
        **_extra(residual // 2),
    }


def _delta_attention(config: Config, layers: int) -> tuple[Fields, list[Fields]]:
    """Widths of Kimi delta attention, and the mixer of every layer; layers are counted from 1."""
    inside = config.section("linear_attn_config")
    inside.ignore("gate_lower_bound")
    kda, full = (inside.get(name) for name in ("kda_layers", "full_attn_layers"))
    for name, listed in (("kda_layers", kda), ("full_attn_layers", full)):
        if not isinstance(listed, list) or any(type(i) is not int for i in listed):
            raise inside.fail(f"field {name} has value {listed!r}: expected a list of layers counted from 1")
    if sorted(kda + full) != list(range(1, layers + 1)):
        raise inside.fail(f"kda_layers and full_attn_layers do not name each of {layers} layers once")
    n_heads, width = inside.whole("num_heads"), inside.whole("head_dim")
    fields = {
        "linear_key_heads": n_heads,
        "linear_value_heads": n_heads,
        "linear_key_dim": width,
        "linear_value_dim": width,
        "linear_conv": inside.whole("short_conv_kernel_size"),
        "linear_gate_rank": 0 if inside.flag("use_full_rank_gate", False) else width,
    }
    inside.reject_the_rest()
    return fields, [{"attention": "kda" if i in kda else "mla"} for i in range(1, layers + 1)]


def _experts(config: Config) -> tuple[Fields, int]:
    """Experts, and the parameters of a layer of them that no field counts: the norm of the latent width."""
    width = config.whole("moe_intermediate_size")
    fields = {
        "n_experts": config.whole("num_experts"),
        "top_k": config.whole("num_experts_per_token"),
        "expert_intermediate": width,
        "shared_intermediate": config.whole("num_shared_experts", least=0) * width,
    }
    if not config.given("routed_expert_hidden_size"):
        config.only(latent_moe_use_norm=False)
        return fields, 0
    latent_width = config.whole("routed_expert_hidden_size")
    normed = config.flag("latent_moe_use_norm")
    return fields | {"expert_hidden": latent_width}, latent_width if normed else 0


def _attention_residual(config: Config) -> int:
    """Parameters per layer of attention residuals: their shapes are a guess that meets the checkpoint's total."""
    if not config.given("attn_res_block_size"):
        return 0
    config.whole("attn_res_block_size")
    return 4 * config.whole("hidden_size")


def _extra(parameters: int) -> Fields:
    return {"extra_parameters": parameters} if parameters else {}
