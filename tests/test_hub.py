"""Configs from the Hugging Face Hub: only when asked to, and with one clear message when they cannot be had."""

import sys
import types

import pytest
from configs import CONFIGS
from refusal import refused

import cheetah_xr as cx

NAME = "hf:meta-llama/Llama-3.1-8B"


@pytest.fixture
def hub(monkeypatch):
    """Put a stand-in for huggingface_hub in place, whose download is the function given."""

    def install(download):
        module = types.ModuleType("huggingface_hub")
        module.hf_hub_download = download
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)

    return install


def test_a_config_is_downloaded(hub, write):
    asked = []
    hub(lambda *args: asked.append(args) or str(write(CONFIGS["llama-3.1-8b"], "snapshots/0123abc/config.json")))
    model = cx.load_model(NAME)
    assert asked == [("meta-llama/Llama-3.1-8B", "config.json")]
    assert (model.n_parameters, model.name) == (8_030_261_248, "Llama-3.1-8B")


def test_what_is_downloaded_is_checked_like_a_file(hub, write):
    hub(lambda *_: write({**CONFIGS["llama-3.1-8b"], "n_hash_layers": 3}, "config.json"))
    refused(lambda: cx.load_model(NAME), NAME, "n_hash_layers")
    hub(lambda *_: write("[1]", "config.json"))
    refused(lambda: cx.load_model(NAME), NAME, "mapping")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(lambda: cx.load_model(NAME), NAME, "huggingface_hub", "cheetah_xr[hub]")


@pytest.mark.parametrize("error", [OSError("no\nroute"), ValueError("gated"), RuntimeError("closed")], ids=repr)
def test_offline(hub, error):
    def download(*_):
        raise error

    hub(download)
    message = refused(lambda: cx.load_model(NAME), NAME, type(error).__name__, "offline", "path of a config.json")
    assert "\n" not in message


BAD = ["hf:", "hf:llama", "hf:a/b/c", "hf:../x", "hf:a/", "hf:/b", "hf:a b/c", "hf:a/b\n", "hf:a/" + "b" * 300]


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_names_are_checked_before_anything_is_asked(hub, name):
    hub(lambda *_: pytest.fail("asked the Hub"))
    refused(lambda: cx.load_model(name), "organisation/name")


def test_no_other_name_asks_the_hub(hub):
    hub(lambda *_: pytest.fail("asked the Hub"))
    cx.load_model("llama-3.1-8b")
    refused(lambda: cx.load_model("meta-llama/Llama-3.1-8B"), "Llama-3.1-8B")
    refused(lambda: cx.load_gpu(NAME), "Llama-3.1-8B")
