"""Look up specs by name, path, mapping or record."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SpecError
from .efficiency import Efficiency
from .gpu import Gpu
from .huggingface import model_fields
from .huggingface.hub import PREFIX, fetch_config, fetch_quantisation, is_hub_name
from .huggingface.quantization import BESIDE
from .model import Model, ParameterCountModel
from .precision import Precision
from .record import MAX_FILE_BYTES, Record, read_yaml, to_record

T = TypeVar("T", bound=Record)
Source = str | Path | Mapping[str, Any]
AnyModel = Model | ParameterCountModel

MANY = 16
"""More names than this are not listed in an error."""

FOLDERS = {"model": "models", "gpu": "gpus", "precision": "precisions", "efficiency": "efficiencies"}
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w-]*[\w.-]*(?<!\.yaml)(?<!\.yml)(?<!\.json)")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@cache
def catalogue_root() -> Path:
    """Folder that holds ``specs/`` and ``sweeps/``: inside an installed wheel, else the checkout.

    Raises
    ------
    SpecError
        When neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_catalogue", package.parent):
        if (root / "specs" / "models").is_dir():
            return root
    raise SpecError(f"no catalogue: neither {package / '_catalogue'} nor {package.parent / 'specs'} exists")


def list_models() -> list[str]:
    """Names of the models in the catalogue."""
    return _names("model")


def list_gpus() -> list[str]:
    """Names of the accelerators in the catalogue."""
    return _names("gpu")


def list_precisions() -> list[str]:
    """Names of the precisions in the catalogue."""
    return _names("precision")


def list_efficiencies() -> list[str]:
    """Names of the efficiency sets in the catalogue."""
    return _names("efficiency")


def list_sweeps() -> list[str]:
    """Names of the sweep files that come with the package."""
    return sorted(p.stem for p in (catalogue_root() / "sweeps").glob("*.yaml"))


def sweep_path(name: str) -> Path:
    """Path of a shipped sweep file."""
    return _named("sweep", name, catalogue_root() / "sweeps", list_sweeps())


def list_posteriors() -> list[str]:
    """Names of the posteriors in the catalogue."""
    return sorted(p.stem for p in (catalogue_root() / "specs" / "posteriors").glob("*.csv"))


def posterior_path(name: str) -> Path:
    """Path of a shipped posterior, or of a file of that name."""
    return _named("posterior", name, catalogue_root() / "specs" / "posteriors", list_posteriors(), ".csv")


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
    return gpu if isinstance(gpu, Gpu) else _load("gpu", Gpu, gpu)


def load_precision(precision: Source | Precision) -> Precision:
    """Load a precision: catalogue name ("fp8"), YAML path, mapping, or record. See :func:`load_gpu`."""
    return precision if isinstance(precision, Precision) else _load("precision", Precision, precision)


def load_efficiency(efficiency: Source | Efficiency) -> Efficiency:
    """Load an efficiency set: catalogue name ("ideal"), YAML path, mapping, or record. See :func:`load_gpu`."""
    return efficiency if isinstance(efficiency, Efficiency) else _load("efficiency", Efficiency, efficiency)


def load_model(model: Source | AnyModel) -> AnyModel:
    """Load a model.

    Parameters
    ----------
    model
        Catalogue name ("llama-3.1-70b"), path of a YAML file, of a Hugging Face ``config.json`` or of the folder that
        holds one, "hf:org/name" to download one from the Hub, a mapping with the fields of either, or a record. A
        ``hf_quant_config.json`` beside a ``config.json`` is read too.

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
    if isinstance(model, (Model, ParameterCountModel)):
        return model
    data, where, name = _read("model", model)
    if "model_type" in data:
        name = data.pop("name", None) or data.get("_name_or_path") or name
        return to_record(Model, {"name": name, **model_fields(data, where)}, where)
    if where.endswith(".json") and not {"groups", "n_parameters"} & set(data):
        raise SpecError(f"{where}: field model_type is missing: it names the family of a Hugging Face config")
    data = {"name": name, **data}
    return to_record(ParameterCountModel, data, where) if "n_parameters" in data else to_record(Model, data, where)


def _load(kind: str, cls: type[T], source: Source) -> T:
    data, where, name = _read(kind, source)
    return to_record(cls, {"name": name, **data}, where)


def _read(kind: str, source: Source) -> tuple[dict[str, Any], str, str]:
    """The mapping behind a source, what to call it in errors, and a name for it."""
    if isinstance(source, Mapping):
        return dict(source), f"inline {kind}", f"inline-{kind}"
    if not isinstance(source, (str, Path)) or not str(source):
        raise SpecError(f"{kind} {source!r}: expected a catalogue name, a path, a mapping or a record")
    if kind == "model" and is_hub_name(source):
        repository = str(source).removeprefix(PREFIX)
        config = _mapping(_read_json(fetch_config(str(source))), str(source))
        return _quantised(config, fetch_quantisation(str(source))), str(source), repository.split("/")[-1]
    path = Path(source)
    check_length(kind, path)
    if kind == "model" and _HUB.fullmatch(str(source)) and not path.exists():
        raise SpecError(f"model {source!r} is not a file; a model of the Hugging Face Hub is named '{PREFIX}{source}'")
    if not (isinstance(source, Path) or path.suffix or "/" in source) or _NAME.fullmatch(str(source).lower()):
        path = _named(kind, str(source), catalogue_root() / "specs" / FOLDERS[kind], _names(kind))
    if path.is_dir():
        path = path / "config.json"
    data = _mapping(_read_json(path) if path.suffix == ".json" else read_yaml(path), str(path))
    if path.parent == catalogue_root() / "specs" / FOLDERS[kind] and data.get("name", path.stem) != path.stem:
        raise SpecError(f"{path}: key 'name' has value {data['name']!r}: expected {path.stem!r}, the name of the file")
    if path.name != "config.json":
        return data, str(path), path.stem
    beside = path.parent / BESIDE
    return _quantised(data, beside if beside.is_file() else None), str(path), path.resolve().parent.name


def _quantised(config: dict[str, Any], beside: Path | None) -> dict[str, Any]:
    """A Hugging Face config with what the file beside it says of its quantisation."""
    if beside is None or "model_type" not in config:
        return config
    return {**config, BESIDE: _mapping(_read_json(beside), str(beside))}


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: expected a mapping of keys to values, got {type(data).__name__}")
    return dict(data)


def check_length(kind: str, path: Path) -> None:
    """Refuse a name or path no file system takes."""
    longest = max((len(part) for part in path.parts), default=0)
    if longest > 255 or len(str(path)) > 4000:
        raise SpecError(f"{kind}: a name of {longest:,} characters; a file name has at most 255")


def _named(kind: str, name: str, folder: Path, names: list[str], suffix: str = ".yaml") -> Path:
    """Path of a catalogue item; an existing file of that name in the working folder wins over an unknown name."""
    check_length(kind, Path(name))
    if name.lower() in names:
        return folder / f"{name.lower()}{suffix}"
    if Path(name).exists():
        return Path(name)
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else _known(kind, names)
    raise SpecError(f"{kind} {name!r} is neither in the catalogue nor a file; {hint}")


def _known(kind: str, names: list[str]) -> str:
    """Names there are, the first of many."""
    if len(names) <= MANY:
        return f"known: {', '.join(names) or 'none'}"
    plural = FOLDERS.get(kind, f"{kind}s")
    return f"known: {', '.join(names[:MANY])}, ... (cheetah-xr list {plural} shows all {len(names)})"


def _names(kind: str) -> list[str]:
    return sorted(p.stem for p in (catalogue_root() / "specs" / FOLDERS[kind]).glob("*.yaml"))


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
    """A JSON object; a key given twice is an error, as in YAML."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise SpecError(f"key {next(n for n in names if names.count(n) > 1)!r} is given twice")
    return found
