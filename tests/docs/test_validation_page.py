"""The page docs/evidence/validation.md shows the errors of the shipped efficiency profiles."""

import importlib.util

import pytest

from cheetah_xr.calibration.report import large_scale, refits
from cheetah_xr.calibration.report.inputs import predicted
from cheetah_xr.calibration.report.statistics import summary
from cheetah_xr.calibration.shipped_profiles import PROFILES, eligible
from cheetah_xr.specs import load_efficiency
from tests.helpers import DOCS

EVIDENCE = DOCS / "evidence"
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="the measurements come with cheetah_xr[validation]"
)


def table_after(line):
    """Rows of the table that follows a line of the page, without its head, as lists of cells."""
    text = (EVIDENCE / "validation.md").read_text(encoding="utf-8")
    assert text.count(line + "\n") == 1, line
    rows = []
    for actual in text.split(line + "\n", 1)[1].lstrip().splitlines():
        if actual.startswith("!["):
            continue
        if not actual.startswith("|") and rows:
            break
        if actual.startswith("|"):
            rows.append([cell.strip() for cell in actual.strip("|").split("|")])
    return rows[2:]


def percent(cell):
    return float(cell.removesuffix(" %"))


def test_large_scale_points_are_those_of_the_shipped_sets():
    actual = large_scale.predict({name: load_efficiency(name) for name in PROFILES}).set_index("id")
    shown = {row[0]: row for row in table_after("## Large-scale points, never fitted")}
    assert set(shown) == set(actual.index)
    for name, row in shown.items():
        # id, gpu, layout, mode, batch, efficiency, measured, predicted, ratio, within, ...
        assert float(row[8]) == pytest.approx(actual.loc[name, "ratio"], abs=0.006)
        assert row[9] == ("yes" if actual.loc[name, "within"] else "no")


@needs_package
def test_errors_are_those_of_the_shipped_sets():
    rows = predicted(eligible())
    actual = summary(rows[rows["side"] == "held out"], ["mode", "engine"])
    shown = {(row[0], row[1]): row[2:] for row in table_after("**By mode and engine**")}
    assert set(shown) == set(actual.index)
    for key, row in shown.items():
        line = actual.loc[key]
        assert int(row[0].replace(",", "")) == line["rows"]
        # Files of sets have four digits of every factor.
        assert percent(row[1]) == pytest.approx(100 * line["MAPE"], abs=0.15)
        assert percent(row[2]) == pytest.approx(100 * line["median"], abs=0.25)


@needs_package
def test_a_small_part_of_the_public_rows_can_be_refitted():
    table = eligible()
    small = table[(table["engine"] == "sglang") & table["model"].isin(["glm-5", "qwen3.5-397b-a17b"])]
    case = refits.Cases(small).case("sglang")
    rows = refits.predict(case.predicted, refits.refit(case.fitted))
    error = summary(rows.assign(low_s=float("nan"), high_s=float("nan")), ["side"])
    assert error.loc["fit", "median"] < 0.1
    assert len(rows) == len(small[small["mode"].isin(["aggregated", "prefill", "static"])])
