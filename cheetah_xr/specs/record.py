"""The base of every spec: a frozen, validated record in SI units, read from YAML whose keys name vendor units."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from math import inf
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ..errors import SpecError

MAX_FILE_BYTES = 4_000_000
"""A JSON file larger than this is rejected before it is parsed."""

MAX_YAML_BYTES = 400_000
"""The same of a YAML file, whose parser takes some seconds for as much."""

MAX_NODES = 200_000
"""Values a YAML file may hold once its aliases are written out: a few lines of aliases of aliases could be billions."""


T = TypeVar("T", bound="Frozen")


class Frozen(BaseModel):
    """A frozen set of fields: unknown keys, wrong types, booleans as numbers, NaN and infinity are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    file_units: ClassVar[Mapping[str, tuple[str, float]]] = {}
    """Key in a file -> (field of the record, factor to SI)."""

    filled: ClassVar[frozenset[str]] = frozenset()
    """Numbers other fields are computed from when a file is read: not axes, since changing them changes nothing."""

    def with_numbers(self, numbers: Mapping[str, Any]) -> Self:
        """Copy with some fields replaced by arrays (not validated: the engine's inputs are already checked)."""
        return self.model_copy(update=dict(numbers))

    @classmethod
    @cache
    def numeric_fields(cls) -> tuple[str, ...]:
        """Fields that may be a sweep axis."""
        return tuple(n for n, f in cls.model_fields.items() if _is_number(f.annotation) and n not in cls.filled)

    def canonical(self) -> dict[str, Any]:
        """The fields as plain JSON data, without where they were read: what a fingerprint is made of."""
        return self.model_dump(mode="json", exclude={"sources", "notes", "status"})


class Record(Frozen):
    """A named spec with a source for its numbers."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    sources: dict[str, str] = {}
    notes: str = ""


def _is_number(annotation: Any) -> bool:
    parts = set(_leaves(annotation))
    return bool(parts & {int, float}) and parts <= {int, float, type(None)}


def _leaves(annotation: Any) -> list[Any]:
    """Plain types inside a union of possibly annotated types."""
    if hasattr(annotation, "__metadata__"):
        return _leaves(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        return [leaf for part in get_args(annotation) for leaf in _leaves(part)]
    return [annotation]


def read_yaml(path: Path) -> Any:
    """Parse a YAML 1.2 file (``1e12`` is a number, ``no`` is text, duplicate keys are an error)."""
    try:
        if path.stat().st_size > MAX_YAML_BYTES:
            raise SpecError(f"{path}: larger than {MAX_YAML_BYTES:,} bytes; a spec or sweep file is a few kilobytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not UTF-8 text") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML 1.2 as plain data.

    Raises
    ------
    SpecError
        Naming `where`, for text that is no YAML, asks for objects, contains itself or is vast once written out.
    """
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise SpecError(f"{where}: is not valid YAML: {' '.join(str(error).split())[:500]}") from None
    except Exception as error:  # the parser's own faults on text that is no YAML
        raise SpecError(f"{where}: is not valid YAML: {type(error).__name__}: {str(error)[:500]}") from None
    _check_nodes(data, where)
    return data


def _check_nodes(data: Any, where: str) -> None:
    """Reject data that is too large once aliases are written out, however small in memory."""
    waiting, nodes = [data], 0
    while waiting:
        item = waiting.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise SpecError(f"{where}: holds more than {MAX_NODES:,} values, or an alias that contains itself")
        if isinstance(item, Mapping):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            waiting.extend(item)


def to_record(cls: type[T], data: Any, where: str) -> T:
    """Turn a mapping with file keys (or SI field names) into a record.

    Parameters
    ----------
    cls
        Record class.
    data
        Mapping as parsed from YAML or given in Python.
    where
        What to call the source of `data` in an error: a path or "inline gpu".

    Raises
    ------
    SpecError
        Naming `where`, the key, its value and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: expected a mapping of keys to values, got {type(data).__name__}")
    fields: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, given in data.items():
        value = given.item() if isinstance(given, np.generic) else given
        field, factor = cls.file_units.get(str(key), (str(key), None))
        if field in fields:
            raise SpecError(f"{where}: key {key!r}: {field} is given twice")
        fields[field] = value if factor is None else _in_si(value, factor)
        keys[field] = str(key)
    if isinstance(fields.get("sources"), Mapping):
        fields["sources"] = {cls.file_units.get(str(k), (str(k), None))[0]: v for k, v in fields["sources"].items()}
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        raise SpecError(explain(error, where, cls, dict(data), keys)) from None


def _in_si(value: Any, factor: float) -> Any:
    """A number with a vendor's unit in SI, exactly rounded; anything else is left for validation to reject."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return value
    try:
        return float(Decimal(value if isinstance(value, int) else repr(value)) * Decimal(factor))
    except (OverflowError, ArithmeticError):
        return inf


def allowed_keys(cls: type[Frozen]) -> list[str]:
    """Keys a file of this class may have, vendor units preferred over the SI field they fill."""
    filled = {field for field, _ in cls.file_units.values()}
    return sorted({*cls.file_units, *(f for f in cls.model_fields if f not in filled)})


def _nested(cls: type[Frozen], field: str) -> list[str]:
    """Keys of the records inside a field."""
    for leaf in _inside(cls.model_fields[field].annotation):
        if isinstance(leaf, type) and issubclass(leaf, BaseModel):
            return list(leaf.model_fields)
    return []


def _inside(annotation: Any) -> list[Any]:
    """Types a container holds, however deep."""
    if hasattr(annotation, "__metadata__"):
        return _inside(annotation.__origin__)
    inner = [leaf for part in get_args(annotation) for leaf in _inside(part)]
    return inner or [annotation]


def explain(
    error: ValidationError,
    where: str,
    cls: type[Frozen],
    data: Mapping[str, Any] | None = None,
    keys: Mapping[str, str] | None = None,
) -> str:
    """One line per problem: file, key and value as they were given, what is wrong and what is allowed."""
    lines: dict[str, str] = {}
    problems = error.errors(include_url=False)
    inside = {item["loc"][0] for item in problems if len(item["loc"]) > 1}
    for item in problems:
        if item["type"] == "too_short" and len(item["loc"]) == 1 and item["loc"][0] in inside:
            continue  # the items are there, but none is valid
        field = str(item["loc"][0]) if item["loc"] else ""
        key = (keys or {}).get(field, field)
        described = cls.model_fields[field].description if field in cls.model_fields else None
        if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
            lines[field] = f"{where}: unknown key {key!r}; allowed: {', '.join(allowed_keys(cls))}"
        elif item["type"] == "extra_forbidden":
            path, inner = ".".join(map(str, item["loc"])), _nested(cls, field)
            lines[path] = f"{where}: unknown key {path!r}; allowed: {', '.join(sorted(inner))}"
        elif item["type"] == "missing":
            lines[field] = f"{where}: key {'.'.join(map(str, item['loc']))!r} is missing"
        elif item["type"] == "value_error":
            path = ".".join(map(str, item["loc"]))
            lines[path] = f"{where}: {path + ': ' if len(item['loc']) > 1 else ''}{item['ctx']['error']!s}"
        elif described is not None:
            lines[field] = f"{where}: key {key!r} has value {(data or {}).get(key)!r}: expected {described}"
        else:
            path = ".".join([key, *map(str, item["loc"][1:])])
            value = (data or {}).get(key, item["input"]) if len(item["loc"]) == 1 else item["input"]
            message = item["msg"][0].lower() + item["msg"][1:]
            lines[path] = f"{where}: key {path!r} has value {value!r}: {message}"
    return "\n".join(lines.values())
