"""The sweep file: a frozen, validated record of what is asked, what is stored and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field, ValidationError, field_validator

from .analysis.derive import DERIVED
from .api import axes_of
from .axes import Axes
from .dims import LAYOUT
from .specs import (
    Options,
    Record,
    SpecError,
    allowed_keys,
    explain,
    list_gpus,
    list_models,
    read_yaml,
    sweep_path,
    to_record,
)
from .variables import VARIABLES

Name = str | dict[str, Any]
Names = Name | list[Name]
Values = int | float | list[int | float] | dict[str, Any]
Layouts = dict[str, list[int]]

DEFAULT_OUTPUTS = ("step_time", "bottleneck", "status")


class Range(Record):
    """``{min, max, num, spacing: linear|log, integers: true}``: a range of an axis."""

    name: str = "range"
    min: Annotated[float, Field(gt=0)]
    max: Annotated[float, Field(gt=0)]
    num: Annotated[int, Field(ge=1, le=10_000_000)]
    spacing: Literal["linear", "log"] = "linear"

    def values(self, *, integers: bool) -> list[Any]:
        """The values, ascending; whole numbers are rounded and each is kept once."""
        space = np.linspace if self.spacing == "linear" else np.geomspace
        values = space(self.min, self.max, self.num)
        found = np.unique(np.round(values).astype(np.int64)) if integers else np.unique(values)
        return list(found.tolist())


class Sweep(Record):
    """One batch run: axes, fixed values, options and stored outputs.

    After a run the best point by the metric ``headline`` is shown, and its best along the axis ``compare``.

    ``layout`` gives tp, dp and ep together, as lists of equal length on one axis, in place of the three keys.
    """

    title: str
    question: str
    model: Names
    gpu: Names
    precision: Names = "bf16"
    efficiency: Names = "default"
    phase: Literal["prefill", "decode"] | list[Literal["prefill", "decode"]] = "decode"
    batch: Values
    seq_len: Values
    tp: Values = 1
    dp: Values = 1
    ep: Values = 1
    layout: Layouts | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Values] = Field(default_factory=dict)
    scales: dict[str, Values] = Field(default_factory=dict)
    outputs: list[str] = Field(default_factory=lambda: list(DEFAULT_OUTPUTS))
    headline: str = "throughput_per_gpu"
    compare: str | None = None

    @field_validator("outputs")
    @classmethod
    def _known_outputs(cls, outputs: list[str]) -> list[str]:
        unknown = [name for name in outputs if name not in VARIABLES]
        if unknown or not outputs:
            raise ValueError(f"outputs: unknown variable {', '.join(unknown)}; known: {', '.join(VARIABLES)}")
        return outputs

    @field_validator("headline")
    @classmethod
    def _known_headline(cls, headline: str) -> str:
        if headline not in DERIVED:
            raise ValueError(f"headline: unknown metric {headline!r}; known: {', '.join(DERIVED)}")
        return headline

    def axes(self) -> Axes:
        """The axes as :func:`cheetah_xr.evaluate` takes them.

        Raises
        ------
        SpecError
            Naming sweep, key, value and what is allowed.
        """
        where = f"sweep {self.name}"
        options = to_record(Options, self.options, f"{where}: options")
        layout = {name: self._values(name, integers=True) for name in ("tp", "dp", "ep")}
        if self.layout is not None:
            if set(self.layout) - set(layout) or len({len(v) for v in self.layout.values()}) != 1:
                raise SpecError(f"{where}: layout: expected lists of equal length under tp, dp and ep")
            layout |= {name: xr.DataArray(values, dims=LAYOUT) for name, values in self.layout.items()}
        return axes_of(
            self._names("model", list_models()),
            self._names("gpu", list_gpus()),
            self.precision,
            self._values("batch", integers=True),
            self._values("seq_len", integers=True),
            self.phase,
            efficiency=self.efficiency,
            options=options,
            overrides={k: _expand(v, f"{where}: overrides.{k}", False) for k, v in self.overrides.items()},
            scales={k: _expand(v, f"{where}: scales.{k}", False) for k, v in self.scales.items()},
            **layout,
        )

    def _values(self, name: str, *, integers: bool) -> Any:
        return _expand(getattr(self, name), f"sweep {self.name}: {name}", integers)

    def _names(self, kind: str, known: list[str]) -> Any:
        """`{catalogue: all}` is every item of the catalogue."""
        value = getattr(self, kind)
        if isinstance(value, dict) and "catalogue" in value:
            if value != {"catalogue": "all"}:
                raise SpecError(f"sweep {self.name}: {kind}: expected {{catalogue: all}}, got {value!r}")
            return known
        return value


def _expand(value: Any, where: str, integers: bool) -> Any:
    return to_record(Range, value, where).values(integers=integers) if isinstance(value, dict) else value


def load_sweep(source: str | Path | Sweep) -> Sweep:
    """Load a sweep: a path, the name of a shipped one, or a record.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.
    """
    if isinstance(source, Sweep):
        return source
    path = Path(source)
    if not path.exists():
        path = sweep_path(str(source))
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise SpecError(f"{path}: expected a mapping of keys to values, got {type(data).__name__}")
    try:
        return Sweep.model_validate({"name": path.stem, **data})
    except ValidationError as error:
        raise SpecError(explain(error, str(path), allowed_keys(Sweep))) from None
