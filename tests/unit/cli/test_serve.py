"""``cheetah-xr serve``: the numbers of the Python functions, one message for what cannot be served."""

import re

import pytest

import cheetah_xr as cx
from tests.helpers.printed import shown

ONE = ("--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", 4, "--precision", "fp8")
LOAD = {"concurrency": 64, "isl": 8192, "osl": 1024}


def test_one_instance(cli):
    ran = cli("serve", *ONE)
    ds = cx.serve("llama-3.1-70b", "h100-sxm", "fp8", tp=4, **LOAD)
    assert (ran.code, ran.err) == (0, "")
    assert shown(ran.out, "tpot") == pytest.approx(float(ds.tpot) * 1e3, abs=0.005)
    assert shown(ran.out, "e2e") == pytest.approx(float(ds.e2e), abs=0.05)
    assert shown(ran.out, "throughput_per_gpu") == pytest.approx(float(ds.throughput_per_gpu), abs=0.05)
    assert shown(ran.out, "running") == shown(ran.out, "concurrency") == 64
    assert re.search(r"limit\s+concurrency", ran.out)
    assert "kv_transfer_time" not in ran.out


def test_separate_passes_and_options(cli):
    ran = cli(
        "serve",
        *ONE,
        "--prefill",
        "separate",
        "--lengths",
        "fixed",
        "--chunked-prefill-size",
        4096,
        "-o",
        "small_ops=memory",
    )
    ds = cx.serve(
        "llama-3.1-70b", "h100-sxm", "fp8", tp=4, **LOAD, prefill="separate", lengths="fixed",
        chunked_prefill_size=4096, options={"small_ops": "memory"},
    )  # fmt: skip
    assert shown(ran.out, "tpot") == pytest.approx(float(ds.tpot) * 1e3, abs=0.005)


def test_two_pools(cli):
    ran = cli("serve", *ONE, "--prefill-workers", 2, "--prefill-tp", 8)
    ds = cx.serve_disaggregated(
        "llama-3.1-70b", "h100-sxm", "fp8", **LOAD, prefill_workers=2, prefill_tp=8, decode_tp=4
    )
    assert (ran.code, ran.err) == (0, "")
    for name in ("tpot", "ttft", "kv_transfer_time"):
        assert shown(ran.out, name) == pytest.approx(float(ds[name]) * 1e3, abs=0.005)
    assert shown(ran.out, "n_gpus") == 20
    assert shown(ran.out, "decode_workers") == 1


def test_experts_all_to_all_is_exposed_unless_set(cli):
    words = ("serve", "--model", "mixtral-8x7b", "--gpu", "h100-sxm", "--dp", 4, "--ep", 4)
    assert shown(cli(*words).out, "tpot") > shown(cli(*words, "-o", "overlap_ep=1").out, "tpot")


BAD = {
    "does not fit": (["--tp", 1, "--precision", "bf16"], "infeasible_memory"),
    "heads": (["--tp", 3], "tp_heads"),
    "one output token": (["--osl", 1], "osl", "at least 2"),
    "nobody": (["--concurrency", 0], "concurrency", "at least 1"),
    "layout without workers": (["--prefill-tp", 4], "--prefill-tp 4", "--prefill-workers"),
    "decode workers alone": (["--decode-workers", 2], "--decode-workers 2", "--prefill-workers"),
    "mixed pools": (["--prefill-workers", 2, "--prefill", "mixed"], "--prefill mixed", "--prefill-workers"),
    "unknown GPU": (["--gpu", "h1000"], "'h1000'"),
    "option": (["-o", "fast=true"], "'fast'"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_served_is_one_message(case, cli):
    arguments, *words = case
    ran = cli("serve", *ONE, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert [word for word in words if word not in ran.err] == []
    assert "Traceback" not in ran.err
