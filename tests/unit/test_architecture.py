"""The house: imports go downwards only, files stay short, formulas import nothing but numbers."""

import ast
from pathlib import Path

import cheetah_xr

PACKAGE = Path(cheetah_xr.__file__).parent
ORDER = (
    {"errors", "_version"},
    {"specs"},
    {"costmodel"},
    {"engine"},
    {"analysis"},
    {"api"},
    {"serving", "sweep", "calibration"},
    {"figures"},
    {"cli"},
    {"__init__", "__main__"},
)
"""Folders and loose modules from the bottom up; those of one level do not import one another."""
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
NUMBERS_ONLY = {"__future__", "collections", "typing", "numpy", "scipy"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room(path):
    """Topic a file belongs to: its folder inside the package, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path):
    """Rooms a file imports from, relative imports resolved."""
    inside = path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = inside[: len(inside) - node.level]
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            for name in names:
                yield base[0] if base else name


def test_every_room_has_a_level():
    assert {room(path) for path in modules()} == set(LEVEL)


def test_imports_go_downwards():
    upwards = [
        (path.name, target)
        for path in modules()
        for target in imported_rooms(path)
        if target != room(path) and LEVEL[target] >= LEVEL[room(path)]
    ]
    assert upwards == []


def test_no_more_than_eleven_floors():
    assert len(ORDER) <= 11


CROWDED = {"figures/plots"}
"""Folders that may have any number of modules."""


def test_folders_have_three_to_sixteen_modules():
    """A folder of fewer modules is no room of its own, in one of more nothing is found."""
    sizes = {}
    for path in modules():
        folder = path.parent.relative_to(PACKAGE).as_posix()
        sizes[folder] = sizes.get(folder, 0) + (path.name != "__init__.py")
    wrong = {folder: n for folder, n in sizes.items() if not 3 <= n <= 16 and folder not in CROWDED}
    assert wrong == {}


def test_formulas_import_numbers_only():
    for path in (PACKAGE / "costmodel" / "formulas").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= NUMBERS_ONLY, path
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module.split(".")[0] in NUMBERS_ONLY, path


def test_only_run_knows_dask():
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if "import dask" in text or "from dask" in text:
            assert path.name == "runner.py"


def test_files_and_functions_are_short():
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                assert not body or body[-1].end_lineno - body[0].lineno < 50, (path.name, node.name)


def test_at_most_ten_reasoned_type_ignores():
    found = [
        path.name
        for path in modules()
        for line in path.read_text(encoding="utf-8").splitlines()
        if "type: ignore" in line
    ]
    assert len(found) <= 10
