"""The command line: right numbers, one message and exit code 2 for bad input, never a traceback."""

import re
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

import cheetah_xr as cx
from cheetah_xr.cli import app
from tests.helpers.printed import shown

ANCHOR = ("--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--batch", "32", "--seq-len", "2048")
IDEAL = (*ANCHOR, "--precision", "bf16", "--efficiency", "ideal")


def without(arguments, *names):
    """Arguments less some options and their values."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    return [word for pair in pairs if pair[0] not in names for word in pair]


# ---- estimate


def test_estimate_prints_the_anchor(cli):
    ran = cli("estimate", *IDEAL)
    assert (ran.code, ran.err) == (0, "")
    assert shown(ran.out, "step_time") == pytest.approx(12.367249, abs=0.005)
    parts = ("compute", "weights", "kv", "activations", "communication", "overhead")
    assert sum(shown(ran.out, part) for part in parts) == pytest.approx(12.367249, abs=5e-4)
    kernels = ("attn_proj", "attn_core", "dense_mlp", "embedding", "lm_head", "collectives")
    assert sum(shown(ran.out, kernel) for kernel in kernels) == pytest.approx(12.367249, abs=4e-3)
    assert shown(ran.out, "max_batch") == 248
    assert shown(ran.out, "weight_bytes") == pytest.approx(35.276, abs=0.01)
    assert shown(ran.out, "throughput") == pytest.approx(32 / 12.367249e-3, abs=1)
    for word in ("llama-3.1-70b", "h100-sxm", "bf16", "ideal", "decode", "ok", "weights"):
        assert word in ran.out


def test_estimate_of_a_prefill(cli):
    ran = cli("estimate", *without(IDEAL, "--batch"), "--batch", 1, "--phase", "prefill")
    assert shown(ran.out, "ttft") == pytest.approx(90.297596, abs=0.01)
    assert "tpot" not in ran.out


def test_estimate_with_options(cli):
    ran = cli("estimate", *IDEAL, "-o", "include=[layers]", "--option", "activation_traffic=none")
    options = cx.Options(include=("layers",), activation_traffic="none")
    ds = cx.evaluate(
        "llama-3.1-70b", "h100-sxm", tp=4, batch=32, seq_len=2048, efficiency="ideal", options=options, dtype="float64"
    )
    assert shown(ran.out, "step_time") == pytest.approx(float(ds.step_time) * 1e3, rel=5e-4)
    assert "lm_head" not in ran.out
    assert float(ds.step_time) < 12.2e-3


def test_estimate_of_models_without_an_architecture_or_with_experts(cli):
    count_model = cli("estimate", "--model", "8b", "--gpu", "h100-sxm", "--efficiency", "ideal")
    assert shown(count_model.out, "step_time") == pytest.approx(16 / 3.35, abs=0.01)
    experts = cli("estimate", "--model", "mixtral-8x7b", "--gpu", "h100-sxm", "--dp", 2, "--ep", 2, "--batch", 2)
    assert (count_model.code, experts.code) == (0, 0)
    assert shown(experts.out, "routed_experts") > 0


def test_estimate_of_files(cli, write):
    gpu = write("memory_gb: 80\nhbm_bandwidth: 3.35e12\npeak_bf16: 989.4e12\nlink_gb_s: 450\nlink_domain: 8\n")
    ran = cli("estimate", *without(IDEAL, "--gpu"), "--gpu", gpu)
    assert shown(ran.out, "step_time") == pytest.approx(12.367249, abs=0.005)
    assert re.search(r"cost_per_million_tokens\s+unknown", ran.out)


def test_a_clipped_batch_runs_with_a_warning(cli):
    with pytest.warns(UserWarning, match="max_batch"):
        ran = cli("estimate", *without(IDEAL, "--batch"), "--batch", 500, "-o", "on_infeasible=clip")
    assert re.search(r"status\s+clipped", ran.out)
    at_most = cx.evaluate("llama-3.1-70b", "h100-sxm", tp=4, batch=248, seq_len=2048, efficiency="ideal")
    assert shown(ran.out, "step_time") == pytest.approx(float(at_most.step_time) * 1e3, rel=5e-4)


# ---- errors of estimate

BAD = {
    "batch 0": (["--batch", 0], "workload_below_one"),
    "batch -5": (["--batch", -5], "workload_below_one"),
    "seq 0": (["--seq-len", 0], "workload_below_one"),
    "tp 0": (["--tp", 0], "tp", "at least 1"),
    "tp 3": (["--tp", 3], "tp_heads", "1, 2, 4, 8, 16, 32, 64"),
    "unknown GPU": (["--gpu", "h1000"], "'h1000'", "h100-sxm"),
    "unknown model": (["--model", "gpt-5"], "'gpt-5'", "gpt-oss-20b"),
    "unknown precision": (["--precision", "fp9"], "'fp9'", "fp8"),
    "unknown efficiency": (["--efficiency", "best"], "'best'", "ideal"),
    "file is missing": (["--gpu", "folder/gpu.yaml"], "folder/gpu.yaml"),
    "empty name": (["--gpu", ""], "gpu"),
    "long name": (["--gpu", "a" * 5000], "gpu"),
    "beyond the maximum": (["--seq-len", 131_073], "seq_beyond_max", "131,072"),
    "does not fit": (["--tp", 1], "infeasible_memory", "GB short", "max_batch is 0", "smallest tp that fits is 4"),
    "cache does not fit": (
        ["--batch", 249],
        "infeasible_memory",
        "0.08 GB short",
        "max_batch is 248",
        "that fits is 8",
    ),
    "ep on a dense model": (["--ep", 2], "ep_dense"),
    "ep 3": (["--model", "mixtral-8x7b", "--ep", 3], "ep_layout", "valid ep", "1, 2, 4"),
    "no peak": (["--gpu", "a100-sxm-80gb", "--precision", "fp8"], "no_peak"),
    "option without value": (["-o", "causal"], "'causal'", "NAME=VALUE"),
    "option without name": (["-o", "=3"], "'=3'", "NAME=VALUE"),
    "option unknown": (["-o", "fast=true"], "'fast'", "granularity"),
    "option value": (["-o", "small_ops=all"], "small_ops", "'all'", "'memory'"),
    "option type": (["-o", "causal=no"], "causal", "'no'", "boolean"),
    "option not YAML": (["-o", "include=[layers"], "include=[layers"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_bad_estimate_is_one_message(case, cli):
    extra, *words = case
    ran = cli("estimate", *without(ANCHOR, *extra[::2]), *extra)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1, "one line"
    missing = [word for word in words if word not in ran.err]
    assert not missing, f"{missing} not in {ran.err!r}"


def test_no_advice_is_empty(cli):
    ran = cli("estimate", *ANCHOR, "-o", "dense_tp=3")
    assert not re.search(r"valid \w+: *$", ran.err), ran.err


def test_heads_decide_the_valid_tp(cli, write):
    fields = {"hidden": 128, "vocab": 1024, "intermediate": 28 * 64, "head_dim": 64, "n_heads": 28, "n_kv_heads": 4}
    model = write({**fields, "groups": [{"count": 1, "attention": "gqa", "mlp": "dense"}]}, "model.yaml")
    for tp in (3, 7, 14):
        ran = cli("estimate", "--model", model, "--gpu", "h100-sxm", "--tp", tp)
        assert (ran.code, ran.err.strip().endswith("valid tp: 1, 2, 4, 28")) == (2, True), ran.err


def test_deepseek_says_how_much_is_missing(cli):
    ran = cli("estimate", "--model", "deepseek-v3", "--gpu", "h100-sxm", "--precision", "fp8", "--tp", 8)
    assert ran.code == 2
    missing = 85.117 + 2048 * 70_272e-9 - 0.9 * 85.520809984
    assert float(re.search(r"([\d.]+) GB short", ran.err)[1]) == pytest.approx(missing, abs=0.006)


@pytest.mark.parametrize(("option", "value"), [("--tp", "eight"), ("--batch", "nan"), ("--phase", "train")])
def test_what_the_parser_rejects(option, value, cli):
    ran = cli("estimate", *without(ANCHOR, option), option, value)
    assert (ran.code, ran.out) == (2, "")
    assert option in ran.err
    assert "Traceback" not in ran.err


# ---- the other commands


@pytest.mark.parametrize("kind", ["models", "gpus", "precisions", "efficiencies", "sweeps"])
def test_list(kind, cli):
    ran = cli("list", kind)
    assert (ran.code, ran.err) == (0, "")
    names = [line.split()[0] for line in ran.out.splitlines()[1:] if line.strip()]
    assert names == getattr(cx, f"list_{kind}")()


def test_list_shows_the_numbers(cli):
    gpus = cli("list", "gpus").out
    assert re.search(r"h100-sxm\s+85\.521\s+3,350\s+989\.4\s+1,978\.9\s+-\s+450\s+8\s+50\s+700\s", gpus)
    models = cli("list", "models").out
    assert re.search(r"deepseek-v3 \s+671\.03\s+37\.552\s+70\.272\s+575\.67\s+163,840\s+fp8\s+61 mla", models)
    assert re.search(r"gemma-3-27b .* 81\.92\s+1,107\.3 .* 52 gqa w1024, 10 gqa", models)
    assert re.search(r"qwen3-next-80b-a3b .* 24\.576\s+278\.59 .* 36 deltanet, 12 gqa", models)


def test_memory_is_explained(cli):
    ran = cli("estimate", "--model", "qwen3-next-80b-a3b", "--gpu", "h200-sxm", "--tp", 2, "--explain-memory")
    assert ran.code == 0
    assert re.search(r"recurrent state\s+36\s+0\.039\s+0\.036\s+38\.63 MB whatever the length", ran.out)
    assert re.search(r"KV cache\s+12\s+0\.025\s+0\.023\s+12\.29 kB per token", ran.out)
    assert re.search(r"routed experts\s+\d", ran.out)
    assert "does not grow" in ran.out
    short = cli("estimate", "--model", "deepseek-v3", "--gpu", "h200-sxm", "--tp", 4, "--explain-memory")
    assert short.code == 2
    assert "The weights do not fit" in short.out


def test_estimates_take_the_precision_of_the_checkpoint(cli):
    assert "fp8" in cli("estimate", "--model", "deepseek-v3", "--gpu", "h200-sxm", "--tp", 8, "--ep", 8).out
    assert re.search(r"mixtral-8x7b\s+46\.703\s+12\.88\s+131\.07", cli("list", "models").out)
    assert cli("list", "clouds").code == 2


def test_version_help_and_no_command(cli):
    assert cli("--version").out == f"cheetah-xr {cx.__version__}\n"
    for ran in (cli(), cli("--help")):
        assert "estimate" in ran.out + ran.err
    assert cli("--help").code == 0
    assert cli("fly").code == 2
    runner = CliRunner().invoke(app, ["estimate", "--help"])
    assert runner.exit_code == 0
    assert "Accounting option" in runner.output


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples_that_parse(name, cli):
    printed = re.sub(r"\s+", " ", cli(name, "--help").out)
    examples = re.findall(r"^Example: `cheetah-xr (.+)`$", COMMANDS[name].help, re.MULTILINE)
    assert examples
    for example in examples:
        first, *words = example.split()
        assert first == name
        assert f"Example: cheetah-xr {example}" in printed
        COMMANDS[name].make_context(name, words)


def test_a_fit_of_one_csv_has_one_name(cli):
    pytest.importorskip("emcee")
    ran = cli("calibrate", "mine.csv", "--name", "a", "--name", "b")
    assert (ran.code, ran.out) == (2, "")
    assert "--name a --name b: a CSV gives one efficiency profile" in ran.err


def test_verbose_logs(cli, write):
    axes = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "batch": [1, 2], "seq_len": 1024}
    path = write({"title": "Small", "question": "Is it logged?", **axes}, "small.yaml")
    quiet, loud = cli("sweep", path, "--store", "a.zarr"), cli("-v", "sweep", path, "--store", "b.zarr")
    assert "0 of 1 blocks are finished" in loud.err
    assert "to do" not in quiet.err
    for ran in (quiet, loud):
        assert ran.code == 0
        assert "2 points in " in ran.out
        assert "Is it logged?" in ran.out
        assert "status: ok 100.0%" in ran.out


# ---- as a process of its own


def process(*arguments, cwd):
    command = [sys.executable, "-W", "error", "-m", "cheetah_xr", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_as_a_process(tmp_path):
    good, bad = process("estimate", *IDEAL, cwd=tmp_path), process("estimate", *IDEAL, "--batch", "0", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert shown(good.stdout, "step_time") == pytest.approx(12.367249, abs=0.005)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: ")
    assert "Traceback" not in bad.stderr
    assert not list(tmp_path.iterdir()), "nothing is written"


REJECTED_DRAFTERS = {
    "too short": (("-o", "drafter=qwen3-0.6b", "--seq-len", 100_000), "drafter qwen3-0.6b", "seq_beyond_max"),
    "heads": (("-o", "drafter=opt-125m"), "drafter opt-125m", "tp_heads"),
    "unknown": (("-o", "drafter=nonsense"), "free, mtp or a model", "'nonsense'"),
    "no module": (("-o", "drafter=mtp"), "llama-3.1-70b has none", "free or a model"),
}


@pytest.mark.parametrize("case", REJECTED_DRAFTERS)
def test_rejections_name_the_drafter(case, cli):
    arguments, *words = REJECTED_DRAFTERS[case]
    ran = cli("estimate", "--model", "llama-3.1-70b", "--gpu", "h200-sxm", "--tp", 8, *arguments)
    assert ran.code == 2
    assert all(word in ran.err for word in words), ran.err


def test_what_is_not_known_of_an_accelerator_is_named(cli):
    ran = cli("estimate", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--precision", "nvfp4")
    assert "h100-sxm has no peak for fp4; it has bf16, fp16, fp8, int8" in ran.err
    hub = cli("estimate", "--model", "Qwen/Qwen3-8B", "--gpu", "h100-sxm")
    assert "'hf:Qwen/Qwen3-8B'" in hub.err
