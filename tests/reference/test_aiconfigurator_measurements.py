"""The public measurements of aiconfigurator-core: what every rule finds in them, and what holds for the rows that stay.

Install the extra "validation" to run this.
"""

import re
from importlib import metadata

import numpy as np
import pytest

from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration.measurements import silicon, status
from tests.helpers import DOCS

VERSION = "0.12.0"
package = pytest.importorskip("aiconfigurator_core", reason="needs the extra validation")
if metadata.version("aiconfigurator-core") != VERSION:
    pytest.skip(f"written for aiconfigurator-core {VERSION}", allow_module_level=True)

ROWS = 5221
COUNTED = {
    "r1_named_v3": (490, 490),
    "blank_dp": (19, 19),
    "squared_degrees": (329, 184),
    "squared_vllm": (97, 48),
    "unlabelled_ep": (54, 36),
    "unknown_model": (0, 0),
    "unknown_gpu": (0, 0),
    "copy": (1441, 0),
    "unknown_precision": (5, 0),
    "no_concurrency": (19, 0),
    "no_length": (0, 0),
    "ambiguous_concurrency": (24, 0),
    "no_workers": (680, 0),
    "pools_as_tp": (55, 0),
    "either_attention": (24, 0),
    "contradicting_degrees": (0, 0),
    "stalled": (0, 0),
    "draft_tokens": (173, 0),
    "invalid_layout": (0, 0),
    "ttft_queueing": (5204, 2783),
    "llama_8b_fp8_h200": (67, 67),
    "falls_with_load": (5, 5),
    "repeats_differ": (4, 4),
}
"""Rows that name each rule, and how many of them are eligible."""

DOCUMENT = DOCS / "evidence" / "measurements.md"


@pytest.fixture(scope="module")
def table():
    return validation.silicon_table()


@pytest.fixture(scope="module")
def eligible(table):
    return table[table["rule"] == ""]


@pytest.fixture(scope="module")
def read():
    return silicon.harmonise(silicon.read())


def test_every_row_is_there_and_counted(table):
    actual = validation.counts(table)
    assert {name: (row["rows"], row["eligible"]) for name, row in actual.iterrows()} == COUNTED
    excluded = actual[actual["kind"] == "exclusion"]["rows"].sum()
    assert len(table) == ROWS
    assert (table["rule"] == "").sum() + excluded == ROWS
    assert (table["rule"] == "").sum() == 2800


def test_the_document_has_the_counts():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:repair|exclusion|ttft|report) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    assert {name: tuple(int(n.replace(",", "")) for n in both) for name, *both in rows} == COUNTED


def test_eligible_rows_are_complete_and_accepted_by_the_engine(eligible):
    assert set(eligible["status"]) <= {"ok", "infeasible_memory"}
    needed = ["model", "gpu", "engine", "precision", "kv_bytes", "isl", "osl", "concurrency", "n_gpus", "layout"]
    assert eligible[[*needed, "ttft_s", "tpot_s"]].notna().all().all()
    assert (eligible[["ttft_s", "tpot_s"]] > 0).all().all()
    assert (eligible["drafts"] == "none").all()


def test_eligible_rows_by_kind(eligible):
    assert eligible["mode"].value_counts().to_dict() == {"aggregated": 2533, "disaggregated": 267}
    assert eligible["engine"].value_counts().to_dict() == {"trtllm": 1155, "vllm": 1070, "sglang": 575}


def test_every_number_of_the_file_stays(table, read):
    assert table["id"].tolist() == read["id"].tolist()
    np.testing.assert_array_equal(table["tpot_s"], read["tpot_s"])
    np.testing.assert_array_equal(table["ttft_s"], read["ttft_s"])


def test_copies_of_a_measurement_agree_once_repaired(table, read):
    """The exports label degrees differently; after the repairs all of them say the same."""
    single = table[table["mode"] == "aggregated"]
    groups = single.groupby(read["measurement"].to_numpy()[single.index])
    for name in ("model", "precision", "kv_bytes", "layout", "concurrency", "drafts"):
        assert (groups[name].nunique(dropna=False) == 1).all(), name


def test_the_march_export_labels_every_degree_as_it_is(table):
    degrees = table[table["repairs"].str.contains("squared")]
    assert set(degrees["collection"]) == {silicon.DATABASE, "inferencex-2026-04-06"}


def test_the_database_holds_the_runs_without_draft_tokens(table, read):
    """Where other exports have two values for one setup and day, the database has the slower one."""
    keys = ["gpu", "engine", "precision", "mode", "isl", "osl", "concurrency", "date"]
    rows = table[(table["model"] == "deepseek-r1") & table["collection"].isin(silicon.INFERENCEX)]
    label = read["measurement"].to_numpy()[rows.index]
    held = (rows["collection"] == silicon.DATABASE).groupby(label).transform("any")
    once = rows.assign(held=held)[~rows.index.to_series().isin(rows.index[rows["rule"] == "copy"])]
    pairs = once[~once["held"]].merge(once[once["held"]], on=keys, suffixes=("", "_held"))
    same = (pairs["mode"] == "disaggregated") | (pairs["layout"] == pairs["layout_held"])
    slower = pairs[same]["tpot_s_held"] > pairs[same]["tpot_s"]
    assert (slower.sum(), len(slower)) == (101, 104)


def test_rows_that_beat_the_ideal_step(eligible):
    """A layout labelled too large would show here. What does is requests that wait: fewer decode than are in flight."""
    beaten, explained = [], 0
    for pool in ("", "decode"):
        for rows in status.groups(eligible, pool):
            context = ((rows["isl"] + rows["osl"] / 2) * rows["length_fraction"]).round()
            answer = (rows["osl"] * rows["length_fraction"] - 1) * rows["tpot_s"]
            workers = rows["decode_workers"] if pool else 1
            for share, actual in ((1.0, beaten), (answer / (answer + rows["ttft_s"]), None)):
                batch = (rows["concurrency"] * share / workers).round().clip(lower=1)
                ds = status.evaluate_rows(rows, "decode", status.degrees_of(pool), batch, context, ["step_time"])
                beats = rows["tpot_s"].to_numpy() < ds["step_time"].to_numpy()
                if actual is None:
                    explained += int(beats.sum())
                else:
                    actual += rows["id"][beats].tolist()
    assert len(beaten) == 11
    assert explained == 3
