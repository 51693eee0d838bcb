"""Results leave in the formats people use: netCDF, Parquet, CSV, by xarray and pandas alone."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cheetah_xr as cx

SWEEP = {
    "name": "export",
    "title": "Export",
    "question": "Does it open elsewhere?",
    "model": "llama-3.1-8b",
    "gpu": ["h100-sxm", "mi300x"],
    "batch": [1, 64, 4096],
    "seq_len": [1024, 8192],
}


@pytest.fixture(params=["evaluate", "store"])
def result(request, tmp_path):
    if request.param == "store":
        return cx.open_result(cx.run_sweep(cx.Sweep(**SWEEP), tmp_path / "export.zarr", progress=False))
    axes = {name: SWEEP[name] for name in ("model", "gpu", "batch", "seq_len")}
    return cx.evaluate(**axes, outputs=["step_time", "bottleneck", "status"])


def test_netcdf(result, tmp_path):
    result.to_netcdf(tmp_path / "result.nc")
    with xr.open_dataset(tmp_path / "result.nc") as back:
        np.testing.assert_array_equal(back.step_time, result.step_time)
        np.testing.assert_array_equal(back.status, result.status)
        assert back.gpu.to_numpy().tolist() == ["h100-sxm", "mi300x"]
        assert back.step_time.attrs["units"] == "s"


def test_parquet_and_csv(result, tmp_path):
    table = result[["step_time", "status"]].to_dataframe().reset_index()
    table.to_parquet(tmp_path / "result.parquet")
    table.to_csv(tmp_path / "result.csv", index=False)
    for back in (pd.read_parquet(tmp_path / "result.parquet"), pd.read_csv(tmp_path / "result.csv")):
        assert len(back) == 12
        assert set(back.gpu) == {"h100-sxm", "mi300x"}
        np.testing.assert_allclose(back.step_time, table.step_time, rtol=1e-6)
