"""What figures share: the assumptions behind a result in one sentence, and datasets ready to be drawn from disk."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ...specs import Options, SpecError, load_gpu, load_model

NAMES = {"sxm": "SXM", "pcie": "PCIe", "nvl": "NVL", "nvl72": "NVL72", "ultra": "Ultra", "super": "Super"}
NAMES |= {
    "gaudi2": "Gaudi 2",
    "gaudi3": "Gaudi 3",
    "trainium2": "Trainium2",
    "trainium3": "Trainium3",
    "tpu7x": "TPU7x",
}
NAMES |= {f"v{generation}": f"v{generation}" for generation in ("4", "5e", "5p", "6e")}


def model_name(name: str) -> str:
    """A model as people write it: llama-3.1-70b is Llama-3.1-70B."""
    sizes = re.compile(r"[ae]?[0-9].*|fp8|glm|gpt")
    words = [w.upper().replace("X", "x") if sizes.fullmatch(w) else w.capitalize() for w in name.split("-")]
    known = {"Deepseek": "DeepSeek", "Minimax": "MiniMax", "GPT": "gpt", "Oss": "oss", "Mimo": "MiMo"}
    return "-".join(known.get(word, word) for word in words)


def gpu_name(name: str) -> str:
    """An accelerator as people write it: h100-sxm is H100 SXM."""
    return " ".join(NAMES.get(word, word.upper()) for word in name.split("-"))


def described(
    data: Mapping[str, Any] | xr.Dataset, *, title: str, shows: str, assumptions: str, **attributes: Any
) -> xr.Dataset:
    """A dataset a figure is drawn from: variables, the title, what to see, and the assumptions.

    Parameters
    ----------
    data
        Variables and coordinates, as :class:`xarray.Dataset` takes them, or a Dataset.
    title
        Says what to see.
    shows
        One or two sentences for the caption.
    assumptions
        Model, accelerator, precision, layout, efficiency and accounting; see :func:`assumed`.
    attributes
        Other plain values ``draw`` needs.
    """
    ds = data if isinstance(data, xr.Dataset) else xr.Dataset(dict(data))
    kept = {"title": title, "shows": shows, "assumptions": assumptions, **attributes}
    return plain_labels(ds).assign_attrs(kept)


def plain_labels(ds: xr.Dataset) -> xr.Dataset:
    """Labels as objects, which netCDF takes, and flags' attributes as lists."""
    changed = {
        name: variable.astype(object) for name, variable in ds.variables.items() if variable.dtype.kind in ("T", "U")
    }
    return ds.assign({n: v for n, v in changed.items() if n in ds.data_vars}).assign_coords(
        {n: v for n, v in changed.items() if n in ds.coords}
    )


def assumed(ds: xr.Dataset) -> str:
    """The assumptions of a result, from its own coordinates and attributes: what is on an axis is not repeated."""
    parts = []
    for name, words in (("model", model_name), ("gpu", gpu_name)):
        if name in ds.coords and ds[name].ndim == 0:
            parts.append(words(str(ds[name].values)))
    for name in ("precision", "efficiency"):
        if name in ds.coords and ds[name].ndim == 0:
            parts.append(f"{ds[name].values!s} {'efficiencies' if name == 'efficiency' else 'precision'}")
    degrees = [n for n in ("tp", "dp", "ep") if n in ds.coords and ds[n].ndim == 0]
    parts.append(", ".join(f"{n} {int(ds[n])}" for n in degrees))
    parts.append(accounting(json.loads(ds.attrs.get("options", "{}"))))
    return "; ".join(part for part in parts if part) + "."


def accounting(options: Mapping[str, Any]) -> str:
    """The options that differ from the defaults, in a few words."""
    defaults = Options().canonical()
    away = {k: v for k, v in options.items() if k in defaults and v != defaults[k]}
    shown = [f"{k} {_option(v)}" for k, v in away.items()]
    return "default accounting" if not shown else "accounting: " + ", ".join(shown)


def _option(value: Any) -> str:
    if isinstance(value, Mapping):  # a draft model
        return str(value["name"])
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def caption(ds: xr.Dataset) -> str:
    """Caption of a figure: what to see, and under which assumptions."""
    return f"{ds.attrs['shows']} {ds.attrs['assumptions']}"


def log_grid(low: float, high: float, points: int) -> list[int]:
    """Whole numbers spaced evenly on a logarithmic axis, ends included, each once."""
    return sorted({round(value) for value in np.geomspace(low, high, points)})


def crossing(x: Any, y: Any, level: float = 1.0) -> float:
    """Where a positive curve first rises through a level, between samples on logarithmic axes; NaN if it never does."""
    above = np.flatnonzero((np.asarray(y)[1:] >= level) & (np.asarray(y)[:-1] < level))
    if not above.size:
        return float("nan")
    at = slice(above[0], above[0] + 2)
    return float(np.exp(np.interp(np.log(level), np.log(np.asarray(y)[at]), np.log(np.asarray(x)[at]))))


def longest(model: Any) -> float:
    """The longest sequence of a model, infinite where it does not say."""
    return load_model(model).max_seq_len or float("inf")


def instance(gpu: Any) -> int:
    """Accelerators of an instance where nothing else is asked: 8, or 1 where so many are not joined."""
    card = load_gpu(gpu)
    joined = card.link_bandwidth and ((card.link_domain or 1) >= 8 or card.nic_bandwidth)
    return 8 if joined else 1


def drawable(values: xr.DataArray) -> xr.DataArray:
    """The values, if any of them is a number.

    Raises
    ------
    SpecError
        When there is nothing to draw.
    """
    if bool(values.isnull().all()):
        raise SpecError(
            "figures: nothing to draw for this model and accelerator; see the status of cheetah_xr.evaluate"
        )
    return values
