"""Parameter counts of the catalogue, to the last unit, against the published checkpoints."""

import csv

import pytest

import cheetah_xr as cx
from tests.helpers import DATA

TABLE = DATA / "parameters.csv"
ROWS = {row["name"]: row for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines())}
PARAMETER_COUNTS = {"8b": 8e9, "32b": 32e9, "70b": 70e9}


def test_the_table_has_every_model():
    assert {*ROWS, *PARAMETER_COUNTS} == set(cx.list_models())
    assert len(ROWS) >= 77


@pytest.mark.parametrize("name", ROWS)
def test_counts_to_the_last_unit(name):
    model, row = cx.load_model(name), ROWS[name]
    counted = (model.n_parameters, model.n_parameters_active, model.n_parameters_mtp, model.vision_parameters)
    assert counted == tuple(int(row[key]) for key in ("main", "active", "mtp", "vision"))


@pytest.mark.parametrize("name", ROWS)
def test_checkpoints_hold_what_is_counted_and_what_is_explained(name):
    row = ROWS[name]
    if not row["safetensors_total"]:
        assert not row["difference"]
        return
    difference = int(row["difference"])
    assert cx.load_model(name).n_parameters_checkpoint + difference == int(row["safetensors_total"])
    assert bool(difference) == bool(row["reason"])


@pytest.mark.parametrize("name", PARAMETER_COUNTS)
def test_parameter_count_models_are_their_count(name):
    model = cx.load_model(name)
    assert model.n_parameters == model.n_parameters_active == PARAMETER_COUNTS[name]


def test_status_says_how_the_config_was_seen():
    seen = {name: cx.load_model(name).status for name in ROWS}
    assert seen["llama-3.1-8b"] == "full"
    assert seen["glm-4.5"] == "reconstructed"
    assert seen["mimo-v2-flash"] == "partial"
    plain = cx.load_model("glm-4.5")
    assert plain.canonical() == plain.model_copy(update={"status": "full"}).canonical()


ONE_FILE = """
name: acme-moe
hidden: 2048
vocab: 32000
n_heads: 16
n_kv_heads: 4
head_dim: 128
n_experts: 16
top_k: 2
expert_intermediate: 1024
intermediate: 8192
groups:
  - {count: 1, attention: gqa, mlp: dense}
  - {count: 15, attention: gqa, mlp: moe}
"""


def test_a_model_of_a_known_family_costs_one_file(write):
    path = write(ONE_FILE, "acme-moe.yaml")
    model = cx.load_model(path)
    attention = 2048 * 128 * (16 + 4 + 4 + 16) + 2 * 2048
    experts = 16 * 3 * 2048 * 1024 + 2048 * 16
    assert model.n_parameters == 2 * 32000 * 2048 + 2048 + 16 * attention + 3 * 2048 * 8192 + 15 * experts
    ds = cx.evaluate(path, "h100-sxm", batch=[1, 32], seq_len=1024, efficiency="ideal")
    assert (ds.step_time > 0).all()
    assert ds.sizes == {"batch": 2}
