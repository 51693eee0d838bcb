"""Configs from the Hugging Face Hub: only when asked to, and with one clear message when they cannot be had."""

import sys
import types

import pytest

import cheetah_xr as cx
from tests.helpers.configs import CONFIGS
from tests.helpers.rejection import rejected

NAME = "hf:meta-llama/Llama-3.1-8B"


SIDE_FILE = "hf_quant_config.json"
FP8 = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
MODELOPT = {"producer": {"name": "modelopt"}, "quantization": FP8}


class EntryNotFoundError(Exception):
    """The repository has no such file."""


class RemoteEntryNotFoundError(EntryNotFoundError):
    """The Hub says so."""


class LocalEntryNotFoundError(FileNotFoundError, EntryNotFoundError):
    """The cache does not have it, and the Hub cannot be asked."""


@pytest.fixture
def hub(monkeypatch):
    """Put a stand-in for huggingface_hub in place, whose download is the function given."""

    def install(download, known=None):
        module = types.ModuleType("huggingface_hub")
        module.hf_hub_download = download
        module.try_to_load_from_cache = lambda *_: known
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)

    return install


@pytest.fixture
def repository(write):
    """A download function of a repository with some files; another error than that a file is absent may be given."""

    def files(contents, error=None):
        def download(repository, name):
            assert repository == "meta-llama/Llama-3.1-8B"
            if name not in contents:
                raise error or RemoteEntryNotFoundError("404 Not Found")
            return str(write(contents[name], f"snapshots/0123abc/{name}"))

        return download

    return files


def test_a_config_is_downloaded(hub, repository):
    hub(repository({"config.json": CONFIGS["llama-3.1-8b"]}))
    model = cx.load_model(NAME)
    assert (model.n_parameters, model.name) == (8_030_261_248, "Llama-3.1-8B")
    assert model.default_precision == "bf16"


def test_and_the_file_of_its_quantisation(hub, repository):
    both = {"config.json": CONFIGS["llama-3.1-8b"], SIDE_FILE: MODELOPT}
    hub(repository(both))
    assert cx.load_model(NAME).default_precision == "fp8-kv8"
    hub(repository(both | {SIDE_FILE: {**MODELOPT, "quantization": {**FP8, "quant_algo": "INT3"}}}))
    rejected(lambda: cx.load_model(NAME), NAME, SIDE_FILE, "INT3")


def test_offline_the_cache_must_know_whether_there_is_one(hub, repository):
    download = repository({"config.json": CONFIGS["llama-3.1-8b"]}, LocalEntryNotFoundError("offline"))
    hub(download, known=object())
    assert cx.load_model(NAME).default_precision == "bf16"
    hub(download)
    rejected(lambda: cx.load_model(NAME), NAME, SIDE_FILE, "LocalEntryNotFoundError", "path of a config.json")


def test_any_other_error_of_the_second_file_is_one(hub, repository):
    hub(repository({"config.json": CONFIGS["llama-3.1-8b"]}, OSError("no route")))
    rejected(lambda: cx.load_model(NAME), NAME, SIDE_FILE, "OSError", "no route")


def test_what_is_downloaded_is_checked_like_a_file(hub, repository):
    hub(repository({"config.json": {**CONFIGS["llama-3.1-8b"], "n_hash_layers": 3}}))
    rejected(lambda: cx.load_model(NAME), NAME, "n_hash_layers")
    hub(repository({"config.json": "[1]"}))
    rejected(lambda: cx.load_model(NAME), NAME, "mapping")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    rejected(lambda: cx.load_model(NAME), NAME, "huggingface_hub", "cheetah_xr[hub]")


@pytest.mark.parametrize("error", [OSError("no\nroute"), ValueError("gated"), RuntimeError("closed")], ids=repr)
def test_offline(hub, error):
    def download(*_):
        raise error

    hub(download)
    message = rejected(lambda: cx.load_model(NAME), NAME, type(error).__name__, "offline", "path of a config.json")
    assert "\n" not in message


BAD = ["hf:", "hf:llama", "hf:a/b/c", "hf:../x", "hf:a/", "hf:/b", "hf:a b/c", "hf:a/b\n", "hf:a/" + "b" * 300]


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_names_are_checked_before_anything_is_asked(hub, name):
    hub(lambda *_: pytest.fail("asked the Hub"))
    rejected(lambda: cx.load_model(name), "organisation/name")


def test_no_other_name_asks_the_hub(hub):
    hub(lambda *_: pytest.fail("asked the Hub"))
    cx.load_model("llama-3.1-8b")
    rejected(lambda: cx.load_model("meta-llama/Llama-3.1-8B"), "Llama-3.1-8B")
    rejected(lambda: cx.load_gpu(NAME), "Llama-3.1-8B")
