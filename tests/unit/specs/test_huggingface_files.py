"""Configs as files: alone, in their folder, alongside a file of their quantisation, or broken."""

import json

import pytest

import cheetah_xr as cx
from tests.helpers.configs import CONFIGS
from tests.helpers.rejection import rejected


def test_a_config_may_be_a_file_or_its_folder(write, tmp_path):
    config = CONFIGS["mistral-7b-v0.1"]
    from_file = cx.load_model(write(config, "acme-7b/config.json"))
    assert (from_file.n_parameters, from_file.name) == (7_241_732_096, "acme-7b")
    assert cx.load_model(tmp_path / "acme-7b") == cx.load_model(f"{tmp_path}/acme-7b/") == from_file
    assert cx.load_model(write(config, "other.json")).name == "other"


# ---- hf_quant_config.json of NVIDIA ModelOpt

LLAMA = CONFIGS["llama-3.1-8b"]
SIDE = {
    "producer": {"name": "modelopt", "version": "0.23.0"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
}
OWN = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "ignore": ["lm_head"]}
NAME = "hf_quant_config.json"


@pytest.fixture
def folder(write, tmp_path):
    """A folder with a config, that may name its quantisation, and the file alongside it."""

    def make(config, side):
        write(config, "acme/config.json")
        write(side, f"acme/{NAME}")
        return tmp_path / "acme"

    return make


@pytest.mark.parametrize("own", [None, OWN], ids=["beside", "both"])
def test_the_quantisation_may_be_in_a_file_with_the_config(folder, own):
    path = folder(LLAMA | ({"quantization_config": own} if own else {}), SIDE)
    model = cx.load_model(path)
    assert model.default_precision == cx.load_model(path / "config.json").default_precision == "fp8-kv8"
    assert (model.name, model.n_parameters) == ("acme", 8_030_261_248)


def test_of_a_wrapper_too(folder):
    vision = CONFIGS["gemma-3-27b"]
    assert cx.load_model(folder(vision, SIDE)).default_precision == "fp8-kv8"


def test_only_of_a_config_json(folder, write):
    write(LLAMA, "acme/other.json")
    path = folder({"n_parameters": 8e9, "hidden": 4096, "n_layers": 32}, SIDE)
    assert cx.load_model(path / "other.json").default_precision == "bf16"
    assert cx.load_model(path).n_parameters == 8e9


OTHERS = {
    "algorithm": OWN | {"quant_algo": "NVFP4"},
    "method": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "cache": OWN | {"kv_cache_quant_algo": None},
}


@pytest.mark.parametrize("own", OTHERS.values(), ids=OTHERS)
def test_two_quantisations_that_differ(folder, own):
    path = folder({**LLAMA, "quantization_config": own}, SIDE)
    rejected(lambda: cx.load_model(path), "quantization_config (", f"{NAME} (fp8-kv8)", "contradict")


BAD_SIDES = {
    "list": ("[1]", NAME, "mapping"),
    "not JSON": ("{", NAME, "not valid JSON"),
    "empty": ({}, NAME, "quant_method None"),
    "producer": ({**SIDE, "producer": {"name": "other"}}, NAME, "'other'"),
    "algorithm": ({**SIDE, "quantization": {"quant_algo": "W4A8_AWQ"}}, NAME, "W4A8_AWQ"),
    "LM head": ({**SIDE, "quantization": {"quant_algo": "FP8"}}, NAME, "lm_head"),
}


@pytest.mark.parametrize("case", BAD_SIDES.values(), ids=BAD_SIDES)
def test_a_file_with_that_is_not_understood(folder, case):
    content, *words = case
    rejected(lambda: cx.load_model(folder(LLAMA, content)), *words)


# ---- broken files

BAD_JSON = {
    "not JSON": ("{", "not valid JSON"),
    "list": ("[1]", "mapping"),
    "not UTF-8": (b"\xff", "not valid JSON"),
    "huge": (b" " * 5_000_000, "larger than"),
    "NaN": (json.dumps({**CONFIGS["llama-3.1-8b"], "head_dim": float("nan")}), "nan"),
    "deep": ("[" * 200_000, "not valid JSON"),
    "twice": ('{"hidden_size": 2048, ' + json.dumps(CONFIGS["llama-3.1-8b"])[1:], "hidden_size"),
}


@pytest.mark.parametrize(("content", "word"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_files(content, word, write):
    rejected(lambda: cx.load_model(write(content, "config.json")), "config.json", word)
