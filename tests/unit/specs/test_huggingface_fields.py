"""Every field of every config here, left out, of the wrong kind or unknown: never another architecture."""

import copy
import itertools

import pytest

import cheetah_xr as cx
from tests.helpers.config_edits import ALL, architecture

ABSENT_MEANS_NONE = {
    *("max_position_embeddings", "model_max_length", "num_nextn_predict_layers", "mtp_num_hidden_layers"),
    *("partial_rotary_factor", "rope_parameters", "moe_latent_size", "mla_use_output_gate", "attn_res_block_size"),
    *("sliding_window", "tie_word_embeddings", "vision_config"),
}
"""Fields whose absence is a statement: no such feature, whole heads rotated, the embeddings of the family."""
CLASS_DEFAULTS = {
    "llama-3.1-8b": "num_key_value_heads",  # every head its own keys
    "phi-4": "num_key_value_heads",
    "mistral-small-3.1-24b": "head_dim",  # hidden_size over heads
    "gemma-3-1b": "vocab_size",
    "kimi-k3": "use_full_rank_gate",
}
"""Fields whose class has another default than the config."""


def leaves(name):
    """Paths of every field of the text model of a config."""
    text = ALL[name].get("text_config", ALL[name])
    for field, value in text.items():
        if field not in {"model_type", "rope_parameters"}:
            yield (field,)
            if isinstance(value, dict):
                yield from ((field, inner) for inner in value)


def outcome(name, path, edit):
    """Architecture of a config after `edit` of the mapping that holds the field, or the message of its rejection."""
    config = copy.deepcopy(ALL[name])
    holder = config.get("text_config", config)
    for field in path[:-1]:
        holder = holder[field]
    edit(holder, path[-1])
    try:
        return architecture(config)
    except cx.SpecError as error:
        return str(error)


@pytest.mark.parametrize("name", ALL)
def test_a_field_left_out_never_prices_another_architecture(name):
    whole = architecture(ALL[name])
    for path in leaves(name):
        actual = outcome(name, path, lambda holder, field: holder.pop(field))
        defaults = {*ABSENT_MEANS_NONE, CLASS_DEFAULTS.get(name)}
        assert actual == whole or isinstance(actual, str) or path[-1] in defaults, path


WRONG_KINDS = ["x", -1, 1.5, [None], {"a": 1}, float("nan")]


@pytest.mark.parametrize("name", ALL)
def test_a_field_of_the_wrong_kind_never_prices_another_architecture(name):
    whole = architecture(ALL[name])
    for path, value in itertools.product(leaves(name), WRONG_KINDS):
        actual = outcome(name, path, lambda holder, field, value=value: holder.update({field: value}))
        assert actual == whole or isinstance(actual, str), (path, value)
        if isinstance(actual, str):
            assert "\n" not in actual, (path, value)


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_field_is_rejected_wherever_it_stands(name):
    places = {path[:-1] for path in leaves(name)}
    for place in places:
        actual = outcome(name, (*place, "n_hash_layers"), lambda holder, field: holder.update({field: 3}))
        assert isinstance(actual, str)
        assert "n_hash_layers" in actual
