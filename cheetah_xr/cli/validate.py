"""The command ``cheetah-xr validate``: how far predicted times are from measured ones, as text or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SpecError
from .console import errors

if TYPE_CHECKING:
    import pandas as pd


def validate(
    predictions: Annotated[
        Path | None, typer.Option(help="CSV of predictions: id, mode, efficiency, predicted_s, low_s, high_s.")
    ] = None,
    measurements: Annotated[
        Path | None, typer.Option(help="CSV of your own measurements; default the public ones.")
    ] = None,
    efficiency: Annotated[
        str | None,
        typer.Option(help="Predict with this efficiency profile, by name or file; default that of each row's engine."),
    ] = None,
    aiconfigurator: Annotated[Path | None, typer.Option(help="Its predictions, to compare on the page.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write the page and its figures, such as docs/evidence/validation.md.")
    ] = None,
) -> None:
    """Print how far predicted times are from measured ones, by engine, model, accelerator and load.

    The public measurements need `pip install 'cheetah_xr[validation]'`.

    Example: `cheetah-xr validate`

    Example: `cheetah-xr validate --measurements mine.csv --efficiency mine.yaml`
    """
    reject_contradictions(predictions, measurements, efficiency, aiconfigurator, to)
    from ..calibration.measurements.user_csv import read_measurements
    from ..calibration.report.inputs import joined, predicted, read_predictions
    from ..calibration.shipped_profiles import eligible

    measured = eligible() if measurements is None else read_measurements(measurements)
    if predictions is None:
        rows = predicted(measured, efficiency)
    else:
        rows = joined(measured, read_predictions(predictions), predictions)
    if to is None:
        print(errors_text(rows))
        return
    _write_page(rows, measured, aiconfigurator, to)
    print(f"written: {to}")


def reject_contradictions(
    predictions: Path | None,
    measurements: Path | None,
    efficiency: str | None,
    aiconfigurator: Path | None,
    to: Path | None,
) -> None:
    """Reject options of the command that cannot be given together.

    Raises
    ------
    SpecError
        For two sources of predictions, a page of other than the public rows, or aiconfigurator without a page.
    """
    if predictions is not None and efficiency is not None:
        raise SpecError("validate: give --predictions or --efficiency; a file names the profile of each row")
    if to is not None and (predictions is None or measurements is not None or efficiency is not None):
        raise SpecError(
            "validate: --to makes the page of the public measurements: give it --predictions, and neither "
            "--measurements nor --efficiency"
        )
    if to is None and aiconfigurator is not None:
        raise SpecError("validate: --aiconfigurator is for the page: give --to with it")


def errors_text(rows: pd.DataFrame) -> str:
    """Return errors as plain tables: of the held-out rows where there is a split, else of all."""
    from ..calibration.report.sections import errors_by
    from ..calibration.report.statistics import summary
    from ..calibration.report.text import plain

    parts = []
    if "side" in rows:
        parts.append(plain(summary(rows, ["side", "mode"])))
        rows = rows[rows["side"] == "held out"]
        parts.append("Held-out rows:")
    tables = {"mode": summary(rows, ["mode"]), **errors_by(rows)}
    for name, frame in tables.items():
        shown = frame if frame["coverage"].notna().any() else frame.drop(columns="coverage")
        parts.append(f"by {name}\n{plain(shown)}")
    return "\n\n".join(parts)


def _write_page(rows: pd.DataFrame, measured: pd.DataFrame, aiconfigurator: Path | None, to: Path) -> None:
    """Compute the report of the public measurements and write its page and figures."""
    from ..calibration.report import other_tools
    from ..calibration.report.gather import gather
    from ..calibration.shipped_profiles import PROFILES
    from ..figures.error_report import write
    from ..specs import load_efficiency

    def print_stage(stage: str) -> None:
        errors.print(stage, highlight=False, markup=False, soft_wrap=True)

    profiles = {name: load_efficiency(name) for name in PROFILES}
    other = None if aiconfigurator is None else other_tools.read_predictions(aiconfigurator)
    write(gather(rows, measured, profiles, other, print_stage), to)
