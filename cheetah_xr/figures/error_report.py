"""Write the page docs/evidence/validation.md with its figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..calibration.report.gather import Report
from ..calibration.report.large_scale import TOLERANCE
from ..calibration.report.page import GPUS, LARGE, PARITY, render
from .shared.style import RC, gpu_colour, new_figure, titled

DPI = 80


def parity(rows: pd.DataFrame) -> Figure:
    """Draw predicted against measured time per token of held-out rows, aggregated and disaggregated."""
    rows = rows[rows["mode"].isin(["aggregated", "disaggregated"])]
    fig, panels = new_figure(1, 2, width=9.6, height=4.6, sharex=True, sharey=True)
    for ax, mode in zip(panels, ("aggregated", "disaggregated"), strict=True):
        part = rows[rows["mode"] == mode]
        for gpu, group in part.groupby("gpu"):
            ax.plot(
                1e3 * group["measured_s"],
                1e3 * group["predicted_s"],
                ".",
                ms=3,
                color=gpu_colour(str(gpu)),
                label=str(gpu),
            )
        ends = np.array([1e3 * rows["measured_s"].min(), 1e3 * rows["measured_s"].max()])
        for factor, style in ((1.0, "-"), (1.2, ":"), (1 / 1.2, ":")):
            ax.plot(ends, factor * ends, style, color="#222222", lw=0.8)
        ax.set_xscale("log")
        ax.set_yscale("log")
        titled(ax, f"{mode}: {len(part)} held-out rows", "measured ms per token", "predicted ms per token")
        ax.legend(markerscale=3, fontsize=8)
    return fig


def left_out(errors: pd.DataFrame, column: str) -> Figure:
    """Draw mean errors of accelerators or models left out of the fit, and of the held-out rows."""
    fig, ax = new_figure(height=0.4 * len(errors) + 1.4)
    y = np.arange(len(errors))
    ax.barh(y + 0.2, 100 * errors["left out"], 0.4, label=f"{column} left out of the fit, all rows")
    ax.barh(y - 0.2, 100 * errors["held out"], 0.4, label="held-out rows of the shipped split")
    ax.set_yticks(y, [" ".join(map(str, key)) for key in errors.index])
    ax.legend(fontsize=8)
    titled(ax, f"Errors of rows whose {column} is left out of the fit", "mean error of the time per token, %", "")
    return fig


def large_scale(points: pd.DataFrame, tolerance: float) -> Figure:
    """Draw predicted over measured rate of every published large-scale point."""
    fig, ax = new_figure(width=8.2, height=0.26 * len(points) + 1.2)
    y = np.arange(len(points))[::-1]
    ax.axvspan(1 - tolerance, 1 + tolerance, color="#e8f0e8")
    ax.axvline(1, color="#222222", lw=0.8)
    ax.plot(points["ratio"], y, "o", color="#4477AA", label="efficiency profile of the engine")
    ax.plot(points["kernel tables"], y, "x", color="#EE6677", label="medians of the priors, no fit")
    ax.set_yticks(y, points["id"], fontsize=8)
    ax.set_xscale("log")
    ax.set_xticks([0.25, 0.5, 0.75, 1, 1.25, 2], ["0.25", "0.5", "0.75", "1", "1.25", "2"])
    ax.minorticks_off()
    ax.set_xlim(min(0.24, 0.9 * float(points["ratio"].min())), 2.2)
    ax.legend(fontsize=8)
    titled(ax, "Large-scale points, never fitted", "predicted over measured tokens/s and GPU", "")
    return fig


def save(figures: dict[str, Figure], folder: Path) -> None:
    """Write figures as PNG into a folder, created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(RC):
        for name, fig in figures.items():
            fig.savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})


def write(report: Report, to: Path) -> None:
    """Write the page, and its figures into the folder of its name next to it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(render(report), encoding="utf-8")
    drawn = {
        PARITY: parity(report.held_out),
        GPUS: left_out(report.left_out["gpu"], "accelerator"),
        LARGE: large_scale(report.large_scale, TOLERANCE),
    }
    save(drawn, to.with_suffix(""))
