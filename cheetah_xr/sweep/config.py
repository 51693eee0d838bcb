"""The sweep file: a frozen, validated record of the axes, options and stored variables of a sweep."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field, field_validator, model_validator

from ..analysis.conditions import parse_all
from ..analysis.derive import DERIVED
from ..api import layouts
from ..engine.dims import LAYOUT, PARALLEL
from ..engine.inputs.arguments import Axes
from ..engine.inputs.axes import layout_labels
from ..engine.variables import VARIABLES
from ..specs import (
    Frozen,
    Options,
    Record,
    SpecError,
    check_length,
    list_efficiencies,
    list_gpus,
    list_models,
    list_precisions,
    read_yaml,
    sweep_path,
    to_record,
)
from .reductions import Best, Histogram

Name = str | dict[str, Any]
Names = Annotated[Name | list[Name], Field(description="a name, a mapping, {catalogue: all}, or a list of names")]
Values = Annotated[
    int | float | list[int | float] | dict[str, Any],
    Field(description="a number, a list of numbers, or a range {min, max, num, spacing: linear|log}"),
]

BYTES_PER_POINT = 32
"""Working memory of one point of a block, for each variable that is computed, in round numbers."""

DEFAULT_OUTPUTS = ("step_time", "bottleneck", "status")
LISTS = {
    "model": list_models,
    "gpu": list_gpus,
    "precision": list_precisions,
    "efficiency": list_efficiencies,
}


class Range(Frozen):
    """``{min, max, num, spacing: linear|log, include: [...]}``: a range of an axis, and further values."""

    min: Annotated[float, Field(gt=0, le=2**53)]
    max: Annotated[float, Field(gt=0)]
    num: Annotated[int, Field(ge=1, le=10_000_000)]
    spacing: Literal["linear", "log"] = "linear"
    include: list[float] = Field(default_factory=list, description="a list of numbers")

    @model_validator(mode="after")
    def _ascending(self) -> Range:
        if self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self

    def values(self, *, integers: bool) -> list[Any]:
        """Return the values, ascending; whole numbers are rounded and occur once.

        Raises
        ------
        SpecError
            For whole numbers above 2**53.
        """
        if integers and self.max > 2**53:
            raise SpecError(f"max {self.max:g} is above 2**53, the largest exact whole number")
        space = np.linspace if self.spacing == "linear" else np.geomspace
        values = np.append(space(self.min, self.max, self.num), self.include)
        distinct = np.unique(np.round(values).astype(np.int64)) if integers else np.unique(values)
        return list(distinct.tolist())


class Sweep(Record):
    """One batch run: axes, fixed values, options and stored outputs.

    ``layout`` gives tp, dp and ep together, as lists of equal length on one axis, instead of the three keys. After a
    run the best point by the metric ``headline`` among those that meet ``where`` is shown, and the best for every value
    of the axis ``compare``. With ``best`` or ``histogram`` every block is reduced, and only the
    reduced values are stored unless ``outputs`` are named too.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
    title: str
    question: str
    model: Names
    gpu: Names
    precision: Names = "bf16"
    efficiency: Names = "default"
    phase: Literal["prefill", "decode"] | list[Literal["prefill", "decode"]] = Field(
        "decode", description="prefill, decode, or a list of both"
    )
    batch: Values
    seq_len: Values
    tp: Values = 1
    dp: Values = 1
    ep: Values = 1
    layout: dict[str, int | list[int]] | None = Field(
        None, description="lists of equal length of whole numbers under tp, dp and ep, or {n_gpus: a number or a list}"
    )
    options: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Values] = Field(default_factory=dict)
    scales: dict[str, Values] = Field(default_factory=dict)
    outputs: list[str] = Field(default_factory=lambda: list(DEFAULT_OUTPUTS))
    best: Best | None = None
    histogram: Histogram | None = None
    block_memory_mb: Annotated[float, Field(ge=1)] | None = None
    headline: str = "throughput_per_gpu"
    where: list[str] = Field(default_factory=list, description="a list of 'name op number'")
    compare: str | None = None

    @field_validator("outputs")
    @classmethod
    def _known_outputs(cls, outputs: list[str]) -> list[str]:
        unknown = [name for name in outputs if name not in VARIABLES]
        if unknown or not outputs:
            what = f"unknown variable {', '.join(unknown)}" if unknown else "at least one variable is needed"
            raise ValueError(f"outputs: {what}; known: {', '.join(VARIABLES)}")
        return outputs

    @field_validator("headline")
    @classmethod
    def _known_headline(cls, headline: str) -> str:
        if headline not in DERIVED:
            raise ValueError(f"headline: unknown metric {headline!r}; known: {', '.join(DERIVED)}")
        return headline

    @field_validator("layout")
    @classmethod
    def _whole_layout(cls, layout: Any) -> Any:
        if layout is None or set(layout) == {"n_gpus"}:
            return layout
        lengths = {len(values) if isinstance(values, list) else 0 for values in layout.values()}
        if set(layout) - set(PARALLEL) or len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"layout: expected lists of equal length, not empty, under tp, dp and ep, got {layout}")
        return layout

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        both = [name for name in PARALLEL if self.layout is not None and name in self.model_fields_set]
        if both:
            raise ValueError(f"layout and {', '.join(both)} are both given; layout gives tp, dp and ep together")
        phases = [self.phase] if isinstance(self.phase, str) else self.phase
        if self.best is not None:
            if self.where:
                raise ValueError("where: the conditions of best belong inside it, as best: {where: ...}")
            for name in (name for name in self.best.needs if name in DERIVED):
                if DERIVED[name].phase not in (None, *phases) or (DERIVED[name].phase and len(phases) > 1):
                    raise ValueError(f"best: {name} is a metric of {DERIVED[name].phase}; phase is {', '.join(phases)}")
            return self
        named = [("where", c.name) for c in parse_all(self.where) if c.name in DERIVED]
        for key, name in [("headline", self.headline), *named]:
            metric = DERIVED[name]
            if metric.phase is not None and metric.phase not in phases:
                raise ValueError(f"{key}: {name} needs the {metric.phase} phase; phase is {', '.join(phases)}")
            missing = [need for need in metric.needs if need in VARIABLES and need not in self.stored]
            if missing and key in self.model_fields_set:
                raise ValueError(f"{key}: {name} needs {', '.join(missing)} among the outputs")
        return self

    @field_validator("where")
    @classmethod
    def _conditions(cls, where: list[str]) -> list[str]:
        parse_all(where)
        return where

    @property
    def reductions(self) -> tuple[Best | Histogram, ...]:
        """Return the reductions of every block."""
        return tuple(r for r in (self.best, self.histogram) if r is not None)

    @property
    def stored(self) -> list[str]:
        """Return the variables stored point by point: none by default when there is a reduction."""
        return [] if self.reductions and "outputs" not in self.model_fields_set else self.outputs

    @property
    def block_points(self) -> int | None:
        """Return the points of a block under the memory budget of the file; None means the default."""
        if self.block_memory_mb is None:
            return None
        each = BYTES_PER_POINT * (1 + len(self.stored) + sum(len(r.needs) for r in self.reductions))
        return max(1, int(self.block_memory_mb * 1e6 / each))

    def axes(self) -> Axes:
        """Return the axes as :func:`cheetah_xr.evaluate` takes them.

        Raises
        ------
        SpecError
            Naming key, value and what is allowed.
        """
        options = to_record(Options, self.options, "options")
        layout: dict[str, Any] = {name: self._values(name) for name in PARALLEL}
        if self.layout is not None:
            columns = self._layouts(options)
            labels = {LAYOUT: layout_labels(**columns)}
            layout = {name: xr.DataArray(values, dims=LAYOUT, coords=labels) for name, values in columns.items()}
        return Axes(
            **{kind: self._names(kind) for kind in LISTS},
            batch=self._values("batch"),
            seq_len=self._values("seq_len"),
            phase=self.phase,
            options=options,
            overrides={k: _expand(v, f"overrides.{k}", False) for k, v in self.overrides.items()},
            scales={k: _expand(v, f"scales.{k}", False) for k, v in self.scales.items()},
            **layout,
        )

    def _layouts(self, options: Options) -> dict[str, list[int]]:
        """Return tp, dp and ep of every layout: as listed, or all valid ones of every model and number of GPUs."""
        given: dict[str, Any] = dict(self.layout or {})
        if "n_gpus" not in given:
            length = len(next(iter(given.values())))
            return {name: given.get(name, [1] * length) for name in PARALLEL}
        models = self._names("model")
        models = models if isinstance(models, list) else [models]
        counts = given["n_gpus"] if isinstance(given["n_gpus"], list) else [given["n_gpus"]]
        columns: dict[tuple[int, ...], None] = {}
        for n, model in itertools.product(counts, models):
            valid = layouts(n, model, options)
            columns |= dict.fromkeys(zip(*(valid[name].values.tolist() for name in PARALLEL), strict=True))
        if not columns:
            raise SpecError(
                f"layout: n_gpus {given['n_gpus']}: no layout with this number of GPUs is valid for any of the models"
            )
        return {name: list(column) for name, column in zip(PARALLEL, zip(*columns, strict=True), strict=True)}

    def _values(self, name: str) -> Any:
        return _expand(getattr(self, name), name, True)

    def _names(self, kind: str) -> Any:
        """Return the names of a kind; `{catalogue: all}` is every item of the catalogue."""
        value = getattr(self, kind)
        if isinstance(value, dict) and "catalogue" in value:
            if value != {"catalogue": "all"}:
                raise SpecError(f"{kind}: expected {{catalogue: all}}, got {value!r}")
            return LISTS[kind]()
        return value


def _expand(value: Any, where: str, integers: bool) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return to_record(Range, value, where).values(integers=integers)
    except SpecError as error:
        raise error if str(error).startswith(where) else SpecError(f"{where}: {error}") from None


def load_sweep(source: str | Path | Sweep) -> Sweep:
    """Load a sweep (a path, the name of a shipped one, or a record) and check that its axes can be built.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.
    """
    sweep = find_sweep(source)
    if sweep is not source:
        try:
            sweep.axes()
        except SpecError as error:
            raise SpecError(f"{source}: {error}") from None
    return sweep


def find_sweep(source: str | Path | Sweep) -> Sweep:
    """Read a sweep (a path, the name of a shipped one, or a record); names in it are not looked up yet.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.
    """
    if isinstance(source, Sweep):
        return source
    if not isinstance(source, (str, Path)) or not str(source):
        raise SpecError(f"sweep {source!r}: expected a path, a name, or a Sweep")
    path = Path(source)
    check_length("sweep", path)
    if not path.is_file():
        path = sweep_path(str(source))
    return read_sweep(path)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; models, accelerators and layouts in it are not looked up yet."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise SpecError(f"{path}: expected a mapping of keys to values, got {type(data).__name__}")
    return to_record(Sweep, {"name": path.stem, **data}, str(path))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of sweep files, for editors."""
    fields = Sweep.model_json_schema()
    fields["required"] = [name for name in fields["required"] if name != "name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **fields}
