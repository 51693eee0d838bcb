"""Split rows into fit and held out: by rule, whole configurations at a time, fixed before any fit."""

from __future__ import annotations

import hashlib

import pandas as pd

SALT = "cheetah_xr measurements 1"
"""Fixed before the first fit; changing it would choose other held-out rows."""

FIT_FRACTION = 0.3

SECOND_SALT = "cheetah_xr second set 1"
"""The same for measurements of further sources, fixed before any of them was fitted."""

SECOND_FIT_FRACTION = 0.4

PARTS = ("model", "gpu", "engine", "precision", "layout", "mode")


def configurations(table: pd.DataFrame) -> pd.Series[str]:
    """Return the configuration of every row: model, accelerator, engine, precision of the weights, layout and mode.

    Concurrencies, lengths, dates, versions and the types of the cache ("-kv8") and of the experts' inputs ("-in8") are
    not part of it: rows that differ in nothing else stay together, so that no curve, and no repeat of it, is on both
    sides.
    """
    weights = table["precision"].astype("string").str.removesuffix("-kv8").str.removesuffix("-in8").fillna("?")
    parts = [weights if name == "precision" else table[name].astype("string").fillna("?") for name in PARTS]
    label = parts[0]
    for part in parts[1:]:
        label = label + "|" + part
    return label


def side(configuration: str) -> str:
    """Return the side of a configuration, "fit" or "held out".

    Examples
    --------
    >>> side("llama-3.1-70b|b200-sxm|vllm|fp8|tp4-dp1-ep1|aggregated")
    'held out'
    """
    return "fit" if _uniform(SALT, configuration) < FIT_FRACTION else "held out"


def second_set_side(source: str, model: str, gpu: str) -> str:
    """Return the side of a configuration of the second set of measurements, "fit" or "held out".

    Parameters
    ----------
    source
        Key of the source: all rows of one publication.
    model, gpu
        Catalogue names; a model that runs under several published names has one.

    Examples
    --------
    >>> second_set_side("sgl-cookbook", "gemma-4-31b", "h200-sxm")
    'fit'
    >>> second_set_side("sgl-cookbook", "gemma-4-31b", "mi300x")
    'held out'
    """
    return "fit" if _uniform(SECOND_SALT, f"{source}|{model}|{gpu}") < SECOND_FIT_FRACTION else "held out"


def _uniform(salt: str, label: str) -> float:
    """Return a number of [0, 1) that depends on the label and the salt alone."""
    return int.from_bytes(hashlib.sha256(f"{salt}|{label}".encode()).digest()[:8], "big") / 2**64


def sides(table: pd.DataFrame) -> pd.Series[str]:
    """Return the side of every row: "fit", "held out", or "prediction" for rows that are never fitted."""
    labels = configurations(table)
    return labels.map({name: side(name) for name in labels.unique()}).where(~table["prediction"], "prediction")
