"""Fit the forms of a kernel's time robustly and test them on rows that were not fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ....costmodel.formulas import Num
from ....specs import SpecError
from ..split import side
from .forms import FORMS, MEASURED_COLLECTIVES, RESOURCES, START, UNUSED, Form, Parameters, forms_of, work
from .tables import KERNELS

GPUS_FITTED = ("h100-sxm", "b200-sxm")
"""One accelerator of each generation; the split by accelerator is tested on the others."""

SHAPE = (
    *("k", "n", "batch", "heads", "kv_heads", "head_dim", "window"),
    *("hidden", "intermediate", "top_k", "n_experts", "tp", "ep"),
)
"""Columns that tell curves apart; along a curve run the tokens, the length of sequences or the size of messages."""

GROUP = ("kernel", "engine", "backend", "precision", "generation")
ROWS = 4000
"""Rows of a fit, drawn with a fixed seed where there are more; errors are over at most five times as many."""

LOSS_SCALE = 0.1
"""Residuals of the logarithm beyond which the loss turns linear."""


def fit(rows: pd.DataFrame, form: Form) -> dict[str, float]:
    """Fit parameters to the logarithm of the measured times, with a loss that outliers do not pull.

    Parameters
    ----------
    rows
        Rows of one kernel, with the columns of the table.
    form
        One of :data:`FORMS`.

    Returns
    -------
    dict[str, float]
        By parameter; seconds, bytes and FLOPs, fractions of a peak.
    """
    w, measured = work(rows), np.log(rows["time_s"].to_numpy("float64"))
    fixed = {} if (w.second > 0).any() else UNUSED
    free = [name for name in form.parameters if name not in fixed]
    start, low, high = np.log(np.array([START[name] for name in free]).T)

    def parameters(x: Num) -> dict[str, float]:
        return dict(zip(free, np.exp(x).tolist(), strict=True)) | fixed

    def residuals(x: Num) -> Num:
        return np.log(form.time(parameters(x), w)) - measured

    solution = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=LOSS_SCALE)
    return {name: parameters(solution.x)[name] for name in form.parameters}


def errors(rows: pd.DataFrame, form: Form, parameters: Parameters) -> Num:
    """Return ln(predicted / measured) of every row."""
    return np.log(form.time(parameters, work(rows))) - np.log(rows["time_s"].to_numpy("float64"))


def curves(rows: pd.DataFrame) -> pd.Series[str]:
    """Return the label of every row's curve: its kernel and shape, over accelerators, engines, precisions and sizes.

    Collectives have few shapes: there a curve is a number of ranks of one accelerator, and a shape of tokens.
    """
    collective = rows["kernel"].iloc[0] in MEASURED_COLLECTIVES
    columns = ["kernel", *(("gpu", "ranks", "hidden", "top_k", "n_experts") if collective else SHAPE)]
    number = rows.groupby(columns, dropna=False, observed=True, sort=False).ngroup()
    first = rows.loc[~number.duplicated(), columns].astype("string").fillna("")
    labels = pd.Series(first.agg("|".join, axis=1).to_numpy(), number[~number.duplicated()].to_numpy())
    return number.map(labels)


def _sample(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    return rows if len(rows) <= most else rows.sample(most, random_state=0)


def splits(rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series[bool]]]:
    """Yield the two splits by rule, as whether a row may be fitted.

    ``shapes`` fits whole curves chosen by a hash of their label, 30 % of them; ``gpus`` fits one accelerator of each
    generation.
    """
    label = curves(rows)
    yield "shapes", label.map({name: side(name) for name in label.unique()}) == "fit"
    yield "gpus", rows["gpu"].isin(GPUS_FITTED)


def efficiencies(table: pd.DataFrame, by: Sequence[str] = GROUP) -> pd.DataFrame:
    """Fit every form to every group of kernels and test it on rows that were not fitted.

    Parameters
    ----------
    table
        Kernel timings; rows that name a rule are left out.
    by
        Columns that tell groups apart. Without "generation" one set of parameters serves all accelerators.

    Returns
    -------
    pandas.DataFrame
        A row per group, form and split: numbers of rows fitted and tested, the parameters (blank where nothing in the
        rows depends on them), the root mean square of ln(predicted/measured) of the rows fitted and tested, and the
        median of its size over the rows tested. A split that leaves nothing to fit or to test gives no row.

    Raises
    ------
    SpecError
        When ``by`` does not name the kernel, or no row is in fits.
    """
    if "kernel" not in by:
        raise SpecError(f"efficiencies: by: 'kernel' must be one of the columns, given {', '.join(by)}")
    used = table[table["rule"] == ""]
    if used.empty:
        raise SpecError("efficiencies: table: no row is left that no rule keeps out of fits")
    fits = [
        dict(zip(by, key, strict=True)) | row
        for key, rows in used.groupby(list(by), observed=True, sort=True)
        for row in _group(rows)
    ]
    table = pd.DataFrame(fits)
    order = {kernel: i for i, kernel in enumerate(KERNELS)}
    return table.sort_values("kernel", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def _group(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    kernel = str(rows["kernel"].iloc[0])
    for split, fitted in splits(rows):
        if not fitted.any() or fitted.all():
            continue
        train, test = _sample(rows[fitted], ROWS), _sample(rows[~fitted], 5 * ROWS)
        for name in forms_of(kernel, rows):
            parameters = fit(train, FORMS[name])
            inside, outside = (errors(part, FORMS[name], parameters) for part in (train, test))
            if not (train[RESOURCES[kernel in MEASURED_COLLECTIVES][1]] > 0).any():
                parameters |= dict.fromkeys(UNUSED, np.nan)
            yield {
                "form": name,
                "split": split,
                "rows_fitted": int(fitted.sum()),
                "rows_tested": int((~fitted).sum()),
                **parameters,
                "rms_fitted": float(np.sqrt(np.mean(inside**2))),
                "rms_tested": float(np.sqrt(np.mean(outside**2))),
                "median_tested": float(np.median(np.abs(outside))),
            }
