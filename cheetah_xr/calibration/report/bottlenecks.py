"""Count what bounds decode steps at the peaks and with fitted efficiencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ...api import evaluate
from ...engine.step_time import PARTS
from ...specs import Efficiency
from ..cases import SERVED
from ..predictors import INSTANCE, lengths


def shifts(rows: pd.DataFrame, efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    """Count rows by what bounds their decode step at the peaks (index) and with their profile (columns).

    Parameters
    ----------
    rows
        Aggregated rows with ``efficiency``, the name of their profile.
    efficiencies
        Profiles by name.
    """
    ideal: list[Any] = []
    fitted: list[Any] = []
    for (model, gpu, precision, name), group in rows.groupby(["model", "gpu", "precision", "efficiency"]):
        isl, osl = lengths(group)
        along = {key: group[column].to_numpy("int64") for key, column in INSTANCE.items()}
        along |= {"batch": group["concurrency"].to_numpy("int64")}
        along |= {"seq_len": np.maximum(1, np.round(isl + osl / 2)).astype("int64")}
        shared: dict[str, Any] = {key: xr.DataArray(values, dims="row") for key, values in along.items()}
        kv_bytes = xr.DataArray(group["kv_bytes"].to_numpy(float), dims="row")
        for bounds, efficiency in ((ideal, "ideal"), (fitted, efficiencies[str(name)])):
            ds = evaluate(
                str(model),
                str(gpu),
                str(precision),
                efficiency=efficiency,
                options=SERVED,
                overrides={"precision.kv_bytes": kv_bytes},
                outputs=["bottleneck"],
                **shared,
            )
            bounds += [PARTS[int(code)] for code in np.broadcast_to(ds["bottleneck"].to_numpy(), len(group))]
    counts = pd.crosstab(pd.Series(ideal, name="at the peaks"), pd.Series(fitted, name="fitted"))
    order = [part for part in PARTS if part in counts.index or part in counts.columns]
    return counts.reindex(index=order, columns=order, fill_value=0)
