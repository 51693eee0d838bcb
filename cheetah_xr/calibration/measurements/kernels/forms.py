"""Define the forms of a kernel's time: the fractions of the peaks of its two resources, and fixed costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ....costmodel.formulas import Num
from ....costmodel.formulas.roofline import seconds
from ....specs import COLLECTIVES, SpecError, load_gpu

MEASURED_COLLECTIVES = frozenset({*COLLECTIVES, "dispatch", "combine"})
RESOURCES = {False: ("bytes", "flops"), True: ("link_bytes", "nic_bytes")}
"""Amounts of the two resources of a kernel, and of a collective."""

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """Amounts and peak rates of rows: HBM bytes and FLOPs of a kernel, link and NIC bytes of a collective."""

    first: Num
    first_rate: Num
    second: Num
    second_rate: Num
    side: Num
    ranks: Num
    message: Num


def _parts(p: Parameters, w: Work, more_first: Any = 0.0, more_second: Any = 0.0) -> tuple[Num, Num]:
    first = seconds(w.first + more_first, w.first_rate, p["eta_first"])
    return first, seconds(w.second + more_second, w.second_rate, p["eta_second"])


def constant(p: Parameters, w: Work) -> Num:
    """Return the larger of the two times, with one efficiency per resource."""
    return np.maximum(*_parts(p, w))


def saturating(p: Parameters, w: Work) -> Num:
    """Return the larger time with efficiencies eta * x / (x + half): ``half`` bytes or FLOPs reach half of the best."""
    return np.maximum(*_parts(p, w, p["half_first"], p["half_second"]))


def launch(p: Parameters, w: Work) -> Num:
    """Return a fixed time plus the larger of the two: saturation with ``half`` = eta * rate * launch."""
    return p["launch_s"] + constant(p, w)


def in_series(p: Parameters, w: Work) -> Num:
    """Return a fixed time plus both times."""
    first, second = _parts(p, w)
    return p["launch_s"] + first + second


def passes(p: Parameters, w: Work) -> Num:
    """Return ``launch`` plus the memory passes around the kernel at their own efficiency."""
    return launch(p, w) + seconds(w.side, w.first_rate, p["eta_side"])


def passes_in_series(p: Parameters, w: Work) -> Num:
    """Return ``in_series`` plus the memory passes around the kernel at their own efficiency."""
    return in_series(p, w) + seconds(w.side, w.first_rate, p["eta_side"])


def steps(p: Parameters, w: Work) -> Num:
    """Return a fixed time, one per further rank, and the larger of link and NIC."""
    return p["launch_s"] + (w.ranks - 1) * p["step_s"] + constant(p, w)


def one_shot(p: Parameters, w: Work) -> Num:
    """Return the faster of two all-reduces inside a scale-up domain.

    Every rank sends all it has to every other at once, or the ring's bytes in two rounds that cost ``round_s`` more.
    """
    at_once = seconds((w.ranks - 1) * w.message, w.first_rate, p["eta_first"])
    return p["launch_s"] + np.minimum(at_once, p["round_s"] + constant(p, w))


START: Mapping[str, tuple[float, float, float]] = {
    "eta_first": (0.7, 1e-3, 1.0),
    "eta_second": (0.6, 1e-3, 1.0),
    "eta_side": (0.4, 1e-3, 1.0),
    "launch_s": (5e-6, 1e-8, 1e-2),
    "step_s": (1e-6, 1e-9, 1e-3),
    "round_s": (1e-5, 1e-8, 1e-3),
    "half_first": (1e7, 1e2, 1e12),
    "half_second": (1e10, 1e4, 1e16),
}
"""Start and bounds of every parameter; efficiencies are fractions of a peak."""


UNUSED = {"eta_second": 1.0, "half_second": 0.0}
"""Parameters of the second resource where no row needs it."""


@dataclass(frozen=True)
class Form:
    """A formula of a kernel's time and its parameters."""

    time: Callable[[Parameters, Work], Num]
    parameters: tuple[str, ...]


_ETAS = ("eta_first", "eta_second")
FORMS: Mapping[str, Form] = {
    "constant": Form(constant, _ETAS),
    "launch": Form(launch, (*_ETAS, "launch_s")),
    "saturating": Form(saturating, (*_ETAS, "half_first", "half_second")),
    "in_series": Form(in_series, (*_ETAS, "launch_s")),
    "passes": Form(passes, (*_ETAS, "launch_s", "eta_side")),
    "passes_in_series": Form(passes_in_series, (*_ETAS, "launch_s", "eta_side")),
    "steps": Form(steps, (*_ETAS, "launch_s", "step_s")),
    "one_shot": Form(one_shot, (*_ETAS, "launch_s", "round_s")),
}


def forms_of(kernel: str, rows: pd.DataFrame) -> list[str]:
    """Return the names of the forms that apply to the rows of a kernel."""
    names = ["constant", "launch", "saturating"]
    if kernel in MEASURED_COLLECTIVES:
        return [*names, "steps", *(["one_shot"] if kernel == "all_reduce" else [])]
    names += ["in_series"] if (rows["flops"] > 0).any() else []
    return names + (["passes", "passes_in_series"] if (rows["side_bytes"] > 0).any() else [])


def work(rows: pd.DataFrame) -> Work:
    """Return the amounts and peak rates of rows of one kernel.

    Raises
    ------
    SpecError
        When the rows are of several kernels, or need a rate that the catalogue does not know.
    """
    kernels = rows["kernel"].unique()
    if len(kernels) != 1:
        raise SpecError(f"rows of one kernel are needed, not of {len(kernels)}: {', '.join(map(str, kernels))}")
    first, second = RESOURCES[kernels[0] in MEASURED_COLLECTIVES]
    amounts = {name: rows[name].to_numpy("float64") for name in (first, second, "side_bytes")}
    if first == "link_bytes":
        rates = _rates(rows, "link_bandwidth", amounts[first]), _rates(rows, "nic_bandwidth", amounts[second])
    else:
        peaks = "peak_" + rows["compute"].astype("string").fillna("bf16")
        rates = _rates(rows, "hbm_bandwidth", amounts[first]), _rates(rows, peaks, amounts[second])
    return Work(
        amounts[first],
        rates[0],
        amounts[second],
        rates[1],
        amounts["side_bytes"],
        rows["ranks"].to_numpy("float64", na_value=1.0),
        rows["message_bytes"].fillna(0.0).to_numpy("float64"),
    )


def _rates(rows: pd.DataFrame, fields: str | pd.Series[str], amounts: Num) -> Num:
    """Return the peak rate of every row, infinite where nothing asks for one that is not known."""
    keys = pd.DataFrame({"gpu": rows["gpu"].astype("string"), "field": fields})
    unique = keys.drop_duplicates()
    values = [getattr(load_gpu(gpu), field) for gpu, field in zip(unique["gpu"], unique["field"], strict=True)]
    rates = keys.merge(unique.assign(rate=pd.Series(values, unique.index, "float64")), how="left")["rate"].to_numpy()
    missing = np.isnan(rates) & (amounts > 0)
    if missing.any():
        gpu, field = keys[missing].iloc[0]
        raise SpecError(f"the catalogue does not know {field} of {gpu}, which rows of {rows['kernel'].iloc[0]} need")
    return np.nan_to_num(rates, nan=np.inf)
