"""Inputs of the error report, its tables as text, and the command's rejections."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cheetah_xr.calibration.report import inputs, sections, text
from cheetah_xr.cli import app
from cheetah_xr.cli.validate import errors_text, reject_contradictions
from cheetah_xr.figures.error_report import left_out, parity, save
from cheetah_xr.specs import SpecError

GOOD = "id,mode,efficiency,predicted_s,low_s,high_s\na,aggregated,vllm,0.02,0.01,0.03\nb,prefill,vllm,1,0.5,2\n"
MEASURED = """model,gpu,precision,mode,tp,isl,osl,concurrency,tpot_s,ttft_s,id
llama-3.1-8b,h100-sxm,bf16,aggregated,1,1024,1024,16,0.012,,a
llama-3.1-8b,h100-sxm,bf16,prefill,1,1024,1,1,,0.05,b
"""


def written(tmp_path, content, name="p.csv"):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_predictions_by_id(tmp_path):
    actual = inputs.read_predictions(written(tmp_path, GOOD))
    assert actual.loc["b", ["predicted_s", "low_s", "high_s"]].tolist() == [1.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD.replace("low_s", "lower"), "no column low_s; predictions have id, mode"),
        (GOOD.replace("b,prefill", "a,prefill"), "row 'a': id a: blank, or occurs twice"),
        (GOOD.replace("0.02", "-1"), "row 'a': predicted_s -1: not a positive time in s"),
        (GOOD.replace("0.5,2", "x,2"), "row 'b': low_s x: not a positive time in s"),
        (GOOD.replace("0.5,2", "2,0.5"), "row 'b': high_s 0.5: not a time in s above low_s"),
    ],
)
def test_bad_predictions_are_rejected(tmp_path, content, words):
    with pytest.raises(SpecError) as error:
        inputs.read_predictions(written(tmp_path, content))
    assert words in str(error.value)
    assert "p.csv" in str(error.value)


def table(**columns):
    base = {"id": ["a", "b"], "mode": ["aggregated", "prefill"], "tpot_s": [0.01, np.nan], "ttft_s": [9.0, 2.0]}
    return pd.DataFrame(base | {"elapsed_s": [np.nan, np.nan]} | columns)


def test_every_row_is_judged_by_the_time_of_its_mode(tmp_path):
    actual = inputs.joined(table(), inputs.read_predictions(written(tmp_path, GOOD)))
    assert actual["measured_s"].tolist() == [0.01, 2.0]
    assert actual["predicted_s"].tolist() == [0.02, 1.0]


def test_rows_without_a_prediction_and_strangers_are_rejected(tmp_path):
    predictions = inputs.read_predictions(written(tmp_path, GOOD))
    with pytest.raises(SpecError, match="no prediction of 'c'"):
        inputs.joined(table(id=["a", "c"]), predictions.loc[["a"]])
    with pytest.raises(SpecError, match="id 'b' is no row with a time"):
        inputs.joined(table(ttft_s=[1.0, np.nan]), predictions)


def test_loads_are_ranges():
    actual = sections.load_of(pd.DataFrame({"concurrency": [1, 3, 4, 255, 4096]}))
    assert actual.tolist() == ["1 to 3", "1 to 3", "4 to 15", "64 to 255", "1024 and more"]


def test_intervals_with_constant_widths():
    rows = pd.DataFrame({"predicted_s": np.ones(10), "measured_s": np.exp(np.linspace(-0.45, 0.45, 10))})
    rows = rows.assign(low_s=np.exp(-0.4), high_s=np.exp(0.4))
    fitted = pd.DataFrame({"predicted_s": [1.0, 1.0], "measured_s": np.exp([0.1, -0.1])})
    actual = sections.intervals(rows, fitted)
    assert actual["coverage"].tolist() == pytest.approx([0.8, 0.2, 0.8])
    assert actual["mean half-width"].tolist()[:2] == pytest.approx([0.4, 0.1])


def test_cells():
    shown = {("MAPE", 0.1234): "12.3 %", ("bias", -0.05): "-5.0 %", ("rows", 2405): "2,405", ("ratio", 1.2345): "1.23"}
    shown |= {("met", True): "yes", ("bias", float("nan")): "-", ("this model median", 0.5): "50.0 %"}
    assert {key: text.cell(*key) for key in shown} == shown


def test_markdown_table():
    frame = pd.DataFrame({"MAPE": [0.1]}, index=pd.Index(["a"], name="gpu"))
    assert text.markdown(frame) == "| gpu | MAPE |\n| --- | ---: |\n| a | 10.0 % |"


def test_words_stand_left_and_numbers_right():
    frame = pd.DataFrame({"gpu": ["b"], "H100 MAPE": [0.1]}, index=pd.Index(["a"], name="id"))
    assert text.markdown(frame).splitlines()[1:] == ["| --- | --- | ---: |", "| a | b | 10.0 % |"]


def test_names_of_configurations_do_not_split_cells():
    names = ("model", "gpu", "engine", "precision", "layout", "mode")
    rows = pd.DataFrame([dict(zip(names, "mgeplo", strict=True))] * 3)
    actual = sections.worst(rows.assign(predicted_s=[1.0, 1.2, 2.0], measured_s=1.0))
    assert actual.index.tolist() == ["m g e p l o"]
    assert actual.iloc[0].tolist() == pytest.approx([3, 0.4, 0.2, 1.0])


def test_own_measurements_with_own_predictions(tmp_path):
    measured, predicted = written(tmp_path, MEASURED, "m.csv"), written(tmp_path, GOOD)
    actual = CliRunner().invoke(app, ["validate", "--measurements", str(measured), "--predictions", str(predicted)])
    assert actual.exit_code == 0, actual.exception
    assert "66.7 %" in actual.output  # 0.02 for 0.012 s
    assert "1,900.0 %" not in actual.output
    assert "h100-sxm" in actual.output


def test_own_measurements_with_a_named_set(tmp_path):
    path = str(written(tmp_path, MEASURED))
    actual = CliRunner().invoke(app, ["validate", "--measurements", path, "--efficiency", "ideal"])
    assert actual.exit_code == 0, actual.exception
    assert "coverage" not in actual.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"predictions": "p", "efficiency": "ideal"}, "give --predictions or --efficiency"),
        ({"to": "page.md"}, "--to makes the page of the public measurements"),
        ({"to": "page.md", "predictions": "p", "measurements": "m"}, "--to makes the page"),
        ({"aiconfigurator": "x.csv"}, "--aiconfigurator is for the page"),
    ],
)
def test_contradicting_arguments_are_rejected(given, words):
    options = dict.fromkeys(("predictions", "measurements", "efficiency", "aiconfigurator", "to")) | given
    with pytest.raises(SpecError, match=words):
        reject_contradictions(**options)


def test_errors_of_a_split_are_of_the_held_out_rows():
    rows = pd.DataFrame(
        {
            "mode": "aggregated",
            "model": "m",
            "gpu": "g",
            "engine": "e",
            "precision": "p",
            "concurrency": 4,
            "side": ["fit", "held out"],
            "predicted_s": [1.0, 1.5],
            "measured_s": [1.0, 1.0],
            "low_s": np.nan,
            "high_s": np.nan,
        }
    )
    actual = errors_text(rows)
    assert actual.count("50.0 %") == 3 * 7  # mean, median and bias of seven tables
    assert actual.count(" 0.0 %") == 2


def test_figures_are_small(tmp_path):
    rows = pd.DataFrame({"mode": ["aggregated", "disaggregated"], "gpu": "h100-sxm"})
    rows = rows.assign(measured_s=[0.01, 0.02], predicted_s=[0.02, 0.02])
    frame = pd.DataFrame({"left out": [0.1], "held out": [0.05]}, index=pd.MultiIndex.from_tuples([("a", "b")]))
    save({"parity": parity(rows), "left": left_out(frame, "gpu")}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"parity.png", "left.png"}
    assert all(path.stat().st_size < 150_000 for path in tmp_path.iterdir())
