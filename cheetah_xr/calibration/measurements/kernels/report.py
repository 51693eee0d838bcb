"""Write the generated part of docs/evidence/kernel-tables.md.

``python -m cheetah_xr.calibration.measurements.kernels.report docs/evidence/kernel-tables.md`` reads and fits
all tables, a kernel at a time, in some minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from .fits import efficiencies
from .forms import FORMS, MEASURED_COLLECTIVES
from .tables import KERNELS, counts, kernel_table

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
KEY = ["kernel", "engine", "backend", "precision", "generation"]
SHOWN = ("constant", "launch", "saturating")
"""Forms whose errors are shown next to those of the best."""

HEADER = (
    "kernel, engine",
    "format",
    "generation",
    "best form",
    "memory or link",
    "compute",
    "passes",
    "fixed, µs",
    "also, µs",
    *SHOWN,
    "best",
    "other GPUs",
)


def measure() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fit every kernel and count rows by rule."""
    fitted, counted = [], []
    for kernel in KERNELS:
        table = kernel_table([kernel])
        fitted.append(efficiencies(table))
        counted.append(counts(table))
    return pd.concat(fitted, ignore_index=True), pd.concat(counted).fillna(0).astype(int)


def main_backends(fits: pd.DataFrame) -> pd.DataFrame:
    """Select the most measured backend of every kernel, engine, format and generation, all of dispatch and combine.

    Messages of int8 are left out.
    """
    size = fits["rows_fitted"] + fits["rows_tested"]
    most = size.groupby([fits[name] for name in KEY if name != "backend"]).transform("max")
    every = fits["kernel"].isin(["dispatch", "combine"])
    return fits[((size == most) | every) & (fits["precision"] != "int8")]


def lines(fits: pd.DataFrame) -> list[str]:
    """Format one line of the document per group."""
    text = []
    for _, group in fits.groupby(KEY, sort=False):
        by_split = {split: part.set_index("form", drop=False) for split, part in group.groupby("split")}
        text.append(_line(by_split.get("shapes"), by_split.get("gpus")))
    return text


def best(fits: pd.DataFrame) -> pd.Series[Any]:
    """Return the form with the lowest error to a hundredth, the simplest of equal ones."""
    order = fits["form"].map({form: i for i, form in enumerate(FORMS)})
    return fits.assign(error=fits["rms_tested"].round(2), order=order).sort_values(["error", "order"]).iloc[0]


def _line(shapes: pd.DataFrame | None, gpus: pd.DataFrame | None) -> str:
    within = gpus if shapes is None else shapes
    if within is None:
        raise ValueError("a group has neither split")
    form = best(within)

    def shown(name: str, scale: float = 1.0, spec: str = ".2f") -> str:
        value = form.get(name)
        return "" if value is None or pd.isna(value) else format(value * scale, spec)

    def error(part: pd.DataFrame | None, name: str) -> str:
        return "" if part is None else format(part["rms_tested"].to_dict()[name], ".2f")

    backend = f" ({form['backend']})" if form["kernel"] in MEASURED_COLLECTIVES else ""
    cells = [
        f"{form['kernel']}, {form['engine']}{backend}",
        form["precision"],
        form["generation"],
        form["form"],
        shown("eta_first"),
        shown("eta_second"),
        shown("eta_side"),
        shown("launch_s", 1e6, ".1f"),
        shown("step_s", 1e6, ".1f") + shown("round_s", 1e6, ".1f"),
        *(error(within, name) for name in SHOWN),
        error(shapes, form["form"]),
        error(gpus, form["form"]),
    ]
    return "| " + " | ".join(cells) + " |"


def section(fits: pd.DataFrame, counted: pd.DataFrame) -> str:
    """Return the generated text."""
    rules = [" | ".join(["kernel", *counted.columns]), " | ".join(["---"] * (1 + len(counted.columns)))]
    rules += [" | ".join([str(name), *(f"{n:,}" for n in row)]) for name, row in counted.iterrows()]
    head = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    return "\n".join([BEGIN, "", *head, *lines(main_backends(fits)), "", *(f"| {line} |" for line in rules), "", END])


def main(path: Path) -> None:
    """Replace the generated part of a document."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(before + section(*measure()) + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
