"""Arguments of a sweep as they are given: validated, labelled, not yet aligned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ...specs import (
    GROUP_NUMBERS,
    OWN_WIDTHS,
    Efficiency,
    Frozen,
    Gpu,
    LayerGroup,
    Model,
    Options,
    ParameterCountModel,
    Precision,
    Record,
    SpecError,
)
from .. import dims as d
from .arguments import Axes

Array = NDArray[Any]

TYPES: dict[str, type[Frozen]] = {
    d.MODEL: Model,
    d.GPU: Gpu,
    d.PRECISION: Precision,
    d.EFFICIENCY: Efficiency,
    "options": Options,
}
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Labelled:
    """Values on named dims, as they were given."""

    dims: tuple[str, ...]
    values: Any


def layout_labels(**degrees: Any) -> Array:
    """Return a label for every layout: ``tp8-dp1-ep8``."""
    columns = [degrees[name] for name in d.PARALLEL]
    labels = ["-".join(map("{}{}".format, d.PARALLEL, layout)) for layout in zip(*columns, strict=True)]
    return np.array(labels, dtype=np.dtypes.StringDType())


def labelled_records(name: str, value: Any, load: Callable[[Any], Any]) -> Labelled:
    """One record, a list of them on a dim of the axis's name, or a DataArray of names on its own dim."""
    if isinstance(value, xr.DataArray):
        if value.ndim > 1:
            raise SpecError(f"{name}: a DataArray of names has one dim, got {value.dims}")
        names, dims = list(np.atleast_1d(value.values)), tuple(str(x) for x in value.dims)
    elif isinstance(value, (str, Path, Mapping, Record)) or np.ndim(value) == 0:
        return Labelled((), (load(value.item() if isinstance(value, np.ndarray) else value),))
    else:
        names, dims = list(value), (name,)
    if len(names) == 0:
        raise SpecError(f"{name}: an axis needs at least one value, got an empty list")
    loaded = tuple(load(str(v) if isinstance(v, np.str_) else v) for v in names)
    labels = [label(r) for r in loaded]
    twice = sorted({n for n in labels if labels.count(n) > 1})
    if twice and dims == (name,):
        raise SpecError(f"{name}: {', '.join(twice)} given more than once; mappings take a 'name' of their own")
    return Labelled(dims, loaded)


def check_phase(value: Any) -> str:
    """A phase by name."""
    if value not in PHASES:
        raise SpecError(f"phase {value!r}: allowed are {' and '.join(PHASES)}")
    return str(value)


def label(record: Any) -> str:
    """Name of a record on an axis."""
    return record if isinstance(record, str) else str(record.name)


def _labelled(name: str, value: Any, dim: str) -> Labelled:
    """Numbers on the dim of their name, or a DataArray on its own dims."""
    values = _as_numbers(name, value.values if isinstance(value, xr.DataArray) else value)
    if values.size == 0:
        raise SpecError(f"{name}: an axis needs at least one number, got an empty list")
    if isinstance(value, xr.DataArray):
        return Labelled(tuple(str(x) for x in value.dims), values)
    if values.ndim == 0:
        return Labelled((), values)
    if values.ndim > 1:
        raise SpecError(f"{name}: an axis is a list of numbers, got shape {values.shape}")
    if len(np.unique(values)) != len(values):
        raise SpecError(f"{name}: values of an axis are given once each, got {_short(value)}")
    return Labelled((dim,), values)


def _as_numbers(name: str, value: Any) -> Array:
    """An array of finite numbers; text, booleans and None are rejected."""
    try:
        values = np.asarray(value)
    except ValueError:
        values = np.empty(1, dtype=object)
    if values.dtype == object and all(isinstance(v, int) and not isinstance(v, bool) for v in values.reshape(-1)):
        raise SpecError(f"{name}: values above 2**53 are not exact, got {_short(value)}")
    if values.size and (not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values)):
        raise SpecError(f"{name}: expected numbers, got {_short(value)}")
    if values.size and not np.all(np.isfinite(values)):
        raise SpecError(f"{name}: values must be finite, got {_short(value)}")
    return values


def _short(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def labelled_integers(name: str, value: Any, least: int | None) -> Labelled:
    """Whole numbers on the dim of their name, or on those of a DataArray."""
    given = _labelled(name, value, name)
    values = given.values
    if np.any(values != np.round(values)):
        raise SpecError(f"{name}: values must be whole numbers, got {_short(value)}")
    if least is not None and np.any(values < least):
        raise SpecError(f"{name}: values must be at least {least}, got {_short(value)}")
    if np.any(np.abs(values) > 2**53):
        raise SpecError(f"{name}: values above 2**53 are not exact, got {_short(value)}")
    return Labelled(given.dims, values.astype(np.int64))


def labelled_numbers(axes: Axes, given: Mapping[str, Labelled]) -> dict[str, Labelled]:
    """Overrides and scales by "record.field" ("scale:record.field" for scales), validated."""
    numbers = {k: Labelled(tuple(map(str, v.dims)), v.values) for k, v in axes.draws.items() if k not in axes.overrides}
    for key, value in axes.overrides.items():
        record, name = _field(key, "overrides")
        item = _labelled(f"overrides: {key}", value, name)
        for number in np.unique(item.values):
            check_number(record, name, float(number), f"overrides: {key}")
        if record == d.MODEL:
            _check_models_have(name, key, given[d.MODEL])
            if name in STRUCTURE and np.any(item.values == 0):
                raise SpecError(f"overrides: {key}: 0 is another structure; give a model without it instead")
        numbers[key] = item
    for key, value in axes.scales.items():
        record, name = _field(key, "scales")
        if record in (d.MODEL, "options"):
            raise SpecError(f"scales: {key}: only gpu, precision and efficiency numbers can be scaled")
        if key in axes.overrides:
            raise SpecError(f"{key} is given in overrides and in scales")
        item = _labelled(f"scales: {key}", value, f"{name}_scale")
        if np.any(item.values <= 0):
            raise SpecError(f"scales: {key}: factors must be above 0, got {_short(value)}")
        records = given[record].values
        own = [getattr(r, name) for r in records]
        if key in numbers:  # drawn: its least and its largest number
            own = [float(numbers[key].values.min()), float(numbers[key].values.max())]
        without = [r.name for r, value in zip(records, own, strict=False) if value is None]
        if record == d.EFFICIENCY and without:  # None stands for another number, which has a factor of its own
            raise SpecError(f"scales: {key}: {', '.join(without)} has no {name}")
        bases = set(own) - {None}
        for base, factor in itertools.product(sorted(bases), np.unique(item.values)):
            check_number(record, name, base * float(factor), f"scales: {key}: {base:g} x {factor:g}")
        numbers[f"scale:{key}"] = item
    return numbers


STRUCTURE = ("q_lora_rank", "linear_conv", "linear_gate_rank")
"""Numbers of a model that mean another kind of layer when they are 0."""


def _field(key: Any, what: str) -> tuple[str, str]:
    record, _, name = str(key).partition(".")
    if record not in TYPES:
        raise SpecError(f"{what}: key {key!r}: expected record.field with a record of {', '.join(TYPES)}")
    fields = set(TYPES[record].numeric_fields())
    if record == d.MODEL:
        fields |= {*ParameterCountModel.numeric_fields(), *GROUP_NUMBERS}
    if name not in fields:
        raise SpecError(f"{what}: key {key!r}: {record} has no number {name!r}; it has {', '.join(sorted(fields))}")
    return record, name


@lru_cache(maxsize=256)
def _adapter(cls: type[BaseModel], name: str) -> TypeAdapter[Any]:
    info = cls.model_fields[name]
    annotation: Any = info.annotation
    for extra in info.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def check_number(record: str, name: str, number: float, where: str) -> None:
    """A number must be one the record itself would accept."""
    cls: type[BaseModel] = TYPES[record]
    if record == d.MODEL and name in GROUP_NUMBERS:
        cls, name = LayerGroup, GROUP_NUMBERS[name]
    elif name not in cls.model_fields:
        cls = ParameterCountModel
    whole = "int" in str(cls.model_fields[name].annotation)
    value: Any = int(number) if whole and number == round(number) else number
    try:
        _adapter(cls, name).validate_python(value)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise SpecError(f"{where}: value {value!r}: {message[0].lower() + message[1:]}") from None


def _check_models_have(name: str, key: str, models: Labelled) -> None:
    for model in models.values:
        if isinstance(model, Model) and name in GROUP_NUMBERS:
            _check_groups_have(name, key, model)
            continue
        if name not in type(model).model_fields or getattr(model, name) is None:
            raise SpecError(f"overrides: {key}: {model.name} has no {name}")
        if name in OWN_WIDTHS and any(getattr(g, name) is not None for g in (*model.groups, *model.mtp)):
            raise SpecError(f"overrides: {key}: some layers of {model.name} have a {name} of their own")


def _check_groups_have(name: str, key: str, model: Model) -> None:
    if name == "n_layers" and len(model.groups) > 1:
        raise SpecError(f"overrides: {key}: {model.name} has layers of several kinds")
    if all(getattr(group, GROUP_NUMBERS[name]) is None for group in model.groups):
        raise SpecError(f"overrides: {key}: no layer of {model.name} has a {name}")
