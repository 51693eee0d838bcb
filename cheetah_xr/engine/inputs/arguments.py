"""What the public functions take: the types of their arguments, and the record that holds them as they were given."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...specs import DEGREES, AnyModel, Efficiency, Gpu, Options, Precision

F = TypeVar("F", bound=Callable[..., Any])

Source = str | Path | Mapping[str, Any]
"""A catalogue name, a path, or a mapping with the keys of a file."""

ModelLike = Source | AnyModel | Sequence[Source | AnyModel] | xr.DataArray
"""A model, or several: a list makes the dim ``model``, a DataArray of names keeps its own dim."""

GpuLike = Source | Gpu | Sequence[Source | Gpu] | xr.DataArray
"""An accelerator, or several."""

PrecisionLike = Source | Precision | Sequence[Source | Precision] | xr.DataArray
"""A precision, or several."""

EfficiencyLike = Source | Efficiency | Sequence[Source | Efficiency] | xr.DataArray | xr.Dataset
"""An efficiency profile, or several; a Dataset is a posterior of :func:`cheetah_xr.load_posterior`."""

IntsLike = int | np.integer[Any] | Sequence[int] | NDArray[np.integer[Any]] | xr.DataArray
"""A whole number, or several: a list or an array makes a dim, a DataArray keeps its own dims."""

NumbersLike = float | np.number[Any] | Sequence[float] | NDArray[np.number[Any]] | xr.DataArray
"""A number, or several."""

PhaseLike = str | Sequence[str] | xr.DataArray
""""prefill", "decode", or both."""

OptionsLike = Options | Mapping[str, Any] | None
"""Accounting options as a record or a mapping; None is all defaults."""

FieldsLike = Mapping[str, NumbersLike] | None
"""Numbers by "record.field" in SI units, such as ``{"gpu.hbm_bandwidth": [1e12, 2e12]}``."""

Dtype = Literal["float32", "float64"]
"""Dtype of times."""


class Layout(TypedDict, total=False):
    """Degrees of parallelism of one instance."""

    tp: IntsLike
    dp: IntsLike
    ep: IntsLike


class RecordArguments(TypedDict, total=False):
    """How work becomes time, and numbers in place of those of the records."""

    efficiency: EfficiencyLike
    options: OptionsLike
    overrides: FieldsLike
    scales: FieldsLike


class InstanceArguments(Layout, RecordArguments, total=False):
    """Layout of one instance, and how its work becomes time."""


DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(DEGREES, 1),
    "efficiency": "default",
    "options": None,
    "overrides": None,
    "scales": None,
}
"""Default of every key of :class:`InstanceArguments`."""


@dataclass(frozen=True)
class Axes:
    """The arguments of a sweep, as given: records by axis, and numbers by name.

    `draws` are numbers by "record.field" that stand for the record's own, `coords` coordinates the result carries, and
    `errors` residual scales: all three come from a posterior
    (:func:`cheetah_xr.engine.inputs.posterior_axis.with_draws`).
    """

    model: Any
    gpu: Any
    precision: Any = "bf16"
    efficiency: Any = "default"
    phase: Any = "decode"
    batch: Any = 1
    seq_len: Any = 1
    tp: Any = 1
    dp: Any = 1
    ep: Any = 1
    options: Options = field(default_factory=Options)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Any] = field(default_factory=dict)
    draws: Mapping[str, xr.DataArray] = field(default_factory=dict)
    coords: Mapping[str, xr.DataArray] = field(default_factory=dict)
    errors: Mapping[str, xr.DataArray] = field(default_factory=dict)


def spelled_out(arguments: Any, *, after: str) -> Callable[[F], F]:
    """Show a function that takes ``**arguments: Unpack[...]`` with every keyword and its default.

    Parameters
    ----------
    arguments
        TypedDict of the keywords; their defaults are :data:`DEFAULTS`.
    after
        Parameter of the function that the keywords are shown behind.

    Returns
    -------
    Callable
        Decorator that sets the signature ``help()`` shows; a call with another keyword raises a TypeError that lists
        the function's own.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=hint)
            for name, hint in hints(arguments).items()
        ]
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        place = 1 + [p.name for p in own].index(after)
        shown = signature.replace(parameters=[*own[:place], *keywords, *own[place:]])

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            unknown = [name for name in given if name not in shown.parameters]
            if unknown:
                raise TypeError(_unknown_keyword(function.__name__, unknown[0], list(shown.parameters)))
            return function(*args, **given)

        vars(checked)["__signature__"] = shown
        return cast(F, checked)

    return decorate


def _unknown_keyword(function: str, name: str, known: Sequence[str]) -> str:
    """Return what to say of a keyword that a function does not have."""
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{function}() got an unexpected keyword argument {name!r}; {hint}it takes {', '.join(known)}"


def hints(arguments: Any) -> dict[str, str]:
    """Return the types of the keys of a TypedDict as they are written."""
    return {name: getattr(hint, "__forward_arg__", str(hint)) for name, hint in arguments.__annotations__.items()}
