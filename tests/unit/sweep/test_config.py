"""Sweep files: ranges, the shipped sweeps, and one message for a bad file before anything is written."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.analysis import DERIVED
from cheetah_xr.sweep.config import Range, schema
from cheetah_xr.sweep.runner import make_job
from tests.helpers import DOCS
from tests.helpers.rejection import rejected

SMALL = {
    "title": "Small",
    "question": "Does it run?",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "batch": [1, 2],
    "seq_len": [1024, 2048, 4096],
}


def sizes(sweep):
    return dict(make_job(sweep).grid.sizes)


# ---- ranges

RANGES = {
    "linear": ({"min": 1, "max": 10, "num": 4}, [1, 4, 7, 10], [1.0, 4.0, 7.0, 10.0]),
    "log": ({"min": 1, "max": 8, "num": 4, "spacing": "log"}, [1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0]),
    "whole once": ({"min": 1, "max": 3, "num": 5}, [1, 2, 3], [1.0, 1.5, 2.0, 2.5, 3.0]),
    "one": ({"min": 5, "max": 5, "num": 3}, [5], [5.0]),
}


@pytest.mark.parametrize(("fields", "whole", "real"), RANGES.values(), ids=RANGES)
def test_ranges(fields, whole, real):
    spacing = Range(**fields)
    assert spacing.values(integers=True) == whole
    assert all(isinstance(value, int) for value in spacing.values(integers=True))
    assert spacing.values(integers=False) == pytest.approx(real, rel=1e-12)


def test_a_long_log_range_is_dense_where_it_can_be():
    values = Range(min=1, max=4096, num=300, spacing="log").values(integers=True)
    assert values == sorted(set(values))
    assert values[:9] == list(range(1, 10))
    assert values[-1] == 4096
    assert max(b / a for a, b in pairwise(values[20:])) < 1.08


# ---- sweep files


@pytest.mark.parametrize("name", cx.list_sweeps())
def test_shipped_sweeps_build(name):
    job = make_job(name)
    assert job.sweep.name == name
    assert job.path == Path("outputs") / f"{name}.zarr"
    assert job.sweep.question.endswith("?")
    assert job.grid.n_points > 100_000
    stored = {product.name for product in job.plan.products}
    if job.sweep.best is None:
        assert {"step_time", "status", "bottleneck"} <= stored
        assert job.sweep.headline in DERIVED
    else:
        assert {job.sweep.best.metric, *job.sweep.best.keep} <= stored
        assert job.bytes_on_disk < 4e6
    assert job.sweep.compare in job.grid.coords
    shortest = min(model.max_seq_len for model in job.grid.models.values)
    assert shortest >= np.min(job.grid.coords["seq_len"][1])


def test_axes_of_a_file(write):
    axes = {"gpu": {"catalogue": "all"}, "precision": ["bf16", "fp8"], "batch": {"min": 1, "max": 4, "num": 4}}
    layout = {"layout": {"tp": [1, 2, 8], "dp": [8, 4, 1]}, "phase": ["prefill", "decode"]}
    numbers = {"overrides": {"gpu.hbm_bandwidth": {"min": 1e12, "max": 4e12, "num": 3, "spacing": "log"}}}
    path = write({**SMALL, **axes, **layout, **numbers, "scales": {"gpu.peak_bf16": [0.5, 1]}})
    expected = {"gpu": len(cx.list_gpus()), "precision": 2, "phase": 2, "layout": 3, "batch": 4, "seq_len": 3}
    assert sizes(path) == {**expected, "hbm_bandwidth": 3, "peak_bf16_scale": 2}
    grid = make_job(path).grid
    assert list(grid.coords["hbm_bandwidth"][1]) == pytest.approx([1e12, 2e12, 4e12])
    assert list(grid.coords["n_gpus"][1]) == [8, 8, 8]
    assert cx.load_sweep(path).name == "file"
    assert sizes(cx.load_sweep(path)) == sizes(str(path))


BAD = {
    "unknown key": ({"gpus": "h100-sxm"}, "'gpus'", "precision"),
    "unknown output": ({"outputs": ["step_time", "speed"]}, "outputs", "speed", "max_batch"),
    "derived output": ({"outputs": ["tpot"]}, "outputs", "tpot"),
    "no outputs": ({"outputs": []}, "outputs", "at least one"),
    "unknown headline": ({"headline": "speed"}, "headline", "'speed'", "throughput"),
    "headline of another phase": ({"headline": "ttft"}, "headline", "ttft", "prefill"),
    "headline without its variables": ({"headline": "mfu"}, "headline", "mfu", "peak_compute_time"),
    "best of another phase": (
        {"best": {"maximize": "tps_per_user", "over": ["batch"]}, "phase": ["prefill", "decode"]},
        "best",
        "tps_per_user",
        "decode",
    ),
    "compare": ({"compare": "gpus"}, "compare", "'gpus'", "batch"),
    "layout lengths": ({"layout": {"tp": [1, 2], "dp": [1]}}, "layout", "equal length", "[1]"),
    "layout names": ({"layout": {"tp": [1], "pp": [1]}}, "layout", "pp"),
    "layout empty": ({"layout": {}}, "layout"),
    "layout of nothing": ({"layout": {"tp": []}}, "layout"),
    "layout and tp": ({"layout": {"tp": [1, 2]}, "tp": 4}, "layout", "tp"),
    "range reversed": ({"batch": {"min": 8, "max": 2, "num": 3}}, "batch", "min", "8", "2"),
    "range from 0": ({"batch": {"min": 0, "max": 2, "num": 3}}, "batch", "'min'", "0", "greater than 0"),
    "range without num": ({"batch": {"min": 1, "max": 2}}, "batch", "'num'", "missing"),
    "range of none": ({"batch": {"min": 1, "max": 2, "num": 0}}, "batch", "'num'", "0"),
    "range spacing": ({"seq_len": {"min": 1, "max": 2, "num": 2, "spacing": "cubic"}}, "seq_len", "'cubic'", "'log'"),
    "range unknown key": ({"batch": {"min": 1, "max": 2, "num": 2, "step": 1}}, "batch", "'step'", "spacing"),
    "range beyond integers": ({"batch": {"min": 1, "max": 1e300, "num": 3}}, "batch", "1e+300"),
    "text": ({"batch": "8"}, "batch", "'8'"),
    "nothing": ({"batch": None}, "batch", "None"),
    "bool": ({"batch": [True, 2]}, "batch", "True"),
    "empty list": ({"batch": []}, "batch", "at least one"),
    "twice": ({"batch": [1, 1]}, "batch", "once"),
    "fraction": ({"batch": 1.5}, "batch", "whole", "1.5"),
    "tp 0": ({"tp": [0, 1]}, "tp", "at least 1", "0"),
    "unknown GPU": ({"gpu": ["h100-sxm", "h1000"]}, "gpu", "'h1000'"),
    "catalogue": ({"gpu": {"catalogue": "nvidia"}}, "gpu", "nvidia", "all"),
    "model as number": ({"model": 8}, "model", "8"),
    "phase": ({"phase": "train"}, "phase", "'train'", "prefill", "decode"),
    "option": ({"options": {"small_ops": "all"}}, "options", "small_ops", "'all'", "'memory'"),
    "override": ({"overrides": {"gpu.speed": [1]}}, "overrides", "gpu.speed", "hbm_bandwidth"),
    "override range": ({"overrides": {"gpu.hbm_bandwidth": {"min": 1e12}}}, "gpu.hbm_bandwidth", "'max'"),
    "scale": ({"scales": {"gpu.hbm_bandwidth": [0]}}, "scales", "gpu.hbm_bandwidth", "above 0"),
    "title": ({"title": 5}, "title", "5"),
    "name outside outputs": ({"name": "../../elsewhere"}, "name", "../../elsewhere"),
    "empty name": ({"name": ""}, "name"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_bad_sweep_is_rejected_before_it_runs(case, write, elsewhere):
    change, *words = case
    path = write({**SMALL, **change}, "bad.yaml")
    rejected(lambda: cx.run_sweep(path, progress=False), *words)
    assert sorted(p.name for p in elsewhere.iterdir()) == ["bad.yaml"], "nothing is written"


@pytest.mark.parametrize("key", ["batch", "options", "gpu", "outputs", "layout"])
def test_the_file_is_named(key, write):
    wrong = {"batch": [1, 1], "options": {"fast": 1}, "gpu": "h1000", "outputs": ["speed"], "layout": {"pp": [1]}}
    rejected(lambda: make_job(write({**SMALL, key: wrong[key]}, "bad.yaml")), "bad.yaml", key)


@pytest.mark.parametrize("value", ["8", True, [1, "x"], {"min": "1"}], ids=str)
def test_a_wrong_value_is_one_short_message(value, write):
    message = rejected(lambda: make_job(write({**SMALL, "batch": value}, "bad.yaml")), "bad.yaml", "batch")
    assert "union[" not in message, message
    assert message.count("bad.yaml") <= 2, message


@pytest.mark.parametrize("key", ["title", "question", "model", "gpu", "batch", "seq_len"])
def test_a_missing_key_is_named(key, write):
    path = write({k: v for k, v in SMALL.items() if k != key}, "bad.yaml")
    rejected(lambda: cx.load_sweep(path), "bad.yaml", f"'{key}'", "missing")


CONTENTS = {
    "list": ("- 1\n", "mapping"),
    "empty": ("", "mapping"),
    "not YAML": ("batch: [1, 2\n", "not valid YAML"),
    "not UTF-8": (b"title: \xff\n", "UTF-8"),
    "duplicate key": (json.dumps(SMALL)[:-1] + ', "batch": 4}', "batch"),
    "huge": (b"#" * 5_000_000, "larger than"),
}


@pytest.mark.parametrize(("content", "word"), CONTENTS.values(), ids=CONTENTS)
def test_bad_files(content, word, write):
    rejected(lambda: cx.load_sweep(write(content, "bad.yaml")), "bad.yaml", word)


@pytest.mark.parametrize(
    "source", ["", "no-such-sweep", "folder/no.yaml", "../x", "a" * 5000, 5, None], ids=lambda s: str(s)[:20]
)
def test_bad_sources(source, elsewhere):
    rejected(lambda: cx.load_sweep(source))


def test_a_folder_is_no_sweep(tmp_path):
    rejected(lambda: cx.load_sweep(tmp_path), str(tmp_path))


# ---- the command


def test_the_command_rejects_before_any_sweep_runs(cli, write, elsewhere):
    good, bad = write(SMALL, "good.yaml"), write({**SMALL, "batch": [1, 1]}, "bad.yaml")
    ran = cli("sweep", good, bad)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert not (elsewhere / "outputs").exists()
    assert cli("sweep", good, good, "--store", "x").code == 2
    assert "--workers" in cli("sweep", good, "--workers", 2, "--scheduler", "tcp://x").err
    assert cli("sweep", good, "--workers", 0).code == 2
    assert cli("sweep").code == 2


def test_the_command_answers(cli, write):
    ran = cli("sweep", write({**SMALL, "tp": [1, 3], "compare": "tp"}, "good.yaml"))
    assert ran.code == 0
    assert "tp 2 x batch 2 x seq_len 3" in ran.err
    assert "12 points, 1 block," in ran.err
    assert "status: tp_heads 50.0%, ok 50.0%" in ran.out
    assert "bound by: weights 100.0%" in ran.out
    assert "highest throughput_per_gpu" in ran.out
    assert "batch 2, seq_len 1,024" in ran.out
    ds = cx.open_result("outputs/good.zarr")
    assert ds.sizes == {"tp": 2, "batch": 2, "seq_len": 3}


def test_the_schema_of_the_docs_is_the_schema():
    """Written by ``json.dumps(cheetah_xr.sweep.config.schema(), indent=2, sort_keys=True)``."""
    written = json.loads((DOCS / "reference" / "sweep.schema.json").read_text(encoding="utf-8"))
    assert written == schema()
    assert "name" not in written["required"]


def test_layouts_by_gpu_count(write):
    axes = {"model": ["llama-3.1-8b", "mixtral-8x7b"], "layout": {"n_gpus": [2, 4]}}
    job = make_job(write({k: v for k, v in (SMALL | axes).items() if k != "tp"}, "layouts.yaml"))
    labels = [str(label) for label in job.grid.coords["layout"][1]]
    assert {"tp2-dp1-ep1", "tp1-dp2-ep2", "tp1-dp4-ep4"} <= set(labels)
    assert set(job.grid.coords["n_gpus"][1].tolist()) == {2, 4}


def test_dry_run_writes_nothing(cli, write, elsewhere):
    ran = cli("sweep", write(SMALL, "small.yaml"), "--dry-run")
    assert ran.code == 0
    assert "stored: step_time float32" in ran.out
    assert '"hbm_bandwidth":3350000000000.0' in ran.out
    assert [p.name for p in elsewhere.iterdir()] == ["small.yaml"]


def test_info(cli, write, elsewhere):
    path = cx.run_sweep(write(SMALL, "small.yaml"), progress=False)
    ran = cli("info", path)
    assert ran.code == 0
    for words in (
        "complete",
        "model version",
        "fingerprint",
        "axis batch: 2",
        "variable step_time [s]",
        SMALL["question"],
    ):
        assert words in ran.out, words
    assert cli("info", elsewhere).code == 2


def test_range_with_values_with():
    values = Range(min=1, max=100, num=3, spacing="log", include=[50, 10]).values(integers=True)
    assert values == [1, 10, 50, 100]


def test_block_memory_cuts_smaller_blocks(write):
    long = SMALL | {"batch": {"min": 1, "max": 2000, "num": 2000}, "seq_len": {"min": 1, "max": 9000, "num": 900}}
    default, small = (make_job(write(long | more, "long.yaml")) for more in ({}, {"block_memory_mb": 10}))
    assert len(default.blocks) == 1
    assert len(small.blocks) > 10


WHERE = {
    "unknown": ({"where": ["speed >= 3"]}, "where: speed", "tps_per_user"),
    "another phase": ({"where": ["ttft <= 1"]}, "ttft", "prefill"),
    "not stored": ({"where": ["mfu >= 0.1"]}, "mfu", "peak_compute_time"),
    "beside best": ({"where": ["batch >= 1"], "best": {"maximize": "throughput", "over": ["batch"]}}, "where", "best"),
}


@pytest.mark.parametrize("case", WHERE.values(), ids=WHERE)
def test_conditions_of_the_answer_are_checked_before_the_run(case, write, elsewhere):
    change, *words = case
    rejected(lambda: cx.run_sweep(write(SMALL | change, "bad.yaml"), progress=False), "bad.yaml", *words)
    assert [p.name for p in elsewhere.iterdir()] == ["bad.yaml"]
