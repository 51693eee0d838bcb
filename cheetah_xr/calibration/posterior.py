"""Posteriors of efficiency profiles: samples of the parameters, read from the catalogue or from files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..engine import dims as d
from ..engine.grid import described
from ..engine.inputs.posterior_axis import BASE, RESIDUAL_SCALES
from ..specs import Efficiency, SpecError, check_length, load_efficiency, posterior_path
from ..specs.record import MAX_FILE_BYTES
from .objective import TAIL
from .parameters import KNOWN, NAMES, PARAMETERS

Array = NDArray[Any]

CHAIN = "chain"
COLUMNS = (*NAMES, *RESIDUAL_SCALES)
MOST = {parameter.name: parameter.most for parameter in PARAMETERS} | dict.fromkeys(RESIDUAL_SCALES, np.inf)
"""Column -> the largest number allowed; all are above 0."""


def load_posterior(posterior: str | Path | xr.Dataset) -> xr.Dataset:
    """Load a posterior of an efficiency profile, for ``evaluate(..., efficiency=posterior)``.

    Parameters
    ----------
    posterior
        Catalogue name; path of a CSV file with one row per draw, a column per parameter
        (:data:`cheetah_xr.calibration.parameters.PARAMETERS`) and residual scale
        (:data:`cheetah_xr.engine.inputs.posterior_axis.RESIDUAL_SCALES`); path of a netCDF file (``.nc``) of chains as
        :func:`cheetah_xr.calibration.sampling.sample` returns them; or such a Dataset.

    Returns
    -------
    xarray.Dataset
        On the dim ``draw``, a variable for each field of the efficiency record a parameter sets (fractions, or s), and
        ``residual_scale_dense``, ``residual_scale_moe`` and ``residual_scale_prefill``, the scales of
        ln(measured/predicted) of forward passes of models without and with routed experts, and of prefill interference.
        It has a Student distribution with ``dof`` degrees of freedom; scales are taken as the file has them.
        Attributes: ``name``, ``dof``, and ``base``, the record with the other fields, as JSON.

    Raises
    ------
    SpecError
        For an unknown name; naming the file, and the column, row, number and what is allowed.
    """
    if isinstance(posterior, xr.Dataset):
        return _of_chains(posterior, "posterior", "posterior")
    if not isinstance(posterior, (str, Path)) or not str(posterior):
        raise SpecError(f"posterior {posterior!r}: expected a catalogue name, a path, or chains")
    path = Path(posterior)
    check_length("posterior", path)
    if not (isinstance(posterior, Path) or path.suffix in (".csv", ".nc") or "/" in posterior):
        path = posterior_path(posterior)
    if path.suffix == ".nc":
        return _of_chains(_read_chains(path), str(path), path.stem)
    return _dataset(_read_csv(path), path.stem)


def _dataset(columns: Mapping[str, Array], name: str) -> xr.Dataset:
    """Return parameters as the fields they are the values of."""
    ds = xr.Dataset(coords={d.DRAW: np.arange(len(columns[RESIDUAL_SCALES[0]]))})
    for parameter in PARAMETERS:
        for field in parameter.fields:
            ds[field] = (d.DRAW, columns[parameter.name], {**described(field), "parameter": parameter.name})
    of = ("models without routed experts", "models with routed experts", "prefill interference")
    for scale, what in zip(RESIDUAL_SCALES, of, strict=True):
        attributes = {"units": "1", "long_name": f"residual scale, of ln(measured/predicted): {what}", "dof": TAIL}
        ds[scale] = (d.DRAW, columns[scale], attributes)
    base = _base(name).canonical()
    return ds.assign_attrs({"name": name, "dof": TAIL, BASE: json.dumps(base, sort_keys=True)})


def _base(name: str) -> Efficiency:
    """Return the record with the fields no parameter sets."""
    return load_efficiency("ideal").model_copy(update={**KNOWN, "name": name})


def _check_columns(names: Sequence[str], where: str, kind: str) -> None:
    missing = [name for name in COLUMNS if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    twice = sorted({name for name in names if names.count(name) > 1})
    for problem, wrong in (("missing", missing), ("unknown", unknown), ("given twice", twice)):
        if wrong:
            raise SpecError(f"{where}: {kind} {problem}: {', '.join(wrong)}; expected {', '.join(COLUMNS)}")


def _check_values(values: Array, name: str, where: str, row: Callable[[int], str]) -> None:
    """Numbers above 0 and at most what the parameter may be; `row` is the label of a position."""
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((values > 0) & (values <= MOST[name]) & np.isfinite(values)))
    if wrong.size:
        at = int(wrong[0])
        allowed = "above 0" if np.isinf(MOST[name]) else f"above 0 and at most {MOST[name]:g}"
        raise SpecError(f"{where}: column {name!r}, {row(at)}: {values[at]!s} is not a number {allowed}")


def _read_csv(path: Path) -> dict[str, Array]:
    lines = _lines(path)
    if not lines:
        raise SpecError(f"{path}: is empty; expected a header of {', '.join(COLUMNS)}")
    (_, header), rows = lines[0], lines[1:]
    _check_columns(header, str(path), "columns")
    if not rows:
        raise SpecError(f"{path}: has no draws, only a header")
    for number, cells in rows:
        if len(cells) != len(header):
            raise SpecError(f"{path}: row {number} has {len(cells)} cells; the header has {len(header)}")
    columns = {}
    for place, name in enumerate(header):
        columns[name] = np.array([_number(cells[place], f"{path}: column {name!r}, row {n}") for n, cells in rows])
        _check_values(columns[name], name, str(path), lambda place: f"row {rows[place][0]}")
    return columns


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Lines of a CSV file that are not blank, with their numbers in the file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SpecError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes; keep fewer draws")
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            return [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path}: is not a CSV file in UTF-8: {error}") from None


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{where}: {text!r} is not a number") from None


def _read_chains(path: Path) -> xr.Dataset:
    try:
        with xr.open_dataset(path) as ds:
            return ds.load()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise SpecError(
            f"{path}: is no netCDF file xarray can read; netCDF 4 needs cheetah_xr[export]: {error}"
        ) from None


def _of_chains(chains: xr.Dataset, where: str, name: str) -> xr.Dataset:
    """Draws of all chains one after the other."""
    _check_columns([str(n) for n in chains.data_vars], where, "variables")
    columns, n = {}, chains.sizes.get(d.DRAW, 0)
    for column in COLUMNS:
        values = chains[column]
        if set(values.dims) != {CHAIN, d.DRAW} or values.dtype.kind not in "iuf" or values.size == 0:
            raise SpecError(
                f"{where}: variable {column!r}: expected numbers on the dims {CHAIN} and {d.DRAW}, "
                f"got {values.dtype} on {dict(values.sizes)}"
            )
        ordered = values.transpose(CHAIN, d.DRAW).values
        columns[column] = ordered.reshape(-1).astype(np.float64)
        _check_values(columns[column], column, where, lambda place: f"{CHAIN} {place // n}, {d.DRAW} {place % n}")
    return _dataset(columns, name)
