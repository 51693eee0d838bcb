"""The kernel tables of aiconfigurator-core: counts, single published numbers, and what the document says of them.

Install the extra "validation" to run this. Published numbers are those of specs/efficiencies/default.yaml, with their
sources there, unless a line says otherwise.
"""

import re
from importlib import metadata, resources

import numpy as np
import pandas as pd
import pytest

from cheetah_xr.calibration.measurements import kernels
from cheetah_xr.calibration.measurements.kernels import forms, report
from tests.helpers import DOCS

VERSION = "0.12.0"
package = pytest.importorskip("aiconfigurator_core", reason="needs the extra validation")
if metadata.version("aiconfigurator-core") != VERSION:
    pytest.skip(f"written for aiconfigurator-core {VERSION}", allow_module_level=True)

DOCUMENT = DOCS / "evidence" / "kernel-tables.md"
SMALL = ("quantize", "mla_prefill", "mla_decode", "all_reduce", "all_gather", "all_to_all", "dispatch", "combine")
"""Kernels with few rows: the others take a minute to read."""


@pytest.fixture(scope="module")
def table():
    return kernels.kernel_table(SMALL)


def documented():
    """Rows of the document's two tables, by their first cell."""
    actual = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        actual.setdefault(cells[0], []).append(cells)
    return actual


def in_fits(kernel, *given, **where):
    rows = kernels.kernel_table([kernel], *given)
    rows = rows[rows["rule"] == ""]
    for name, value in where.items():
        rows = rows[rows[name] == value]
    return rows


@pytest.mark.parametrize("kernel", SMALL)
def test_the_document_counts_the_rows(table, kernel):
    counted = kernels.counts(table).loc[kernel]
    head = next(row for row in documented()["kernel"] if "in fits" in row)
    row = next(row for row in documented()[kernel] if re.fullmatch(r"[\d,]+", row[1]))
    numbers = dict(zip(head[1:], (int(cell.replace(",", "")) for cell in row[1:]), strict=True))
    assert {name: count for name, count in numbers.items() if count} == {k: v for k, v in counted.items() if v}


def test_the_document_has_the_efficiencies(table):
    rows = table[(table["kernel"] == "all_reduce") & (table["engine"] == "trtllm")]
    assert report.lines(report.main_backends(kernels.efficiencies(rows))) == [
        line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| all_reduce, trtllm")
    ]


def test_every_amount_and_time_is_positive(table):
    assert (table["time_s"] > 0).all()
    assert ((table["bytes"] > 0) | (table["link_bytes"] > 0) | (table["nic_bytes"] > 0)).all()
    assert table[["kernel", "gpu", "engine", "generation", "backend", "precision"]].notna().all().all()


def test_nothing_multiplies_faster_than_its_peak():
    for rows in (
        in_fits("gemm", ["h100-sxm"], ["trtllm"]),
        in_fits("mla_prefill"),
        in_fits("mla_decode", ["h100-sxm"]),
    ):
        work = forms.work(rows)
        assert (work.second / work.second_rate < rows["time_s"]).all()


def test_deepep_itself_counts_the_same_bytes(table):
    """The low-latency rows state a bandwidth; its bytes are ours and 16 per copy that a dispatch adds."""
    file = resources.files(package) / "systems/data/h100_sxm/comm/sglang/0.5.12/wideep_deepep_ll_perf.parquet"
    with file.open("rb") as stream:
        raw = pd.read_parquet(stream)
    rows = table[(table["gpu"] == "h100-sxm") & (table["backend"] == "deepep-low-latency")]
    rows = rows[rows["engine_version"] == "0.5.12"]
    for kernel, header in (("dispatch", 16), ("combine", 0)):
        ours = rows[rows["kernel"] == kernel]
        sent = ours["message_bytes"] + header * ours["tokens"] * ours["top_k"]
        np.testing.assert_allclose(sent / ours["time_s"] / 1e9, raw[f"{kernel}_bandwidth_gbps"], rtol=1e-12)


@pytest.mark.parametrize(("mebibytes", "published", "within"), [(4, 107, 0.35), (32, 276, 0.1), (256, 436, 0.05)])
def test_nccl_on_8_h200_against_a_published_sweep(table, mebibytes, published, within):
    """Bus bandwidth in GB/s; other machines and versions differ most at small messages."""
    rows = table[(table["kernel"] == "all_reduce") & (table["backend"] == "NCCL") & (table["gpu"] == "h200-sxm")]
    rows = rows[(rows["ranks"] == 8) & (rows["precision"] == "bf16") & (rows["message_bytes"] == mebibytes * 2**20)]
    assert (rows["link_bytes"] / rows["time_s"] / 1e9).mean() == pytest.approx(published, rel=within)


def test_flash_attention_3_on_h100_against_a_published_chart():
    """Causal, 16 heads of 128, 16k tokens of one sequence: 616 TFLOP/s."""
    rows = in_fits(
        "attention_prefill", ["h100-sxm"], ["sglang"], backend="fa3", precision="bf16", heads=16, kv_heads=16
    )
    rows = rows[(rows["head_dim"] == 128) & (rows["window"] == 0) & (rows["new"] == 16384) & (rows["batch"] == 1)]
    assert (rows["flops"] / rows["time_s"] / 1e12).tolist() == [pytest.approx(616, rel=0.03)]


def test_experts_of_mixtral_on_h100_against_published_times():
    """vLLM, bf16, two tensor-parallel ranks: 483 us for 64 tokens, which read all eight experts."""
    rows = in_fits("experts", ["h100-sxm"], ["vllm"], hidden=4096, intermediate=14336, top_k=2, tp=2, ep=1)
    rows = rows[(rows["precision"] == "bf16") & (rows["tokens"] == 64)]
    assert rows["distinct"].tolist() == [8]
    assert (rows["time_s"] * 1e6).tolist() == [pytest.approx(483, rel=0.05)]


def test_skinny_gemms_of_cublas_on_h100_against_published_bandwidths():
    """K = 5120, N = 12288 here, 5376 and 12288 there: 2.85 to 2.92 TB/s for 1 to 128 rows."""
    rows = in_fits("gemm", ["h100-sxm"], ["vllm"], precision="bf16", k=5120, n=12288)
    rows = rows[rows["tokens"].isin([1, 16, 64, 128])]
    assert (rows["k"] * rows["n"] * 2 / rows["time_s"] / 1e12).mean() == pytest.approx(2.88, rel=0.1)
