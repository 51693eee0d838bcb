"""Calibrations: known parameters are found again, a user's file is read or rejected, the command writes its files."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cheetah_xr as cx
from cheetah_xr.analysis.intervals import multiples
from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration import shipped_profiles as published
from cheetah_xr.calibration.measurements.user_csv import read_measurements
from cheetah_xr.calibration.objective import LOG_RESIDUAL_SCALES, TAIL, Target, polish, search, thinned
from cheetah_xr.calibration.parameters import NAMES, PARAMETERS, fields_of
from cheetah_xr.calibration.pipeline import Effort, calibrate, predict
from cheetah_xr.calibration.predictors import Aggregated, make_problem
from cheetah_xr.calibration.row_table import field_values
from cheetah_xr.cli import app
from tests.helpers.fault_injection import python, wait_for

TRUE = dict(zip(NAMES, np.log([parameter.median for parameter in PARAMETERS]), strict=True)) | {
    "memory_gemm": np.log(0.66),
    "launch_gemm": np.log(9e-6),
    "compute_gemm": np.log(0.58),
}


def synthetic_rows(path: Path, noise: float = 0.0, loads: tuple[int, ...] = (1, 8, 64)) -> Path:
    """A file of measurements that the model itself made with :data:`TRUE`."""
    lines = []
    for model, gpu, precision, tp in (
        ("llama-3.1-8b", "h100-sxm", "bf16", 1),
        ("llama-3.1-70b", "h100-sxm", "fp8-kv8", 4),
        ("qwen3-32b", "b200-sxm", "bf16", 2),
    ):
        for mode, isl, osl, of_mode in (("aggregated", 1024, 512, loads), ("prefill", 4096, 1, (1, 4))):
            for concurrency in of_mode:
                lines.append((model, gpu, precision, mode, tp, isl, osl, concurrency, 1.0, 1.0))
    columns = ["model", "gpu", "precision", "mode", "tp", "isl", "osl", "concurrency", "tpot_s", "ttft_s"]
    pd.DataFrame(lines, columns=columns).to_csv(path, index=False)
    problem = make_problem(read_measurements(path))
    point = np.array([[TRUE[name] for name in NAMES]])
    seconds = problem.seconds(fields_of(point))[:, 0]
    seconds = seconds * np.exp(noise * np.random.default_rng(0).standard_normal(len(seconds)))
    times = pd.Series(seconds, problem.rows.index).sort_index()
    table = pd.read_csv(path)
    table["tpot_s"] = times.where(table["mode"] == "aggregated")
    table["ttft_s"] = times.where(table["mode"] == "prefill")
    table.to_csv(path, index=False)
    return path


def test_known_parameters_are_found_again(tmp_path: Path) -> None:
    rows = read_measurements(synthetic_rows(tmp_path / "made.csv", loads=tuple(range(1, 129))))
    target = Target(make_problem(rows))
    start = np.log([parameter.median for parameter in PARAMETERS])
    before = np.abs(target.errors(start[None])).max()
    best = polish(target, start)
    assert before > 0.2
    assert np.abs(target.errors(best[None])).max() < 0.02
    actual = dict(zip(NAMES, np.exp(best), strict=True))
    assert actual["memory_gemm"] == pytest.approx(0.66, rel=0.03)
    assert actual["compute_gemm"] == pytest.approx(0.58, rel=0.06)


def test_the_search_is_no_worse_than_the_prior_and_repeats(tmp_path: Path) -> None:
    target = Target(make_problem(read_measurements(synthetic_rows(tmp_path / "made.csv"))))
    start = np.append(np.log([parameter.median for parameter in PARAMETERS]), LOG_RESIDUAL_SCALES)
    actual = search(target, 30, seed=3)
    assert target.log_probability(np.append(actual, LOG_RESIDUAL_SCALES))[0] >= target.log_probability(start)[0]
    np.testing.assert_array_equal(actual, search(target, 30, seed=3))


def test_log_likelihood_hand_computed(tmp_path: Path) -> None:
    target = Target(make_problem(read_measurements(synthetic_rows(tmp_path / "made.csv")).head(2)))
    point = np.log([[parameter.median for parameter in PARAMETERS]])
    error = target.errors(point)[:, 0]
    density = [[-2.0 * np.log(1 + (e / scale) ** 2 / 3) - np.log(scale) for e in error] for scale in (0.1, 0.2)]
    assert TAIL == 3
    dense = replace(target, problem=replace(target.problem, kinds=np.array([0, 0])))
    scales = np.log([[0.1, 0.2, 0.4]])
    assert dense.log_likelihood(point, scales)[0] == pytest.approx(sum(density[0]))
    mixed = replace(target, problem=replace(target.problem, kinds=np.array([0, 1])))
    assert mixed.log_likelihood(point, scales)[0] == pytest.approx(density[0][0] + density[1][1])
    # half the time of prompts: half way from 0.1 to 0.4 in logarithms is 0.2
    half = replace(dense, prefill_fraction=np.array([0.5, 0.0]))
    assert half.log_likelihood(point, scales)[0] == pytest.approx(density[1][0] + density[0][1])


def test_the_fraction_of_prompts(tmp_path: Path) -> None:
    """Of a served token and of a batch from start to end what is no decoding; of pools and of a prefill alone none."""
    path = tmp_path / "every.csv"
    one = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "precision": "bf16", "isl": 1000, "osl": 100, "concurrency": 16}
    layout = {f"{pool}{name}": 1 for pool in ("", "prefill_", "decode_") for name in ("tp", "dp", "ep", "workers")}
    times = {"aggregated": "tpot_s", "disaggregated": "tpot_s", "prefill": "ttft_s", "static": "elapsed_s"}
    lines = [{**one, **layout, "mode": mode, time: 1.0} for mode, time in times.items()]
    pd.DataFrame(lines).drop(columns="workers").to_csv(path, index=False)
    problem = make_problem(read_measurements(path))
    values = fields_of(np.log([[parameter.median for parameter in PARAMETERS]]))
    share = dict(zip(problem.rows["mode"], problem.prefill_fraction(values)[:, 0], strict=True))
    seconds = dict(zip(problem.rows["mode"], problem.seconds(values)[:, 0], strict=True))
    assert share["disaggregated"] == share["prefill"] == 0
    assert share["static"] == pytest.approx(seconds["prefill"] / seconds["static"], rel=1e-9)
    served = problem.parts[0]
    assert isinstance(served, Aggregated)
    step = served.decode.seconds(values)[0, 0]
    assert share["aggregated"] == pytest.approx(1 - step / seconds["aggregated"], rel=1e-12)
    assert 0.05 < share["aggregated"] < 0.9


def test_a_calibration_repeats_from_its_seed_and_covers(tmp_path: Path) -> None:
    rows = read_measurements(synthetic_rows(tmp_path / "made.csv", noise=0.05))
    effort = Effort(trials=12, steps=60)
    one, two = (calibrate(rows, "mine", effort, seed=7) for _ in range(2))
    assert one.best == two.best
    pd.testing.assert_frame_equal(one.draws, two.draws)
    assert list(one.draws) == [*NAMES, "residual_scale_dense", "residual_scale_moe", "residual_scale_prefill"]
    predicted = predict(rows, one)
    assert (predicted["low_s"] < predicted["predicted_s"]).all()
    inside = predicted["measured_s"].between(predicted["low_s"], predicted["high_s"])
    assert inside.mean() >= 0.8
    assert set(one.checks) == {"r_hat", "effective_samples"}


@pytest.mark.slow
def test_a_shipped_set_is_fitted_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short calibration of the published rows of vLLM: files, progress, and the same numbers from the same seed."""
    table = validation.published_table()
    rows = table[(table["rule"] == "") & ~table["prediction"] & (table["engine"] == "vllm")]
    monkeypatch.setattr(published, "eligible", lambda: rows.assign(side="fit"))
    reported: list[tuple[str, int, int]] = []
    actual = [
        published.calibrate_public(["vllm"], Effort(trials=10, steps=20), 3, tmp_path / name, tmp_path / name, say)
        for name, say in (("a", lambda *news: reported.append(news)), ("b", None))
    ]
    assert actual[0]["vllm"].best == actual[1]["vllm"].best
    assert {stage for stage, _, _ in reported} == {"vllm: search", "vllm: sample"}
    assert reported[-1] == ("vllm: sample", 40, 40)
    files = ("efficiencies/vllm.yaml", "posteriors/vllm.csv", "vllm.nc", "vllm-diagnostics.csv", "predictions.csv")
    assert all((tmp_path / "a" / file).is_file() for file in files)
    assert cx.load_efficiency(tmp_path / "a" / files[0]).tau_layer_prefill > 0
    assert cx.load_posterior(tmp_path / "a" / files[1]).sizes["draw"] == 256
    predictions = pd.read_csv(tmp_path / "a" / files[-1])
    assert (predictions["low_s"] < predictions["high_s"]).all()
    assert len(predictions) == len(rows)


FOREVER = """
    import multiprocessing, sys
    from pathlib import Path
    from cheetah_xr.calibration import measurements as validation
    from cheetah_xr.calibration import shipped_profiles as published
    from cheetah_xr.calibration.pipeline import Effort

    def say(stage, done, total):
        print(stage, *(child.pid for child in multiprocessing.active_children()), flush=True)

    table = validation.published_table()
    rows = table[(table["rule"] == "") & ~table["prediction"] & (table["engine"] == "vllm")].assign(side="fit")
    published.eligible = lambda: rows
    published.calibrate_public(["vllm"], Effort(10, 10**5), 0, Path(sys.argv[1]), Path(sys.argv[1]), say)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.slow
def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    running = python(FOREVER, tmp_path)
    assert running.stdout is not None
    while not (line := running.stdout.readline()).startswith("vllm: sample"):
        assert line, running.communicate()[1]
    workers = [int(pid) for pid in line.split()[2:]]
    assert workers
    running.kill()
    try:
        wait_for(lambda: not any(map(is_alive, workers)), "workers end", seconds=60)
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
        running.communicate()
    assert not list(tmp_path.rglob("*.yaml"))


def is_alive(pid: int) -> bool:
    """Whether a process is there; one that has ended and is not yet reaped is not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def test_rows_of_one_configuration_are_thinned_evenly() -> None:
    rows = pd.DataFrame({"concurrency": range(1, 101), "isl": 1, "osl": 1, "id": [str(n) for n in range(100)]})
    kept = thinned(rows, pd.Series("a", rows.index), most=4)
    assert kept["concurrency"].tolist() == [1, 34, 67, 100]


def test_multiples_are_equally_probable_and_symmetric() -> None:
    actual = multiples(4, TAIL)
    # A Student variable of 3 degrees of freedom is below 0.34922 with probability 5/8 and below 1.4226 with 7/8.
    assert actual == pytest.approx([-1.42263, -0.34922, 0.34922, 1.42263], abs=1e-4)


def test_static_batches_published_one_by_one_are_predicted() -> None:
    table = validation.published_table()
    rows = table[(table["rule"] == "") & (table["mode"] == "static")]
    problem = make_problem(rows)
    error = Target(problem).errors(np.log([[parameter.median for parameter in PARAMETERS]]))[:, 0]
    assert len(error) == 275
    assert np.median(np.abs(error)) < 0.3


BAD = {
    "mode": ("aggregated", "served", "row 2: mode 'served'; allowed are aggregated, disaggregated, prefill, static"),
    "model": ("llama-3.1-8b", "llama-9", "row 2: model: "),
    "tp": (",1,1024", ",1.5,1024", "row 2: tp 1.5: expected a whole number of at least 1"),
    "concurrency": (",512,1,", ",512,0,", "row 2: concurrency 0: expected a whole number of at least 1"),
}


@pytest.mark.parametrize("key", BAD)
def test_bad_rows_are_named(tmp_path: Path, key: str) -> None:
    old, new, message = BAD[key]
    path = synthetic_rows(tmp_path / "made.csv")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(cx.SpecError, match=message):
        read_measurements(path)


@pytest.mark.parametrize(("value", "shown"), [("-1", "-1"), ("0", "0"), ("inf", "inf"), ("wide", "'wide'")])
def test_a_bad_width_of_the_cache_is_named(tmp_path: Path, value: str, shown: str) -> None:
    path = synthetic_rows(tmp_path / "made.csv")
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},kv_bytes", f"{rows[0]},", f"{rows[1]},{value}"]))
    with pytest.raises(cx.SpecError, match=rf"row 3: kv_bytes {re.escape(shown)}[^:]*: expected a number above 0"):
        read_measurements(path)
    path.write_text("\n".join([f"{header},kv_bytes", f"{rows[0]},", f"{rows[1]},1"]))
    assert read_measurements(path)["kv_bytes"].tolist() == [2.0, 1.0]


def test_a_missing_time_and_unknown_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("model,gpu,precision,mode,tp,isl,osl,concurrency\nllama-3.1-8b,h100-sxm,bf16,prefill,1,10,1,1\n")
    with pytest.raises(cx.SpecError, match=r"row 2: ttft_s nan: expected seconds above 0"):
        read_measurements(path)
    path.write_text("model,gpu,tpott_s\n")
    with pytest.raises(cx.SpecError, match=r"no column precision, mode, .*unknown column tpott_s"):
        read_measurements(path)
    with pytest.raises(cx.SpecError, match="cannot be read"):
        read_measurements(tmp_path / "none.csv")


def test_the_command_writes_a_set_that_can_be_used(tmp_path: Path) -> None:
    path = synthetic_rows(tmp_path / "made.csv", noise=0.03)
    argv = ["calibrate", str(path), "--name", "mine", "--trials", "12", "--steps", "40", "--to", str(tmp_path / "out")]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.output
    assert "memory_gemm" in result.output
    efficiency = cx.load_efficiency(tmp_path / "out" / "mine.yaml")
    assert 0.5 < efficiency.memory_dense_mlp < 0.75
    assert efficiency.link_all_reduce == 0.6
    assert len(pd.read_csv(tmp_path / "out" / "mine.csv")) == 256


@pytest.mark.parametrize("argv", [[], ["mine.csv", "--public"]])
def test_the_command_wants_one_source(argv: list[str]) -> None:
    result = CliRunner().invoke(app, ["calibrate", *argv])
    assert result.exit_code != 0
    assert "either a CSV of measurements or --public" in str(result.exception)


@pytest.mark.parametrize(("engine", "prefill", "share"), [("vllm", "mixed", 0.9), ("sglang", "separate", 1.0)])
def test_fits_and_served_predictions_are_the_same_model(
    tmp_path: Path, engine: str, prefill: str, share: float
) -> None:
    """Up to the LM head of the prompts in a mixed batch, and the rounding of lengths."""
    path = tmp_path / "one.csv"
    path.write_text(
        "model,gpu,precision,mode,tp,isl,osl,concurrency,tpot_s,engine,length_fraction\n"
        f"llama-3.1-70b,h100-sxm,fp8-kv8,aggregated,4,2000,500,48,0.1,{engine},{share}\n"
    )
    problem = make_problem(read_measurements(path))
    fitted = problem.seconds(field_values(cx.load_efficiency("vllm")))[0, 0]
    ds = cx.serve(
        "llama-3.1-70b",
        "h100-sxm",
        "fp8-kv8",
        concurrency=48,
        isl=int(2000 * share),
        osl=int(500 * share),
        tp=4,
        prefill=prefill,
        lengths="fixed" if share == 1 else "random",
        efficiency="vllm",
    )
    assert fitted == pytest.approx(float(ds["tpot"]), rel=5e-3)
