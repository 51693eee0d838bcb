"""Fetch a ``config.json`` from the Hugging Face Hub: the only place that uses the network, and only when asked to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from ..record import SpecError

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
    repository = source.removeprefix(PREFIX)
    if not _REPOSITORY.fullmatch(repository) or len(repository) > 200:
        raise SpecError(f"model {source!r}: expected {PREFIX}organisation/name")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise SpecError(
            f"model {source!r}: reading from the Hugging Face Hub needs the package huggingface_hub: "
            "pip install 'cheetah_xr[hub]'"
        ) from None
    try:
        return Path(hub.hf_hub_download(repository, "config.json"))
    except Exception as error:  # the package raises the errors of whichever HTTP client it stands on
        reason = " ".join(str(error).split())
        raise SpecError(
            f"model {source!r}: config.json cannot be downloaded ({type(error).__name__}: {reason[:300]}); "
            "offline, give the path of a config.json instead"
        ) from None
