"""The 89 Hugging Face configs packaged with aiconfigurator-core: read to the last parameter, or rejected as expected.

The counts come from elsewhere (the column `source` of data/aiconfigurator.csv). Several of these files are trimmed by
hand, so that a field is missing: none may load as something else. Install the extra "validation" to run this.
"""

import csv
import json
from importlib import metadata, resources

import pytest

import cheetah_xr as cx
from tests.helpers import DATA
from tests.helpers.rejection import rejected

VERSION = "0.12.0"
package = pytest.importorskip("aiconfigurator_core", reason="needs the extra validation")
if metadata.version("aiconfigurator-core") != VERSION:
    pytest.skip(f"written for aiconfigurator-core {VERSION}", allow_module_level=True)

SIDE_FILE = "hf_quant_config.json"
DATA = DATA
CONFIGS = resources.files(package) / "model_configs"


def rows(name):
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS = {row["file"].removesuffix("_config.json"): row for row in rows("aiconfigurator.csv")}
READ = [name for name, row in ROWS.items() if not row["rejected"]]
REJECTED = [name for name, row in ROWS.items() if row["rejected"]]
SIDE_FILES = {name: row["side_file"] for name, row in ROWS.items() if row["side_file"]}
QUANTISATION = [name for name, row in ROWS.items() if row["rejected"] == "quantized_layers"]


def fields(name):
    return json.loads((CONFIGS / f"{name}_config.json").read_text(encoding="utf-8"))


def test_every_config_of_the_package_is_listed():
    actual = {path.name for path in CONFIGS.iterdir() if path.name.endswith("_config.json")}
    assert {name for name in actual if not name.endswith(SIDE_FILE)} == {r["file"] for r in ROWS.values()}
    assert len(ROWS) == 89
    assert {name for name in actual if name.endswith(SIDE_FILE)} == {f"{name}_{SIDE_FILE}" for name in SIDE_FILES}


def test_counts_are_those_of_the_other_list():
    known = {row["name"]: row["main"] for row in rows("parameters.csv")}
    for row in ROWS.values():
        if row["source"].startswith("parameters.csv: "):
            assert row["parameters"] == known[row["source"].split()[1]], row["file"]


@pytest.mark.parametrize("name", READ)
def test_read_to_the_last_parameter(name):
    with resources.as_file(CONFIGS / f"{name}_config.json") as path:
        model = cx.load_model(path)
    assert model.n_parameters == int(ROWS[name]["parameters"])
    assert model.default_precision in cx.list_precisions()


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_as_expected(name):
    rejected(lambda: cx.load_model(fields(name)), ROWS[name]["rejected"])


@pytest.mark.parametrize("name", QUANTISATION)
def test_only_the_quantisation_is_rejected(name):
    config = {k: v for k, v in fields(name).items() if k not in ("quantization_config", "expert_dtype")}
    assert cx.load_model(config).n_parameters == int(ROWS[name]["parameters"])


@pytest.mark.parametrize("name", SIDE_FILES)
def test_quantisation_named_in_the_file_with(name, tmp_path):
    (tmp_path / "config.json").write_bytes((CONFIGS / f"{name}_config.json").read_bytes())
    (tmp_path / SIDE_FILE).write_bytes((CONFIGS / f"{name}_{SIDE_FILE}").read_bytes())
    if SIDE_FILES[name] in cx.list_precisions():
        assert cx.load_model(tmp_path).default_precision == SIDE_FILES[name]
    else:
        rejected(lambda: cx.load_model(tmp_path), SIDE_FILES[name])
