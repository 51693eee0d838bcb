"""Define the style of every figure: sizes, colours, axes, and labels next to their lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

WIDTH, HEIGHT = 7.2, 4.5
"""Inches; text stays legible at half this size."""

FONT = 10.0
LETTERS = 70
"""Letters of a title above the axes of a figure of that width."""

RC: dict[Any, Any] = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.family": "DejaVu Sans",
    "font.size": FONT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}

INK, FAINT = "#222222", "#8a8a8a"

BOUND_BY = {
    "compute": "#D55E00",
    "weights": "#0072B2",
    "kv": "#009E73",
    "activations": "#56B4E9",
    "communication": "#CC79A7",
    "overhead": "#E69F00",
    "does_not_fit": "#d9d9d9",
    "invalid": "#f5f5f5",
}
"""Colour of every resource that can bound a point (Okabe and Ito), and of invalid points."""

BOUND_NAMES = {
    "compute": "compute",
    "weights": "weights",
    "kv": "KV cache",
    "activations": "activations",
    "communication": "communication",
    "overhead": "CPU overhead",
    "does_not_fit": "does not fit",
    "invalid": "not valid",
}

KERNEL_NAMES = {
    "attn_proj": "attention projections",
    "attn_core": "attention core",
    "indexer": "indexer",
    "dense_mlp": "MLP",
    "router": "router",
    "shared_experts": "shared experts",
    "routed_experts": "routed experts",
    "embedding": "embedding",
    "lm_head": "LM head",
}

GPU_COLOURS = {
    "a100-sxm-80gb": "#EE6677",
    "h100-sxm": "#4477AA",
    "h200-sxm": "#228833",
    "h20": "#997700",
    "h800-sxm": "#66AADD",
    "b200-sxm": "#AA3377",
    "gb200-nvl72": "#6A3D9A",
    "b300-sxm": "#DD77AA",
    "gb300-nvl72": "#B15928",
    "mi300x": "#EE7733",
    "mi355x": "#CC3311",
    "rtx-4090": "#009988",
    "l40s": "#44BB99",
}
"""The same accelerator has the same colour everywhere."""

OTHERS = ("#332288", "#117733", "#882255", "#999933", "#44AA99", "#CC6677", "#555555", "#88CCEE")
SERIES = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#997700", "#66AADD", "#222222")
"""Colours of lines that are neither accelerators nor resources."""

PHASES = {"prefill": SERIES[1], "decode": SERIES[0]}
"""Colours of the two stages of inference."""


def gpu_colour(name: str) -> str:
    """Return the colour of an accelerator; unlisted ones get one by their name."""
    return GPU_COLOURS.get(name) or OTHERS[sum(map(ord, name)) % len(OTHERS)]


def regime_colours() -> ListedColormap:
    """Return the colour map of the flags of :func:`cheetah_xr.analysis.regimes`."""
    return ListedColormap(list(BOUND_BY.values()))


def new_figure(
    rows: int = 1, columns: int = 1, width: float = WIDTH, height: float = HEIGHT, **panels: Any
) -> tuple[Figure, Any]:
    """Create a figure and its axes in the common style; `panels` as for ``Figure.subplots``."""
    with mpl.rc_context(RC):
        fig = Figure(figsize=(width, height), layout="constrained")
        return fig, fig.subplots(rows, columns, **panels)


def titled(ax: Axes, title: str, x: str, y: str) -> None:
    """Set the title, wrapped where it is long, and the axis labels."""
    ax.set_title(textwrap.fill(title, LETTERS, break_on_hyphens=False))
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def headline(fig: Figure, title: str) -> None:
    """Set the title of a figure with several panels or wide labels, wrapped to its width."""
    lines = textwrap.fill(title, int(10 * fig.get_figwidth()), break_on_hyphens=False)
    fig.suptitle(lines, x=0.01, ha="left", fontsize=RC["axes.titlesize"], fontweight=RC["axes.titleweight"])


def log_axis(ax: Axes, which: str, *, binary: bool = False) -> None:
    """Make an axis logarithmic with plain numbers: decades, or powers of two."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    set_scale = ax.set_xscale if which == "x" else ax.set_yscale
    base = 2 if binary else 10
    set_scale("log", base=base)
    axis.set_major_locator(LogLocator(base=base, numticks=14))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(NullFormatter())


def log_room(ax: Axes, low: float, high: float, left: float, right: float, width: float = 410.0) -> float:
    """Set the limits of a logarithmic x axis with a margin of `left` and `right` points outside the data.

    Returns the points of a factor of e, for axes `width` points wide.
    """
    factor = (width - left - right) / np.log(high / low)
    ax.set_xlim(low * np.exp(-left / factor), high * np.exp(right / factor))
    return float(factor)


def plain(value: float) -> str:
    """Format a number as people write it: 0.01, 5, 20,000, 1M."""
    if value >= 1e6:
        return str(EngFormatter(sep="")(value))
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def tokens(value: float) -> str:
    """Format a number of tokens: 512, 8k, 128k, 1M (binary thousands where they are whole)."""
    for factor, unit in ((2**20, "M"), (2**10, "k")):
        if value >= factor and value % factor == 0:
            return f"{value / factor:,.0f}{unit}"
    return plain(value)


def end_labels(
    ax: Axes,
    lines: Sequence[tuple[float, float, str, str]],
    *,
    gap: float = 1.25,
    offset: float = 5.0,
    ha: Literal["left", "right"] = "left",
) -> None:
    """Label lines at their ends, (x, y, text, colour), pushed apart so that no two labels touch.

    Labels are right of the ends, or left of them with `ha` "right". Call it last: it reads the limits of the axes.
    """
    fig: Any = ax.figure
    height = FONT * gap * fig.dpi / 72
    placed = sorted(
        ((ax.transData.transform((x, y))[1], x, y, text, colour) for x, y, text, colour in lines),
        key=lambda item: item[0],
    )
    heights = spread([item[0] for item in placed], height)
    for (at, x, y, text, colour), moved in zip(placed, heights, strict=True):
        ax.annotate(
            text,
            (x, y),
            xytext=(offset if ha == "left" else -offset, (moved - at) * 72 / fig.dpi),
            textcoords="offset points",
            color=colour,
            va="center",
            ha=ha,
            annotation_clip=False,
        )


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move ascending positions as little as needed to be `gap` apart."""
    groups: list[list[float]] = []
    for position in positions:
        groups.append([position, 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (b, m), (a, n) = groups.pop(), groups.pop()
            groups.append([(a * n + b * m) / (n + m), n + m])
    placed: list[float] = []
    for centre, count in groups:
        first = centre - gap * (count - 1) / 2
        placed += [first + gap * i for i in range(int(count))]
    return placed


def corners(values: Any) -> Any:
    """Return the cell edges around values on a logarithmic axis, for ``pcolormesh``."""
    logs = np.log(np.asarray(values, dtype=float))
    middle = (logs[1:] + logs[:-1]) / 2
    return np.exp(np.concatenate(([2 * logs[0] - middle[0]], middle, [2 * logs[-1] - middle[-1]])))
