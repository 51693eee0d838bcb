"""The engine: every point of a grid, in memory."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._version import MODEL_VERSION, __version__
from ..specs import Options, SpecError
from . import dims as d
from .case import Case, make_case
from .case_values import time_values, work_values
from .grid import Grid, build
from .inputs.arguments import Axes
from .lazy import Later, Program, Value, aligned, apply, equal, larger, nan_where, quick_loops, times
from .validity import BOTTLENECKS, CODES, MEMORY, NONE, Condition, lowest
from .variables import VARIABLES, WIRE

CASE_POINTS = 4_194_304
"""Points whose work is counted at once."""

TILE_POINTS = 65_536
"""Points combined at once: a dozen arrays of a quarter of a megabyte stay in a core's cache."""

WORK_NAMES = tuple(name for name, variable in VARIABLES.items() if variable.kind == "work")

Array = NDArray[Any]
Selection = Mapping[str, slice]
MakeCase = Callable[[Grid, int, int, Selection], Case]


@dataclass(frozen=True)
class Engine:
    """A grid and the variables requested of it; equal for all blocks and tiles: results do not depend on either.

    `case` makes the forward pass of a tile, by default the one the grid describes.
    """

    grid: Grid
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    case: MakeCase | None = None

    def dims_of(self, name: str) -> tuple[str, ...]:
        """Return the dims of a variable in canonical order."""
        return self.grid.dims_of(variable_inputs(name, self.grid.options))

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Return the dtype of a variable in memory."""
        kind = VARIABLES[name].kind
        return np.dtype(np.int8) if kind == "flag" else self.dtype if kind == "time" else np.dtype(np.float64)

    def nbytes(self) -> int:
        """Count the bytes of all requested variables."""
        sizes = self.grid.sizes
        return sum(
            math.prod(sizes[dim] for dim in self.dims_of(name)) * self.dtype_of(name).itemsize for name in self.names
        )

    def compute(self, selection: Selection | None = None) -> dict[str, Array]:
        """Compute the values of a block.

        Parameters
        ----------
        selection
            Slice of each dim; a dim that is left out is taken whole.

        Returns
        -------
        dict
            Array per variable, dims in canonical order.
        """
        whole = {dim: slice(0, size) for dim, size in self.grid.sizes.items()}
        block = {dim: _bounded(s, self.grid.sizes[dim]) for dim, s in (whole | dict(selection or {})).items()}
        targets = {name: self._target(name, block) for name in self.names}
        loops, memory = (*self.grid.models.dims, *self.grid.phases.dims), dict[Any, Array]()
        for part in pieces(block, self.grid.order, CASE_POINTS, loops):
            last = part[self.grid.order[-1]] if self.grid.order else slice(0, 1)
            with quick_loops(last.stop - last.start):
                self._fill(targets, block, part, memory)
        return {name: self._in_order(name, target.values) for name, target in targets.items()}

    def _target(self, name: str, block: Selection) -> Target:
        kept = self.dims_of(name)
        shape = [block[dim].stop - block[dim].start if dim in kept else 1 for dim in self.grid.order]
        return Target(aligned(math.prod(shape), self.dtype_of(name)).reshape(shape))

    def _in_order(self, name: str, values: Array) -> Array:
        """Dims in canonical order, without those the variable does not have."""
        order, dims = self.grid.order, self.dims_of(name)
        kept = [dim for dim in order if dim in dims]
        squeezed = values.squeeze(tuple(i for i, dim in enumerate(order) if dim not in dims))
        return squeezed.transpose([kept.index(dim) for dim in dims])

    def _fill(self, targets: Mapping[str, Target], block: Selection, part: Selection, memory: dict[Any, Array]) -> None:
        """Compute one part of a block: work at once, times tile by tile."""
        model, phase = _index(self.grid.models.dims, part), _index(self.grid.phases.dims, part)
        case = (self.case or case_of)(self.grid, model, phase, part)
        conditions = [c for c in case.conditions if np.any(c.where)]
        order = self.grid.order
        self._fill_work(targets, _within(part, block, order), case, conditions)
        names = [name for name in self.names if VARIABLES[name].kind != "work"]
        if not names:
            return
        values = masked(time_values(case, names, self.dtype), lowest(conditions), self.dtype)
        program = Program({name: values[name] for name in names}, memory)
        for piece in pieces(part, order, TILE_POINTS, ()):
            place = _within(piece, block, order)
            program.run(_within(piece, part, order), {name: targets[name].at(place) for name in names})

    def _fill_work(
        self,
        targets: Mapping[str, Target],
        place: tuple[slice, ...],
        case: Case,
        conditions: Sequence[Condition],
    ) -> None:
        """Work and capacity variables, masked by the conditions on their own inputs (never by what fits)."""
        names = [name for name in self.names if VARIABLES[name].kind == "work"]
        values = work_values(case, names) if names else {}
        for name in names:
            inputs = {*variable_inputs(name, self.grid.options), "options"}
            code = lowest([c for c in conditions if c.inputs <= inputs and c.code not in MEMORY])
            targets[name].put(place, values[name], code != NONE)


@dataclass(frozen=True)
class Target:
    """Array of a variable, of length 1 along the axes it does not have."""

    values: Array

    def at(self, place: tuple[slice, ...]) -> Array:
        """A piece of it."""
        index: list[Any] = [s if n > 1 else slice(None) for s, n in zip(place, self.values.shape, strict=True)]
        return np.asarray(self.values[(*index, ...)])

    def put(self, place: tuple[slice, ...], value: Any, mask: Any) -> None:
        """Write a piece."""
        target, where = self.at(place), np.asarray(mask)
        np.copyto(target, np.asarray(value))
        if where.any():
            np.copyto(target, np.nan, where=where)


def masked(values: Mapping[str, Value], code: Value, dtype: np.dtype[Any]) -> dict[str, Value]:
    """The status, and values with NaN, or -1 in flags, where it says that there are none."""
    if not isinstance(code, Later) and np.all(code == NONE):
        return {**values, "status": np.int8(CODES["ok"])}
    stopped = larger(np.int8(NONE), code)
    result = {"status": times(code, stopped)}
    stopped = apply(np.subtract, stopped, equal(code, np.int8(CODES["clipped"])))
    for name, value in values.items():
        if VARIABLES[name].kind == "flag":
            result[name] = apply(np.bitwise_or, value, apply(np.negative, stopped))
        else:
            result[name] = apply(np.add, value, nan_where(stopped, dtype))
    return result


def pieces(block: Selection, order: Sequence[str], room: int, loops: Sequence[str]) -> Iterator[dict[str, slice]]:
    """Cut a block into pieces of at most `room` points along its longest axes; `loops` one value at a time."""
    steps: dict[str, int] = {}
    for dim in reversed(order):
        size = block[dim].stop - block[dim].start
        steps[dim] = 1 if dim in loops else max(1, min(size, room))
        room //= steps[dim]
    ranges = [
        [slice(i, min(i + steps[dim], block[dim].stop)) for i in range(block[dim].start, block[dim].stop, steps[dim])]
        for dim in order
    ]
    for slices in itertools.product(*ranges):
        yield dict(zip(order, slices, strict=True))


def _within(piece: Selection, part: Selection, order: Sequence[str]) -> tuple[slice, ...]:
    """Where a piece lies in a part."""
    return tuple(slice(piece[dim].start - part[dim].start, piece[dim].stop - part[dim].start) for dim in order)


def _bounded(s: slice, size: int) -> slice:
    start, stop, _ = s.indices(size)
    return slice(start, stop)


def _index(dims: tuple[str, ...], tile: Selection) -> int:
    return tile[dims[0]].start if dims else 0


def case_of(grid: Grid, model: int, phase: int, tile: Selection) -> Case:
    """The case of a tile: inputs cut to it, for one model and one phase."""
    slices = [tile.get(dim, slice(None)) for dim in grid.order]
    inputs: dict[str, Any] = {}
    for name, values in grid.inputs.items():
        if isinstance(values, np.ndarray) and values.ndim:
            index = tuple(s if n > 1 else slice(None) for s, n in zip(slices, values.shape, strict=True))
            inputs[name] = values[index]
        else:
            inputs[name] = np.float64(values)
    return make_case(grid, inputs, grid.models.values[model], grid.phases.values[phase])


def variable_inputs(name: str, options: Options) -> tuple[str, ...]:
    """Inputs a variable depends on; a clipped batch depends on the accelerator's memory."""
    inputs = VARIABLES[name].inputs
    clipped = options.clips and VARIABLES[name].kind == "work" and d.BATCH in inputs
    return WIRE if clipped else inputs


def prepare(axes: Axes, names: Sequence[str] | None = None, dtype: str = "float32") -> Engine:
    """Resolve arguments into a grid and the variables requested.

    Raises
    ------
    SpecError
        For an argument that cannot be used, an unknown variable or dtype.
    """
    if dtype not in ("float32", "float64"):
        raise SpecError(f"dtype {dtype!r}: allowed are float32 and float64")
    requested = tuple(VARIABLES) if names is None else tuple(dict.fromkeys(names))
    unknown = [name for name in requested if name not in VARIABLES]
    if unknown:
        raise SpecError(f"outputs: unknown variable {', '.join(unknown)}; known: {', '.join(VARIABLES)}")
    grid = build(axes)
    return Engine(grid, requested, np.dtype(dtype))


def attributes(name: str) -> dict[str, Any]:
    """Return units, long_name and, for flags, codes and meanings (CF)."""
    variable = VARIABLES[name]
    attrs: dict[str, Any] = {"units": variable.units, "long_name": variable.long_name}
    if variable.kind == "flag":
        codes = CODES if name == "status" else BOTTLENECKS
        attrs["flag_values"] = np.array(list(codes.values()), dtype=np.int8)
        attrs["flag_meanings"] = " ".join(codes)
        attrs["comment"] = "-1 means not computed"
    return attrs


def dataset_attributes(grid: Grid) -> dict[str, str]:
    """Return the attributes of a result: conventions, versions, options and resolved specs as canonical JSON."""
    specs = {name: [r.canonical() for r in grid.records[name]] for name in (d.MODEL, d.GPU, d.PRECISION, d.EFFICIENCY)}
    return {
        "Conventions": "CF-1.11",
        "title": "LLM inference cost model: " + ", ".join(dict.fromkeys(r.name for r in grid.records[d.MODEL])),
        "cheetah_xr_version": __version__,
        "model_version": MODEL_VERSION,
        "options": canonical_json(grid.options.canonical()),
        "specs": canonical_json(specs),
    }


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no blanks: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def as_dataset(engine: Engine, values: Mapping[str, Array], more: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Wrap a whole grid's arrays with coordinates, units and attributes.

    Parameters
    ----------
    engine
        What was evaluated.
    values
        Array of every variable of the engine.
    more
        Other variables as tuples of dims, values and attributes; those of the name of their dim become coordinates.
    """
    coords = engine.grid.coords
    variables = {name: (engine.dims_of(name), values[name], attributes(name)) for name in engine.names}
    # One call: each variable that is added later costs as much as all at once.
    ds = xr.Dataset({**coords, **variables, **(more or {})}, attrs=dataset_attributes(engine.grid))
    return ds.set_coords(list(coords))


def check_size(nbytes: float, max_bytes: Any, what: str) -> None:
    """Reject what is larger than the caller allows."""
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, float)) or not max_bytes > 0:
        raise SpecError(f"max_bytes: expected a number of bytes above 0, got {max_bytes!r}")
    if nbytes > max_bytes:
        raise SpecError(
            f"{what} has {nbytes / 1e9:.3g} GB, above max_bytes = {max_bytes / 1e9:.3g} GB; ask for fewer outputs, "
            "raise max_bytes, or use run_sweep, which writes to disk"
        )


def evaluate_axes(axes: Axes, names: Sequence[str] | None, dtype: str, max_bytes: float) -> xr.Dataset:
    """Evaluate a grid in memory; see :func:`cheetah_xr.evaluate`."""
    clip = axes.options.clips
    engine = prepare(axes, [*names, "status"] if clip and names is not None else names, dtype)
    check_size(engine.nbytes(), max_bytes, f"the result of {engine.grid.n_points:,} points")
    ds = as_dataset(engine, engine.compute())
    if clip and bool((ds["status"] == CODES["clipped"]).any()):
        warnings.warn("some batches do not fit in memory and run at max_batch (status clipped)", stacklevel=3)
    return ds if names is None else ds.drop_vars([name for name in ds.data_vars if name not in names])
