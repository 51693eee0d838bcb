"""Every figure: drawn from its dataset alone, legible, captioned; its numbers are tested in test_figure_*.py."""

import ast
import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from cheetah_xr import SpecError
from cheetah_xr.figures import render
from cheetah_xr.figures.catalogue import FIGURES, FIGURES_BY_SOURCE, INTERVALS, TABLES
from cheetah_xr.figures.shared.style import RC, spread
from tests.helpers.priors import draws_of_priors, write_csv


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Data and picture of every figure, made once; intervals are those of a posterior of few draws."""
    posterior = str(write_csv(tmp_path_factory.mktemp("posterior") / "prior.csv", draws_of_priors(20)))
    made = {}

    def case(name):
        if name not in made:
            ds = render.data_of(name, posterior=posterior if name in FIGURES_BY_SOURCE[INTERVALS] else None)
            made[name] = (ds, picture(name, ds))
        return made[name]

    return case


def picture(name, ds):
    with mpl.rc_context(RC):
        fig = render.figure_module(name).draw(ds)
        FigureCanvasAgg(fig).draw()
    return fig


def pixels(fig):
    return np.asarray(fig.canvas.buffer_rgba())


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_function_of_its_dataset(name, cases, tmp_path):
    ds, fig = cases(name)
    ds.to_netcdf(tmp_path / "numbers.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "numbers.nc", engine="netcdf4") as stored:
        again = picture(name, stored.load())
    np.testing.assert_array_equal(pixels(again), pixels(fig))


@pytest.mark.parametrize("name", FIGURES)
def test_axes_and_captions_say_what_they_show(name, cases):
    ds, fig = cases(name)
    assert len(ds.attrs["title"]) > 10
    assert ds.attrs["shows"].endswith(".")
    assert ds.attrs["assumptions"].endswith(".")
    titles = {ax.get_title(loc) for ax in fig.axes for loc in ("left", "center")} | {fig.get_suptitle()}
    assert ds.attrs["title"] in {" ".join(title.split()) for title in titles}
    shared = fig.get_supxlabel() and fig.get_supylabel()
    assert all(shared or ax.get_xlabel() or ax.get_ylabel() for ax in fig.axes if ax.axison)


def texts(fig):
    """Every visible text of a figure with its box in pixels."""
    renderer = fig.canvas.get_renderer()
    unseen = {id(text) for ax in fig.axes for text in unseen_labels(ax)}
    for text in fig.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in unseen:
            box = text.get_window_extent(renderer)
            if box.width > 1 and box.height > 1:
                yield text.get_text(), box


def unseen_labels(ax):
    """Tick labels that are not drawn: outside the limits, or of an axis that is switched off."""
    for axis in (ax.xaxis, ax.yaxis):
        ticks = [*axis.majorTicks, *axis.minorTicks]
        drawn = {id(tick) for tick in axis._update_ticks()} if ax.axison and axis.get_visible() else set()
        yield from (label for tick in ticks if id(tick) not in drawn for label in (tick.label1, tick.label2))
        if not (ax.axison and axis.get_visible()):
            yield axis.label


@pytest.mark.parametrize("name", FIGURES)
def test_no_two_texts_overlap_and_none_is_cut(name, cases):
    texts_are_clear(name, cases(name)[1])


def texts_are_clear(name, fig):
    actual = list(texts(fig))
    width, height = fig.canvas.get_width_height()
    cut = [text for text, box in actual if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1]
    assert not cut, f"{name}: cut off: {cut}"
    touching = [
        (a, b)
        for (a, first), (b, second) in itertools.combinations(actual, 2)
        if min(first.x1, second.x1) - max(first.x0, second.x0) > 1.5
        and min(first.y1, second.y1) - max(first.y0, second.y0) > 1.5
    ]
    assert not touching, f"{name}: overlapping: {touching}"


AWKWARD = [
    ("roofline", {"model": "gpt-oss-120b"}, "Part of prefill reaches the compute roof"),
    ("roofline", {"gpu": "h20"}, "Prefill reaches the compute roof of one H20, so does part of decode"),
    ("prefill-flops", {"model": "mistral-7b-v0.1"}, "linear layers at any length"),
    ("decode-bytes", {"model": "deepseek-v4-flash"}, "to the batch and grows more slowly than the context"),
    ("intensity-map", {"model": "qwen3-0.6b"}, "bound by memory at any batch"),
    ("intensity-map", {"model": "deepseek-v3", "gpu": "rtx-4090"}, "on some GPUs at any context"),
    ("moe-batching", {"model": "deepseek-v4-flash"}, "256 experts of DeepSeek-V4-Flash"),
    ("ttft", {"model": "gpt-oss-120b"}, "as it reads the weights once for all"),
    ("cpu-overhead", {"gpu": "rtx-4090"}, "Qwen3-32B: too large for it"),
    ("roofline-prefill", {"model": "gpt-oss-120b"}, "stays left of the ridge"),
    ("roofline-decode", {"model": "mistral-7b-v0.1"}, "the most at any context"),
    ("memory-budget", {"model": "qwen3-0.6b"}, "requests fit in the rest"),
    ("memory-budget", {"model": "deepseek-v4-flash"}, "not one request fits"),
    ("activation-reserve", {"model": "deepseek-v4-flash"}, "Not one request fits"),
    ("kv-by-context", {"gpu": "rtx-4090"}, "no request fits"),
    ("cost-interactivity", {"model": "gpt-oss-120b"}, "mxfp4-experts"),
]
"""Models and accelerators for which the default title or caption would be false."""


@pytest.mark.parametrize(("name", "asked", "words"), AWKWARD)
def test_titles_and_captions_follow_what_is_redrawn(name, asked, words, cases):
    ds = render.data_of(name, **asked)
    said = " ".join(ds.attrs[part] for part in ("title", "shows", "assumptions"))
    assert words in said
    assert words not in " ".join(map(str, cases(name)[0].attrs.values())) or name == "memory-budget"
    assert not {"nan", "inf"} & set(said.replace(",", " ").replace(".", " ").split())
    fig = picture(name, ds)
    texts_are_clear(name, fig)
    assert not any("nan" in text.split() for text, _ in texts(fig))


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("regime-map", {"model": "deepseek-v4-flash", "gpu": "rtx-4090"}, "nothing to draw"),
        ("prefill-fraction-attention", {"model": "minimax-m3"}, "full grouped-query attention"),
        ("roofline", {"model": "opt-125m"}, "seq_beyond_max"),
    ],
)
def test_what_cannot_be_redrawn_is_a_message(name, asked, words):
    with pytest.raises(SpecError, match=words):
        render.data_of(name, **asked)


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_legible_at_half_size(name, cases):
    _, fig = cases(name)
    small = {
        t.get_text(): t.get_fontsize() for t in fig.findobj(Text) if t.get_text().strip() and t.get_fontsize() < 7.5
    }
    assert not small, small


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_rows_and_says_what_it_shows(name):
    ds = render.data_of(name)
    frame = render.table_frame(ds)
    assert len(frame) > 0
    assert ds.attrs["shows"].endswith(".")
    assert ds.attrs["assumptions"].endswith(".")
    lines = render.aligned(frame).splitlines()
    assert len(lines) == len(frame) + 2


def test_labels_are_pushed_apart_no_more_than_needed():
    assert spread([0.0, 100.0], 10) == [0, 100]
    assert spread([0.0, 0.0, 0.0], 10) == [-10, 0, 10]
    assert spread([0.0, 4.0, 50.0], 10) == [-3, 7, 50]


def test_make_writes_pictures_numbers_and_a_gallery(tmp_path, cli):
    ran = cli("figures", "regime-map", "--out", tmp_path, "--model", "llama-3.1-8b")
    assert ran.code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "index.html", "regime-map.nc", "regime-map.pdf", "regime-map.png",
    ]  # fmt: skip
    page = (tmp_path / "index.html").read_text()
    assert "Llama-3.1-8B" in page
    assert "regime-map.nc" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), ("nonsense", "regime-map")),
        (("regime-map", "--gpu", "h1000"), ("h1000",)),
    ],
)
def test_bad_requests_are_one_message(cli, tmp_path, arguments, words):
    ran = cli("figures", *arguments, "--out", tmp_path / "out")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert all(word in ran.err for word in words)


@pytest.mark.slow
def test_figures_that_cannot_be_redrawn_are_named(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(render, "names", lambda: ["roofline-ridge-points", "kv-by-context"])
    ran = cli("figures", "--out", tmp_path, "--model", "llama-3.1-8b")
    assert ran.code == 0
    assert "roofline-ridge-points: left out: " in ran.err
    assert {p.suffix for p in tmp_path.glob("kv-by-context.*")} == {".png", ".pdf", ".nc"}
    assert cli("figures", "--out", tmp_path, "--model", "llama-9").code == 2


@pytest.mark.parametrize(
    ("folder", "not_from"), [("shared", ("plots", "tables")), ("plots", ("tables",)), ("tables", ("plots",))]
)
def test_plots_and_tables_import_what_they_have_in_common_from_shared(folder, not_from):
    for path in (Path(render.__file__).parent / folder).glob("*.py"):
        modules = [n.module or "" for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        assert not [module for module in modules if module.split(".")[0] in not_from], path
