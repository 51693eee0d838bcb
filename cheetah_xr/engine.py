"""The engine: every point of a grid, in memory."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from . import dims as d
from ._version import MODEL_VERSION, __version__
from .combine import Tiers
from .grid import Axes, Grid, build
from .specs import Options, SpecError
from .status import BOTTLENECKS, CODES, NOT_COMPUTED, RUNS, lowest
from .tile import Case, make_case, tile_values
from .variables import VARIABLES, WIRE

TILE_POINTS = 131_072
"""Points of a tile: arrays of half a megabyte stay in a core's cache."""

Array = NDArray[Any]
Selection = Mapping[str, slice]


@dataclass(frozen=True)
class Engine:
    """A grid and what is wanted of it; the same for every block and tile, so that results do not depend on either."""

    grid: Grid
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    tiers: Mapping[tuple[int, int], Tiers]

    def dims_of(self, name: str) -> tuple[str, ...]:
        """Dims of a variable in canonical order."""
        return self.grid.dims_of(variable_inputs(name, self.grid.options))

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Number type of a variable in memory."""
        kind = VARIABLES[name].kind
        return np.dtype(np.int8) if kind == "flag" else self.dtype if kind == "time" else np.dtype(np.float64)

    def nbytes(self) -> int:
        """Bytes of all wanted variables."""
        sizes = self.grid.sizes
        return sum(
            math.prod(sizes[dim] for dim in self.dims_of(name)) * self.dtype_of(name).itemsize for name in self.names
        )

    def compute(self, selection: Selection | None = None) -> dict[str, Array]:
        """Values of a block.

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
        out = {name: self._empty(name, block) for name in self.names}
        for tile in self._tiles(block):
            self._fill(out, block, tile)
        order = self.grid.order
        return {
            name: values.transpose([self._kept(name, order).index(dim) for dim in self.dims_of(name)])
            for name, values in out.items()
        }

    def _kept(self, name: str, order: Sequence[str]) -> list[str]:
        kept = self.dims_of(name)
        return [dim for dim in order if dim in kept]

    def _empty(self, name: str, block: Selection) -> Array:
        shape = [block[dim].stop - block[dim].start for dim in self._kept(name, self.grid.order)]
        return np.empty(shape, self.dtype_of(name))

    def _tiles(self, block: Selection) -> Iterator[dict[str, slice]]:
        """Cut a block into tiles along its longest axes; models and phases one at a time."""
        loops = {*self.grid.models.dims, *self.grid.phases.dims}
        room = TILE_POINTS
        steps: dict[str, int] = {}
        for dim in reversed(self.grid.order):
            size = block[dim].stop - block[dim].start
            steps[dim] = 1 if dim in loops else max(1, min(size, room))
            room //= steps[dim]
        ranges = [
            [slice(i, min(i + steps[dim], block[dim].stop)) for i in range(block[dim].start, block[dim].stop, steps[dim])]
            for dim in self.grid.order
        ]
        for slices in itertools.product(*ranges):
            yield dict(zip(self.grid.order, slices, strict=True))

    def _fill(self, out: dict[str, Array], block: Selection, tile: Selection) -> None:
        model, phase = _index(self.grid.models.dims, tile), _index(self.grid.phases.dims, tile)
        with np.errstate(all="ignore"):
            case = case_of(self.grid, model, phase, tile)
            values = tile_values(case, self.names, self.dtype, self.tiers[model, phase].replay())
            code = lowest(list(case.conditions))
        for name in self.names:
            kept = self._kept(name, self.grid.order)
            place = tuple(slice(tile[x].start - block[x].start, tile[x].stop - block[x].start) for x in kept)
            target = out[name][(*place, ...)]
            if name == "status":
                target[...] = np.where(self._drop(code, kept) == 127, CODES["ok"], self._drop(code, kept))
                continue
            target[...] = self._drop(values[name], kept)
            masked = self._masked(name, case, code, kept)
            if np.any(masked):
                np.copyto(target, NOT_COMPUTED if name == "bottleneck" else np.nan, where=masked)

    def _masked(self, name: str, case: Case, code: Any, kept: list[str]) -> Any:
        """Where a variable has no value: times by status, work and capacity by the conditions on their own inputs."""
        if VARIABLES[name].kind != "work":
            code = self._drop(code, kept)
            return ~np.isin(code, [127, *RUNS])
        inputs = set(variable_inputs(name, self.grid.options)) | {"options"}
        memory = (CODES["infeasible_memory"], CODES["clipped"])
        own = [c for c in case.conditions if c.roots <= inputs and c.code not in memory]
        return self._drop(lowest(own), kept) != 127

    def _drop(self, value: Any, kept: list[str]) -> Any:
        """Remove the axes a variable does not have; they must be of length 1."""
        array = np.asarray(value)
        if array.ndim == 0:
            return array
        return array.squeeze(tuple(i for i, dim in enumerate(self.grid.order) if dim not in kept))


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
    clipped = options.on_infeasible == "clip" and VARIABLES[name].kind == "work" and d.BATCH in inputs
    return WIRE if clipped else inputs


def prepare(axes: Axes, names: Sequence[str] | None = None, dtype: str = "float32") -> Engine:
    """Resolve what is asked and learn the tiers of its terms from a miniature of the sweep.

    Raises
    ------
    SpecError
        For an argument that cannot be used, an unknown variable or number type.
    """
    if dtype not in ("float32", "float64"):
        raise SpecError(f"dtype {dtype!r}: allowed are float32 and float64")
    wanted = tuple(VARIABLES) if names is None else tuple(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in VARIABLES]
    if unknown:
        raise SpecError(f"outputs: unknown variable {', '.join(unknown)}; known: {', '.join(VARIABLES)}")
    grid = build(axes)
    number = np.dtype(dtype)
    miniature = {dim: slice(0, min(size, 2)) for dim, size in grid.sizes.items()}
    tiers: dict[tuple[int, int], Tiers] = {}
    for model, phase in itertools.product(range(len(grid.models.values)), range(len(grid.phases.values))):
        own = {dim: slice(model, model + 1) for dim in grid.models.dims}
        own |= {dim: slice(phase, phase + 1) for dim in grid.phases.dims}
        recorder = Tiers()
        with np.errstate(all="ignore"):
            tile_values(case_of(grid, model, phase, miniature | own), wanted, number, recorder)
        tiers[model, phase] = recorder
    return Engine(grid, wanted, number, tiers)


def attributes(name: str) -> dict[str, Any]:
    """Units, long_name and, for flags, codes and meanings (CF)."""
    variable = VARIABLES[name]
    found: dict[str, Any] = {"units": variable.units, "long_name": variable.long_name}
    if variable.kind == "flag":
        codes = CODES if name == "status" else BOTTLENECKS
        found["flag_values"] = np.array(list(codes.values()), dtype=np.int8)
        found["flag_meanings"] = " ".join(codes)
        found["comment"] = "-1 means not computed"
    return found


def dataset_attributes(engine: Engine) -> dict[str, str]:
    """Attributes of a result: conventions, versions, options and resolved specs as canonical JSON."""
    grid = engine.grid
    specs = {
        name: [r.canonical() for r in grid.records[name]] for name in (d.MODEL, d.GPU, d.PRECISION, d.EFFICIENCY)
    }
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


def as_dataset(engine: Engine, values: Mapping[str, Array]) -> xr.Dataset:
    """Wrap a whole grid's arrays with coordinates, units and attributes."""
    ds = xr.Dataset(coords={k: (dims, v, attrs) for k, (dims, v, attrs) in engine.grid.coords.items()})
    for name in engine.names:
        ds[name] = (engine.dims_of(name), values[name], attributes(name))
    return ds.assign_attrs(dataset_attributes(engine))


def evaluate_axes(axes: Axes, names: Sequence[str] | None, dtype: str, max_bytes: float) -> xr.Dataset:
    """Evaluate a grid in memory; see :func:`cheetah_xr.evaluate`."""
    engine = prepare(axes, names, dtype)
    if engine.nbytes() > max_bytes:
        raise SpecError(
            f"the result has {engine.grid.n_points:,} points and {engine.nbytes() / 1e9:.1f} GB, above max_bytes = "
            f"{max_bytes / 1e9:.1f} GB; ask for fewer outputs, raise max_bytes, or use run_sweep, which writes to disk"
        )
    values = engine.compute()
    if "status" in values and np.any(values["status"] == CODES["clipped"]):
        warnings.warn("some batches do not fit in memory and run at max_batch (status clipped)", stacklevel=3)
    return as_dataset(engine, values)
