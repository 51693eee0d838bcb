"""Configs as files: alone, in their folder, beside a file of their quantisation, or broken."""

import json

import pytest
from configs import CONFIGS
from refusal import refused

import cheetah_xr as cx


def test_a_config_may_be_a_file_or_its_folder(write, tmp_path):
    config = CONFIGS["mistral-7b-v0.1"]
    from_file = cx.load_model(write(config, "acme-7b/config.json"))
    assert (from_file.n_parameters, from_file.name) == (7_241_732_096, "acme-7b")
    assert cx.load_model(tmp_path / "acme-7b") == cx.load_model(f"{tmp_path}/acme-7b/") == from_file
    assert cx.load_model(write(config, "other.json")).name == "other"


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
    refused(lambda: cx.load_model(write(content, "config.json")), "config.json", word)
