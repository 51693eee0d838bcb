"""Fetch configs from the Hugging Face Hub: the only place that uses the network, for names in "hf:"."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from ...errors import SpecError
from .quantization import QUANTIZATION_FILE

PREFIX = "hf:"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_hub_name(source: object) -> bool:
    """Whether a source names a repository of the Hub ("hf:org/name")."""
    return isinstance(source, str) and source.startswith(PREFIX)


def fetch_config(source: str) -> Path:
    """Download the ``config.json`` of "hf:org/name", or find it in the Hub's own cache.

    Raises
    ------
    SpecError
        When the name is none, ``huggingface_hub`` is not installed, or the file cannot be had.
    """
    repository, hub = _hub(source)
    try:
        return Path(hub.hf_hub_download(repository, "config.json"))
    except Exception as error:  # the package raises the errors of whichever HTTP client it stands on
        raise _cannot(source, "config.json", error) from None


def fetch_quantization(source: str) -> Path | None:
    """Download the ``hf_quant_config.json`` of "hf:org/name" too, None where the repository has none.

    Raises
    ------
    SpecError
        When it is not known whether there is one: its absence would mean another precision.
    """
    repository, hub = _hub(source)
    try:
        return Path(hub.hf_hub_download(repository, QUANTIZATION_FILE))
    except Exception as error:
        if _is_absent(hub, repository, error):
            return None
        raise _cannot(source, QUANTIZATION_FILE, error) from None


def _is_absent(hub: Any, repository: str, error: Exception) -> bool:
    """Whether the repository has no such file; offline, the cache knows what a repository does not have."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "LocalEntryNotFoundError" in kinds:
        known = hub.try_to_load_from_cache(repository, QUANTIZATION_FILE)
        return known is not None and not isinstance(known, str)
    return "EntryNotFoundError" in kinds


def _hub(source: str) -> tuple[str, Any]:
    """Name of the repository, and the package."""
    repository = source.removeprefix(PREFIX)
    if not _REPOSITORY.fullmatch(repository) or len(repository) > 200:
        raise SpecError(f"model {source!r}: expected {PREFIX}organisation/name")
    try:
        return repository, importlib.import_module("huggingface_hub")
    except ImportError:
        raise SpecError(
            f"model {source!r}: reading from the Hugging Face Hub needs the package huggingface_hub: "
            "pip install 'cheetah_xr[hub]'"
        ) from None


def _cannot(source: str, name: str, error: Exception) -> SpecError:
    reason = " ".join(str(error).split())
    return SpecError(
        f"model {source!r}: {name} cannot be downloaded ({type(error).__name__}: {reason[:300]}); "
        "offline, give the path of a config.json instead"
    )
