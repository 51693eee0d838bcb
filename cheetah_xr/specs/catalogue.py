"""Find specs, sweeps and posteriors: names in the catalogue, and the paths behind them."""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path

from ..errors import SpecError

MANY = 16
"""More names than this are not listed in an error."""

FOLDERS = {"model": "models", "gpu": "gpus", "precision": "precisions", "efficiency": "efficiencies"}
"""Kind of spec -> its folder in the catalogue."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@cache
def catalogue_root() -> Path:
    """Return the folder that holds ``specs/`` and ``sweeps/``: inside an installed wheel, else the checkout.

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
    """List the names of the models in the catalogue."""
    return _stems(spec_folder("model"))


def list_gpus() -> list[str]:
    """List the names of the accelerators in the catalogue."""
    return _stems(spec_folder("gpu"))


def list_precisions() -> list[str]:
    """List the names of the precisions in the catalogue."""
    return _stems(spec_folder("precision"))


def list_efficiencies() -> list[str]:
    """List the names of the efficiency profiles in the catalogue."""
    return _stems(spec_folder("efficiency"))


def list_sweeps() -> list[str]:
    """List the names of the sweep files that come with the package."""
    return _stems(catalogue_root() / "sweeps")


def sweep_path(name: str) -> Path:
    """Return the path of a shipped sweep file, or of a file of that name."""
    return _named("sweep", name, catalogue_root() / "sweeps")


def list_posteriors() -> list[str]:
    """List the names of the posteriors in the catalogue."""
    return _stems(catalogue_root() / "specs" / "posteriors", ".csv")


def posterior_path(name: str) -> Path:
    """Return the path of a shipped posterior, or of a file of that name."""
    return _named("posterior", name, catalogue_root() / "specs" / "posteriors", ".csv")


def spec_path(kind: str, source: str | Path) -> Path:
    """Return the file a catalogue name or a path stands for.

    Raises
    ------
    SpecError
        For a name that is neither in the catalogue nor a file.
    """
    path = Path(source)
    check_length(kind, path)
    looks_like_path = isinstance(source, Path) or path.suffix != "" or "/" in source
    if looks_like_path and not _NAME.fullmatch(str(source).lower()):
        return path
    return _named(kind, str(source), spec_folder(kind))


def spec_folder(kind: str) -> Path:
    """Return the folder of the catalogue that holds the specs of a kind."""
    return catalogue_root() / "specs" / FOLDERS[kind]


def check_length(kind: str, path: Path) -> None:
    """Reject a name or path that no file system takes."""
    longest = max((len(part) for part in path.parts), default=0)
    if longest > 255 or len(str(path)) > 4000:
        raise SpecError(f"{kind}: a name of {longest:,} characters; a file name has at most 255")


def _named(kind: str, name: str, folder: Path, suffix: str = ".yaml") -> Path:
    """Return the file of a catalogue name, else an existing file of that name in the working folder."""
    check_length(kind, Path(name))
    path = folder / f"{name.lower()}{suffix}"
    if path.parent == folder and path.is_file():
        return path
    if Path(name).exists():
        return Path(name)
    names = _stems(folder, suffix)
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else _known(kind, names)
    raise SpecError(f"{kind} {name!r} is neither in the catalogue nor a file; {hint}")


def _known(kind: str, names: list[str]) -> str:
    """Say which names are known, the first of many."""
    if len(names) <= MANY:
        return f"known: {', '.join(names) or 'none'}"
    plural = FOLDERS.get(kind, f"{kind}s")
    return f"known: {', '.join(names[:MANY])}, ... (cheetah-xr list {plural} shows all {len(names)})"


def _stems(folder: Path, suffix: str = ".yaml") -> list[str]:
    """List the names of the files of a folder, sorted, without their suffix."""
    return sorted(path.stem for path in folder.glob(f"*{suffix}"))
