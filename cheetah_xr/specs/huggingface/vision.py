"""Parameters of the vision tower and projector of a Hugging Face config; what is not understood is rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import SpecError
from .towers import HARMLESS, TOWERS, Parts, Tower

OUTPUT_WIDTHS = ("out_hidden_size", "text_hidden_size", "projection_dim", "top.projector_hidden_size")
"""Fields that repeat the text model's width."""

DEEPSTACK = "deepstack_visual_indexes"


def vision_parameters(fields: Mapping[str, Any], text_hidden: int, where: str) -> int:
    """Parameters of vision tower and projector; 0 without a `vision_config`.

    Parameters
    ----------
    fields
        The top-level config.
    text_hidden
        Width of the text model, which the projector ends in.
    where
        What to call the config in an error.

    Raises
    ------
    SpecError
        For a tower this version does not count, and a field that is missing or has a value it does not know, by name.
    """
    return sum(vision_parts(fields, text_hidden, where).values())


def vision_parts(fields: Mapping[str, Any], text_hidden: int, where: str) -> Parts:
    """The same, by part of the tower. See :func:`vision_parameters`."""
    if fields.get("audio_config") is not None:
        raise SpecError(f"{where}: audio_config is given: audio towers are not counted")
    given = fields.get("vision_config")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SpecError(f"{where}: vision_config has value {given!r}: expected a mapping")
    tower = _tower(fields, given, where)
    known = {*tower.numbers, *tower.optional, *tower.allowed, *HARMLESS}
    unknown = sorted(str(name) for name in given if name not in known)
    if unknown:
        raise SpecError(f"{where}: vision_config has unknown fields {', '.join(unknown)}: they may add parameters")
    flat = {**{f"top.{name}": value for name, value in fields.items()}, **given}
    _check_values(tower, flat, where)
    numbers = {name: _whole(flat, name, where) for name in tower.numbers}
    numbers |= {name: _whole(flat, name, where, least) for name, least in tower.optional.items()}
    for name in OUTPUT_WIDTHS:
        if numbers.get(name, text_hidden) != text_hidden:
            raise SpecError(f"{where}: {_shown(name)} {numbers[name]} is not the text model's width {text_hidden}")
    return tower.parts(numbers, text_hidden)


def _tower(fields: Mapping[str, Any], given: Mapping[str, Any], where: str) -> Tower:
    family, kind = fields.get("model_type"), given.get("model_type") or ""
    tower = TOWERS.get(family) if isinstance(family, str) else None
    if tower is None:
        raise SpecError(
            f"{where}: vision_config of model_type {family!r} is not counted; counted: {', '.join(sorted(TOWERS))}"
        )
    if kind not in tower.types:
        raise SpecError(
            f"{where}: vision_config model_type {kind!r} of {family!r} is not counted; counted: "
            f"{', '.join(repr(known) for known in tower.types)}"
        )
    return tower


def _check_values(tower: Tower, flat: Mapping[str, Any], where: str) -> None:
    for name, values in tower.allowed.items():
        value = flat.get(name)
        if not any(type(value) is type(known) and value == known for known in values):
            what = f"has value {value!r}" if value is not None else "is missing"
            counted = " or ".join(repr(known) for known in values if known is not None)
            raise SpecError(f"{where}: {_shown(name)} {what}; counted: {counted}")


def _whole(flat: Mapping[str, Any], name: str, where: str, default: int | None = None) -> int:
    """A whole number; of the list of layers with a merger of their own, how many there are."""
    value = flat.get(name, default)
    if name == DEEPSTACK and isinstance(value, list):
        return len(value)
    if value is None:
        raise SpecError(f"{where}: {_shown(name)} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < (0 if name == DEEPSTACK else 1):
        raise SpecError(f"{where}: {_shown(name)} has value {value!r}: expected a whole number")
    return value


def _shown(name: str) -> str:
    return f"field {name[4:]}" if name.startswith("top.") else f"vision_config.{name}"
