"""What starting imports, and that names imported on first use behave as if they had been imported at once."""

import ast
import importlib
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import cheetah_xr as cx

PACKAGE = Path(cx.__file__).parent
HEAVY = {"dask", "distributed", "matplotlib", "numpy", "pandas", "ruamel", "scipy", "xarray", "zarr"}


def run(code):
    """Standard output of a fresh process; a warning in it is an error."""
    command = [sys.executable, "-W", "error", "-c", code]
    environment = os.environ | {"EAGER_IMPORT": ""}  # lazy_loader's switch to import all names at once
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def packages_after(code):
    """Top-level packages a fresh process has imported after some code."""
    printed = run(f"{code}\nimport sys\nprint('|', *sys.modules)")
    return {name.partition(".")[0] for name in printed.rpartition("|")[2].split()}


def command(words):
    """Code that runs the command line and goes on."""
    return (
        f"import sys; sys.argv = ['cheetah-xr', *{words.split()}]\n"
        "from cheetah_xr.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code"
    )


HELP = [
    "--help",
    "--version",
    *(f"{name} --help" for name in ("sweep", "estimate", "serve", "info", "figures", "calibrate", "validate", "list")),
]


@pytest.mark.parametrize("words", HELP)
def test_help_imports_nothing_heavy(words):
    actual = packages_after(command(words))
    assert {"cheetah_xr", "typer", "rich"} <= actual
    assert not actual & HEAVY


def test_importing_the_package_imports_nothing_heavy():
    assert not packages_after("import cheetah_xr") & (HEAVY | {"pydantic", "rich", "typer"})


@pytest.mark.parametrize("words", ["list gpus", "list models", "figures --list"])
def test_catalogues_are_listed_without_xarray(words):
    assert not packages_after(command(words)) & (HEAVY - {"numpy", "ruamel"})


def test_evaluating_needs_no_store_and_no_scheduler():
    code = "import cheetah_xr as cx\ncx.evaluate('llama-3.1-8b', 'h100-sxm', batch=1, seq_len=1)"
    assert not packages_after(code) & {"distributed", "matplotlib", "zarr", "rich", "typer"}


ESTIMATE = "estimate --model llama-3.1-70b --gpu h100-sxm --tp 8 --batch 32 --seq-len 2048 --explain-memory"


def test_an_estimate_needs_no_lazy_arrays():
    actual = packages_after(command(ESTIMATE))
    assert not actual & {"dask", "distributed", "matplotlib", "scipy", "zarr"}
    back = f"{command(ESTIMATE)}\nimport dask.array, gc, sys\nprint(gc.isenabled(), sys.modules['dask'] is not None)"
    assert run(back).splitlines()[-1] == "True True"


def test_an_estimate_is_the_same_where_everything_is_imported():
    assert run(command(ESTIMATE)) == run(f"import dask.array, xarray\n{command(ESTIMATE)}")


def test_a_result_is_described_without_dask_arrays(tmp_path):
    store = str(tmp_path / "result.zarr")
    cx.run_sweep("qwen3-32b-h100", store, progress=False)
    code = f"{command('info ' + store)}\nassert 'dask.array' not in sys.modules"
    assert not packages_after(code) & {"distributed", "matplotlib", "scipy"}


# ---- names


def stub():
    """Public name -> the module it comes from, as the stub says; None for a module itself."""
    nodes = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body
    assert all(isinstance(node, ast.ImportFrom) and node.level == 1 for node in nodes)
    assert all(alias.name == alias.asname for node in nodes for alias in node.names)
    return {alias.name: node.module for node in nodes for alias in node.names}


def test_every_name_is_there_in_a_fresh_process():
    expected = sorted(stub())
    assert cx.__all__ == dir(cx) == expected
    for name, module in stub().items():
        home = importlib.import_module(f"cheetah_xr.{module or name}")
        assert getattr(cx, name) is (getattr(home, name) if module else home)
    starred = run("from cheetah_xr import *\nprint(*dir())").split()
    assert set(expected) <= set(starred)


def test_no_module_hides_a_name():
    """Importing a submodule sets it on the package: a public function of the same name would be gone."""
    submodules = {path.stem for path in PACKAGE.iterdir()}
    assert {name for name in cx.__all__ if name in submodules} == {"analysis"}
    for path in sorted(PACKAGE.glob("*.py")):
        if not path.stem.startswith("__"):
            importlib.import_module(f"cheetah_xr.{path.stem}")
    assert [n for n in cx.__all__ if isinstance(getattr(cx, n), types.ModuleType)] == ["analysis"]


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="nothing"):
        cx.nothing  # noqa: B018
    with pytest.raises(ImportError, match="nothing"):
        exec("from cheetah_xr import nothing")


# ---- the accessor

MAKERS = [
    "analysis",
    "breakdown",
    "derive",
    "evaluate",
    "layouts",
    "load_posterior",
    "open_result",
    "operations",
    "serve",
    "serve_disaggregated",
    "summarize",
]
"""Public names that make, change or open datasets."""

ORDERS = {
    "xarray first": "import xarray, cheetah_xr",
    "twice": "import xarray, cheetah_xr, importlib; importlib.reload(cheetah_xr); import cheetah_xr.analysis.accessor",
    **{name: f"import cheetah_xr; cheetah_xr.{name}; import xarray" for name in MAKERS},
    **{f"{name}, xarray first": f"import xarray, cheetah_xr; cheetah_xr.{name}" for name in ("analysis", "evaluate")},
}
"""How xarray and the package may come together."""

HAS_ACCESSOR = "print(type(ds.cheetah).__name__, 'regimes' in dir(ds.cheetah), ds.cheetah is ds.cheetah)"


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_accessor_is_there_in_any_order(order):
    code = f"ds = xarray.Dataset({{'status': ('batch', [0, 1])}})\n{HAS_ACCESSOR}"
    assert run(f"{order}\n{code}").splitlines() == ["Cheetah True True"]


def test_nothing_hooks_into_the_import_of_others():
    code = "import sys; before = list(sys.meta_path); import cheetah_xr; print(sys.meta_path == before)"
    assert run(code) == "True\n"


def test_the_accessor_is_there_where_xarray_opens_a_result(tmp_path):
    store = cx.run_sweep("qwen3-32b-h100", str(tmp_path / "result.zarr"), progress=False)
    code = f"ds = xarray.open_zarr({str(store)!r}, consolidated=False)\n{HAS_ACCESSOR}"
    for order in ("import xarray, cheetah_xr", "import cheetah_xr.analysis, xarray"):
        assert run(f"{order}\n{code}").splitlines() == ["Cheetah True True"]


def test_where_xarray_is_missing_it_is_missing():
    code = (
        "import sys, cheetah_xr\n"
        "sys.path[:] = []\n"
        "try:\n    import xarray\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert run(code) == "No module named 'xarray'\n"
