"""A config and the fields a reader took from it: whatever nobody took is rejected by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import SpecError

NOT_STRUCTURAL = {
    # names and bookkeeping
    *("architectures", "auto_map", "model_type", "_name_or_path", "transformers_version", "torch_dtype", "dtype"),
    *("quantization_config", "use_cache", "cache_implementation", "_attn_implementation", "torchscript", "return_dict"),
    *("output_attentions", "output_hidden_states", "id2label", "label2id", "finetuning_task", "problem_type"),
    *("task_specific_params", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward", "ignore_index"),
    "hf_quant_config.json",
    # tokens and sampling
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "tokenizer_class"),
    *("prefix", "bad_words_ids", "begin_suppress_tokens", "suppress_tokens", "diversity_penalty", "do_sample"),
    *("early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id"),
    *("forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups"),
    *("num_beams", "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty"),
    *("return_dict_in_generate", "temperature", "top_k", "top_p", "typical_p"),
    # numerics
    *("hidden_act", "hidden_activation", "rms_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps"),
    *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "swiglu_limit", "swiglu_alpha"),
    *("rope_theta", "rope_scaling", "rope_parameters", "rope_interleave", "original_max_position_embeddings"),
    *("use_mrope", "initial_context_length"),
    # training
    *("attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "dropout", "activation_dropout", "layerdrop"),
    *(
        "initializer_range",
        "init_std",
        "pretraining_tp",
        "ep_size",
        "aux_loss_alpha",
        "seq_aux",
        "output_router_logits",
    ),
    *("router_aux_loss_coef", "router_jitter_noise"),
    # which experts, not how many
    *("norm_topk_prob", "n_group", "topk_group", "routed_scaling_factor", "scoring_func", "topk_method"),
    *("moe_router_dtype",),
}
"""Fields of any family without effect on work, bytes or parameters."""

SWITCHES = {
    *("attention_bias", "mlp_bias", "qkv_bias", "use_qk_norm", "sliding_window", "use_sliding_window", "layer_types"),
    *("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("n_shared_experts", "shared_expert_intermediate_size", "shared_intermediate_size", "first_k_dense_replace"),
    *("mlp_only_layers", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("num_nextn_predict_layers", "add_cross_attention", "cross_attention_hidden_size", "is_decoder"),
    *("is_encoder_decoder", "tie_encoder_decoder", "pruned_heads"),
}
"""Structural fields of some families: null, false, 0 or empty they may stand in a config of any other."""

OFF: tuple[Any, ...] = (None, False, 0, [], {})
MAX_LAYERS = 10_000
"""More layers are a mistake, and lists of them would fill the memory."""


@dataclass(frozen=True)
class Config:
    """A config, what to call it in errors, and the fields that were read so far."""

    fields: Mapping[str, Any]
    where: str
    read: set[str] = field(default_factory=set)

    def fail(self, message: str) -> SpecError:
        """An error of this config."""
        return SpecError(f"{self.where}: {message}")

    def get(self, name: str) -> Any:
        """A field as it is; null and absent are None."""
        self.read.add(name)
        return self.fields.get(name)

    def given(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.get(name) is not None

    def whole(self, *names: str, least: int = 1, default: int | None = None) -> int:
        """A whole number under one of several spellings; several that are given must agree."""
        values = {n: self.get(n) for n in names if self.given(n)}
        if not values and default is not None:
            return default
        if not values:
            raise self.fail(f"field {' or '.join(names)} is missing")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise self.fail(f"field {name} has value {value!r}: expected a whole number of at least {least}")
        if len(set(values.values())) > 1:
            raise self.fail(f"{' and '.join(f'{n} {v}' for n, v in values.items())} contradict each other")
        return int(next(iter(values.values())))

    def whole_or_null(self, name: str, meaning: str) -> int:
        """A whole number, or 0 for an explicit null; absent is an error, since another default would be priced."""
        if name not in self.fields:
            raise self.fail(f"field {name} is missing; null means {meaning}")
        return self.whole(name, least=0, default=0)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A true or false; null and absent are the default, an error without one."""
        value = self.get(name)
        value = default if value is None else value
        if value is None:
            raise self.fail(f"field {name} is missing")
        if not isinstance(value, bool):
            raise self.fail(f"field {name} has value {value!r}: expected true or false")
        return value

    def only(self, **supported: Any) -> None:
        """Reject fields with another value than the one that is understood; null and absent are fine."""
        for name, value in supported.items():
            if self.given(name) and self.get(name) != value:
                raise self.fail(f"{name} {self.get(name)!r} is not supported; supported: {value!r}")

    def same(self, name: str, value: Any, as_what: str) -> None:
        """Reject a field that is given and contradicts what other fields say."""
        if self.given(name) and self.get(name) != value:
            raise self.fail(f"{name} {self.get(name)!r} contradicts {as_what}, which is {value!r}")

    def ignore(self, *names: str) -> None:
        """Fields of this family without effect on work, bytes or parameters."""
        self.read.update(names)

    def layers(self) -> int:
        """How many layers there are."""
        layers = self.whole("num_hidden_layers")
        if layers > MAX_LAYERS:
            raise self.fail(f"field num_hidden_layers has value {layers!r}: expected at most {MAX_LAYERS}")
        return layers

    def items(self, name: str, length: int, allowed: Sequence[Any]) -> list[Any]:
        """A list with one known entry per layer."""
        value = self.get(name)
        if not isinstance(value, list):
            raise self.fail(f"field {name} has value {value!r}: expected a list with one entry per layer")
        if len(value) != length:
            raise self.fail(f"field {name} has {len(value)} entries for {length} layers")
        unknown = [x for x in value if not any(x == a and type(x) is type(a) for a in allowed)]
        if unknown:
            raise self.fail(f"field {name} has entry {unknown[0]!r}; supported: {', '.join(map(repr, allowed))}")
        return value

    def section(self, name: str) -> Config:
        """The config inside a field."""
        value = self.get(name)
        if not isinstance(value, Mapping):
            what = "is missing" if value is None else f"has value {value!r}: expected a mapping"
            raise self.fail(f"field {name} {what}")
        return Config(value, f"{self.where}: {name}")

    def reject_the_rest(self) -> None:
        """Reject every field that no reader took and that is not known to be without effect."""
        rest = set(self.fields) - self.read - NOT_STRUCTURAL
        unknown = sorted(str(name) for name in rest if name not in SWITCHES or self.fields[name] not in OFF)
        if unknown:
            family = self.fields.get("model_type")
            of = f" of model_type {family!r}" if family else ""
            raise self.fail(
                f"unknown fields {', '.join(unknown)}{of}: they may change the architecture; remove those that do not"
            )
