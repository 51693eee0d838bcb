"""Load specs: a catalogue name, path, mapping or record becomes a frozen record."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import SpecError
from .catalogue import check_length, spec_folder, spec_path
from .efficiency import Efficiency
from .gpu import Gpu
from .huggingface.hub import PREFIX, fetch_config, fetch_quantization, is_hub_name
from .huggingface.quantization import QUANTIZATION_FILE
from .model import AnyModel, Model, ParameterCountModel
from .precision import Precision
from .record import MAX_FILE_BYTES, Record, read_yaml, to_record

Source = str | Path | Mapping[str, Any]

RECORDS: Mapping[str, type[Record]] = {"gpu": Gpu, "precision": Precision, "efficiency": Efficiency}
"""Kind of spec -> its record; models have two."""

KEPT_RECORDS = 1024
"""Records of files that are kept, so that a file is parsed once however often its name is given."""

COARSE_CLOCK = 2_000_000_000
"""Nanoseconds: a file changed within this time is read again, since its next change may bear the same time."""

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w-]*[\w.-]*(?<!\.yaml)(?<!\.yml)(?<!\.json)")
_Stamp = tuple[int, int, int, int]


def load_gpu(gpu: Source | Gpu) -> Gpu:
    """Load an accelerator.

    Parameters
    ----------
    gpu
        Catalogue name ("h100-sxm"), path of a YAML file, mapping with a file's keys, or a record.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed.

    Examples
    --------
    >>> load_gpu("h100-sxm").hbm_bandwidth
    3350000000000.0
    """
    return gpu if isinstance(gpu, Gpu) else _load("gpu", gpu)


def load_precision(precision: Source | Precision) -> Precision:
    """Load a precision: catalogue name ("fp8"), YAML path, mapping, or record. See :func:`load_gpu`."""
    return precision if isinstance(precision, Precision) else _load("precision", precision)


def load_efficiency(efficiency: Source | Efficiency) -> Efficiency:
    """Load an efficiency profile: catalogue name ("ideal"), YAML path, mapping, or record. See :func:`load_gpu`."""
    return efficiency if isinstance(efficiency, Efficiency) else _load("efficiency", efficiency)


def load_model(model: Source | AnyModel) -> AnyModel:
    """Load a model.

    Parameters
    ----------
    model
        Catalogue name ("llama-3.1-70b"), path of a YAML file, of a Hugging Face ``config.json`` or of the folder that
        holds one, "hf:org/name" to download one from the Hub, a mapping with the fields of either, or a record. A
        ``hf_quant_config.json`` in the folder of a ``config.json`` is read too.

    Returns
    -------
    Model or ParameterCountModel
        With ``n_parameters`` and ``n_parameters_active``.

    Raises
    ------
    SpecError
        Naming file, key, value and what is allowed; a Hugging Face field that is not understood is never skipped.

    Examples
    --------
    >>> load_model("llama-3.1-8b").n_parameters
    8030261248
    """
    return model if isinstance(model, (Model, ParameterCountModel)) else _load("model", model)


def _load(kind: str, source: Source) -> Any:
    """Return the record of a kind behind a source."""
    if isinstance(source, Mapping):
        return _record(kind, dict(source), f"inline {kind}", f"inline-{kind}")
    if not isinstance(source, (str, Path)) or not str(source):
        raise SpecError(f"{kind} {source!r}: expected a catalogue name, a path, a mapping or a record")
    if kind == "model" and is_hub_name(source):
        return _from_hub(str(source))
    if kind == "model" and _HUB.fullmatch(str(source)):
        check_length(kind, Path(source))
        if not Path(source).exists():
            raise SpecError(
                f"model {source!r} is not a file; a model of the Hugging Face Hub is named '{PREFIX}{source}'"
            )
    path = spec_path(kind, source)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        return _from_json(kind, path)
    stamp = _stamp(path)
    return _from_yaml(kind, path) if stamp is None else _unchanged(kind, path, stamp)


def _record(kind: str, data: dict[str, Any], where: str, name: str) -> Any:
    """Turn the mapping of a file into a record; `name` is the record's where the file gives none."""
    if kind != "model":
        return to_record(RECORDS[kind], {"name": name, **data}, where)
    if "model_type" in data:
        from .huggingface.readers import model_fields  # thirty modules, for those who have a config

        name = data.pop("name", None) or data.get("_name_or_path") or name
        return to_record(Model, {"name": name, **model_fields(data, where)}, where)
    if where.endswith(".json") and not {"groups", "n_parameters"} & set(data):
        raise SpecError(f"{where}: field model_type is missing: it names the family of a Hugging Face config")
    return to_record(ParameterCountModel if "n_parameters" in data else Model, {"name": name, **data}, where)


def _stamp(path: Path) -> _Stamp | None:
    """Return what differs once a file is changed or replaced; None where that cannot be known."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    age = time.time_ns() - stat.st_mtime_ns
    return None if age < COARSE_CLOCK else (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=KEPT_RECORDS)
def _unchanged(kind: str, path: Path, stamp: _Stamp) -> Any:
    """Return the record of a YAML file, parsed once for each stamp of the file."""
    return _from_yaml(kind, path)


def _from_yaml(kind: str, path: Path) -> Any:
    data = _mapping(read_yaml(path), str(path))
    if path.parent == spec_folder(kind) and data.get("name", path.stem) != path.stem:
        raise SpecError(f"{path}: key 'name' has value {data['name']!r}: expected {path.stem!r}, the name of the file")
    return _record(kind, data, str(path), path.stem)


def _from_json(kind: str, path: Path) -> Any:
    data = _mapping(_read_json(path), str(path))
    if path.name != "config.json":
        return _record(kind, data, str(path), path.stem)
    quantization = path.parent / QUANTIZATION_FILE
    data = _quantized(data, quantization if quantization.is_file() else None)
    return _record(kind, data, str(path), path.resolve().parent.name)


def _from_hub(source: str) -> AnyModel:
    config = _mapping(_read_json(fetch_config(source)), source)
    name = source.removeprefix(PREFIX).split("/")[-1]
    model: AnyModel = _record("model", _quantized(config, fetch_quantization(source)), source, name)
    return model


def _quantized(config: dict[str, Any], quantization: Path | None) -> dict[str, Any]:
    """Add to a Hugging Face config what the file of its quantization says."""
    if quantization is None or "model_type" not in config:
        return config
    return {**config, QUANTIZATION_FILE: _mapping(_read_json(quantization), str(quantization))}


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: expected a mapping of keys to values, got {type(data).__name__}")
    return dict(data)


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SpecError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes; a config.json is a few kilobytes")
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once_each)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror})") from None
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is not valid JSON: {error}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object in which, as in YAML, no key is given twice."""
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        raise SpecError(f"key {next(n for n in names if names.count(n) > 1)!r} is given twice")
    return data
