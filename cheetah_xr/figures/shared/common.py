"""Describe the data of figures: names as people write them, titles, captions and assumptions of a result."""

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
    """Return a model name as people write it: llama-3.1-70b is Llama-3.1-70B."""
    sizes = re.compile(r"[ae]?[0-9].*|fp8|glm|gpt")
    parts = [w.upper().replace("X", "x") if sizes.fullmatch(w) else w.capitalize() for w in name.split("-")]
    known = {"Deepseek": "DeepSeek", "Minimax": "MiniMax", "GPT": "gpt", "Oss": "oss", "Mimo": "MiMo"}
    return "-".join(known.get(part, part) for part in parts)


def gpu_name(name: str) -> str:
    """Return an accelerator name as people write it: h100-sxm is H100 SXM."""
    return " ".join(NAMES.get(part, part.upper()) for part in name.split("-"))


def described(
    data: Mapping[str, Any] | xr.Dataset, *, title: str, shows: str, assumptions: str, **attributes: Any
) -> xr.Dataset:
    """Return the dataset a figure is drawn from: variables, title, caption and assumptions.

    Parameters
    ----------
    data
        Variables and coordinates, as :class:`xarray.Dataset` takes them, or a Dataset.
    title
        One line with the main result.
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
    """Return a dataset with string labels as objects, which netCDF accepts."""
    changed = {
        name: variable.astype(object) for name, variable in ds.variables.items() if variable.dtype.kind in ("T", "U")
    }
    return ds.assign({n: v for n, v in changed.items() if n in ds.data_vars}).assign_coords(
        {n: v for n, v in changed.items() if n in ds.coords}
    )


def assumed(ds: xr.Dataset) -> str:
    """Describe the assumptions of a result by its scalar coordinates and options; axes are not repeated."""
    parts = []
    for name, label in (("model", model_name), ("gpu", gpu_name)):
        if name in ds.coords and ds[name].ndim == 0:
            parts.append(label(str(ds[name].values)))
    for name in ("precision", "efficiency"):
        if name in ds.coords and ds[name].ndim == 0:
            parts.append(f"{ds[name].values!s} {'efficiencies' if name == 'efficiency' else 'precision'}")
    degrees = [n for n in ("tp", "dp", "ep") if n in ds.coords and ds[n].ndim == 0]
    parts.append(", ".join(f"{n} {int(ds[n])}" for n in degrees))
    parts.append(accounting(json.loads(ds.attrs.get("options", "{}"))))
    return "; ".join(part for part in parts if part) + "."


def accounting(options: Mapping[str, Any]) -> str:
    """List the options that differ from the defaults."""
    defaults = Options().canonical()
    away = {k: v for k, v in options.items() if k in defaults and v != defaults[k]}
    shown = [f"{k} {_option(v)}" for k, v in away.items()]
    return "default accounting" if not shown else "accounting: " + ", ".join(shown)


def _option(value: Any) -> str:
    if isinstance(value, Mapping):  # a draft model
        return str(value["name"])
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def caption(ds: xr.Dataset) -> str:
    """Return the caption of a figure: what it shows, and under which assumptions."""
    return f"{ds.attrs['shows']} {ds.attrs['assumptions']}"


def log_grid(low: float, high: float, points: int) -> list[int]:
    """Return distinct whole numbers spaced evenly on a logarithmic axis, ends included."""
    return sorted({round(value) for value in np.geomspace(low, high, points)})


def crossing(x: Any, y: Any, level: float = 1.0) -> float:
    """Return where a positive curve first rises through a level, interpolated on logarithmic axes, else NaN."""
    above = np.flatnonzero((np.asarray(y)[1:] >= level) & (np.asarray(y)[:-1] < level))
    if not above.size:
        return float("nan")
    at = slice(above[0], above[0] + 2)
    return float(np.exp(np.interp(np.log(level), np.log(np.asarray(y)[at]), np.log(np.asarray(x)[at]))))


def max_context(model: Any) -> float:
    """Return the maximum context of a model in tokens, infinite where it states none."""
    return load_model(model).max_seq_len or float("inf")


def instance(gpu: Any) -> int:
    """Return the accelerators of an instance by default: 8, or 1 where 8 are not connected."""
    card = load_gpu(gpu)
    connected = card.link_bandwidth and ((card.link_domain or 1) >= 8 or card.nic_bandwidth)
    return 8 if connected else 1


def drawable(values: xr.DataArray) -> xr.DataArray:
    """Return the values if any of them is a number.

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
