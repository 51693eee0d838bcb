"""Gather the arguments of a public function into one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ...specs import Options, SpecError, to_record
from .arguments import (
    DEFAULTS,
    Axes,
    GpuLike,
    InstanceArguments,
    IntsLike,
    ModelLike,
    OptionsLike,
    PhaseLike,
    PrecisionLike,
)
from .posterior_axis import with_draws


def axes_of(
    model: ModelLike,
    gpu: GpuLike,
    precision: PrecisionLike = "bf16",
    *,
    batch: IntsLike = 1,
    seq_len: IntsLike = 1,
    phase: PhaseLike = "decode",
    **arguments: Unpack[InstanceArguments],
) -> Axes:
    """Gather the arguments of :func:`cheetah_xr.evaluate` into one record.

    Raises
    ------
    TypeError
        For a keyword that is no argument.
    SpecError
        For options, overrides or scales that are not of their kind, and a posterior that is none.
    """
    unknown = sorted(arguments.keys() - DEFAULTS.keys())
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; there are {', '.join(DEFAULTS)}")
    given: dict[str, Any] = {**DEFAULTS, **arguments}
    given["options"] = options_of(given["options"])
    for name in ("overrides", "scales"):
        if given[name] is not None and not isinstance(given[name], Mapping):
            raise SpecError(f"{name}: expected a mapping from record.field to numbers, got {given[name]!r}")
        given[name] = given[name] or {}
    return with_draws(Axes(model, gpu, precision, batch=batch, seq_len=seq_len, phase=phase, **given))


def options_of(options: OptionsLike, default: Options | None = None) -> Options:
    """Return the accounting options a caller gave as a record, mapping or None (`default`, else all defaults)."""
    if options is None:
        return default or Options()
    if isinstance(options, Mapping):
        return to_record(Options, options, "options")
    if not isinstance(options, Options):
        raise SpecError(f"options: expected Options or a mapping, got {options!r}")
    return options
