"""Plots of the paper's panels show what the rows say, and say what they leave out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubermean.errors import InputError
from hubermean_experiments.figures.methods import NON_PRIVATE, methods_for
from hubermean_experiments.figures.panels import PANELS, PanelPoint
from hubermean_experiments.figures.plot_axes import HIGHEST
from hubermean_experiments.figures.plot_styles import AS_PRINTED, STYLES, THEOREM
from hubermean_experiments.figures.plots import overview_figure, panel_figure, save_figure
from hubermean_experiments.figures.rows import ResultRow

RECORDS, GAMMAS = (1, 10, 100), (1, 3, 10)


def rows_of(panel: str, *, users: tuple[int, ...] = (1_000, 10_000)) -> list[ResultRow]:
    """Every method of a panel, each at its own multiple of the non-private error."""
    made = []
    xs = RECORDS if PANELS[panel].axis == "records" else GAMMAS
    for n in users:
        for x in xs:
            level = 1.0 / (n * x) if PANELS[panel].axis == "records" else 0.1 / n
            names = [
                name
                for kind in methods_for(PanelPoint(panel=PANELS[panel], users=n, x=x))
                for name in kind.names
            ]
            for setting in ("paper", "fair"):
                for place, method in enumerate([NON_PRIVATE, *names]):
                    mse = level * (1.0 + 0.3 * place)
                    made.append(
                        ResultRow(
                            panel=panel,
                            setting=setting,
                            users=n,
                            x=x,
                            method=method,
                            mse=mse,
                            mse_error=0.05 * mse,
                            non_private=level,
                            released=1.0,
                            runs=20,
                        )
                    )
    return made


def changed(
    rows: list[ResultRow], method: str, *, ratio: float | None, setting: str, at: set[int]
) -> list[ResultRow]:
    """The same with another error of one method at some points; None for no answer."""
    return [
        replace(
            row,
            mse=None if ratio is None else ratio * row.non_private,
            mse_error=None if ratio is None else 0.0,
        )
        if (row.method, row.setting) == (method, setting) and row.x in at
        else row
        for row in rows
    ]


def legend_of(figure: Figure) -> tuple[list[str], str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()], legend.get_title().get_text()


def drawn_in(axes: Axes, method: str) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Lines with the color, dashes and marker of a method."""
    style = STYLES[method]
    return [
        (tuple(line.get_xdata()), tuple(line.get_ydata()))
        for line in axes.get_lines()
        if line.get_color() == style.color
        and line.get_marker() == (style.marker or "None")
        and line.get_markerfacecolor() == ("white" if style.hollow else style.color)
        and line.get_linewidth() == style.width
    ]


def test_every_method_has_its_own_style() -> None:
    points = [PanelPoint(panel=panel, users=1_000, x=1) for panel in PANELS.values()]
    names = {name for point in points for kind in methods_for(point) for name in kind.names}
    assert set(STYLES) == names | {NON_PRIVATE, THEOREM}
    looks = {(style.color, style.dashes, style.marker, style.hollow) for style in STYLES.values()}
    assert len(looks) == len(STYLES)


def test_a_panel_has_settings_by_numbers_of_users() -> None:
    rows = rows_of("1a")
    figure = panel_figure(PANELS["1a"], rows, moment_order=float("inf"))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "1,000 users, true mean where the paper puts it",
        "10,000 users, true mean where the paper puts it",
        "1,000 users, true mean drawn at random",
        "10,000 users, true mean drawn at random",
    ]
    assert figure.get_suptitle() == "1a: Uniform, d = 1; ε = 1, δ = 1e-5"
    for axes in figure.axes:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert axes.get_xlabel() == "records per user, m"
    ((xs, errors),) = drawn_in(figure.axes[3], "inverse-sensitivity")
    expected = [
        row for row in rows if (row.setting, row.users, row.method) == ("fair", 10_000, "inverse-sensitivity")
    ]
    assert xs == RECORDS
    assert errors == tuple(row.mse for row in expected)
    assert figure.axes[0].get_ylim() == figure.axes[2].get_ylim(), "settings are compared on one scale"


def test_one_number_of_users_is_one_column() -> None:
    figure = panel_figure(PANELS["2b"], rows_of("2b", users=(1_000,)), moment_order=8.0)
    assert len(figure.axes) == 2
    assert figure.get_suptitle().endswith("10 records per user on average")
    (first, second) = figure.axes
    assert first.get_xlabel() == second.get_xlabel() == "degree of imbalance, γ"
    assert [text.get_text() for text in first.get_xticklabels()] == ["1", "2", "3", "5", "10"]


def test_the_non_private_line_is_the_formula_and_the_theorem_has_its_slope() -> None:
    rows = [
        replace(row, mse=7.0 * row.non_private) if row.method == NON_PRIVATE else row for row in rows_of("2a")
    ]
    axes = panel_figure(PANELS["2a"], rows, moment_order=float("inf")).axes[0]
    ((_, level),) = drawn_in(axes, NON_PRIVATE)
    assert level == pytest.approx((1e-4,) * 3)
    ((_, slope),) = drawn_in(axes, THEOREM)
    # 1/N + gamma times a constant: a straight line in gamma.
    assert (slope[2] - slope[0]) / (slope[1] - slope[0]) == pytest.approx((10 - 1) / (3 - 1))


@pytest.mark.parametrize(
    ("panel", "delta", "theorem"),
    [
        ("1a", "actually 1.3e-3", "mse"),
        ("1e", "actually 1.5e-12", "heavytail"),
        ("2a", "actually at least 1.2e-3", "mseunb"),
    ],
)
def test_the_legend_says_what_holds(panel: str, delta: str, theorem: str) -> None:
    texts, note = legend_of(panel_figure(PANELS[panel], rows_of(panel), moment_order=4.0))
    assert texts[0] == f"HLM as printed (claims δ = 1e-5, {delta})"
    assert texts[1] == "HLM, local noise: not private"
    assert texts[-2:] == ["non-private mean", f"slope of Thm {theorem}; its height has no meaning"]
    assert note == "Bars are standard errors; most are smaller than their markers."


def test_no_release_is_no_point() -> None:
    rows = changed(rows_of("1a"), "auto", ratio=None, setting="paper", at={100})
    rows = changed(rows, "smooth-sensitivity", ratio=None, setting="paper", at={*RECORDS})
    rows = changed(rows, "smooth-sensitivity", ratio=None, setting="fair", at={*RECORDS})
    figure = panel_figure(PANELS["1a"], rows, moment_order=4.0)
    ((xs, _),) = drawn_in(figure.axes[0], "auto")
    assert xs == (1, 10)
    texts, note = legend_of(figure)
    assert not any(text.startswith("smooth-sensitivity") for text in texts)
    assert "Where a curve has no point, the method does not release." in note
    assert note.endswith("No release at any point: smooth-sensitivity.")


def test_points_far_above_are_marked_and_do_not_compress_the_frame() -> None:
    usual = rows_of("2a")
    rows = changed(usual, AS_PRINTED, ratio=6e5, setting="fair", at={3, 10})
    figure = panel_figure(PANELS["2a"], rows, moment_order=4.0)
    paper, _, fair, _ = figure.axes
    carets = [line for line in fair.get_lines() if line.get_marker() == "^"]
    assert [tuple(line.get_xdata()) for line in carets] == [(3, 10)]
    assert carets[0].get_markerfacecolor() == STYLES[AS_PRINTED].color
    assert [text.get_text() for text in fair.texts] == [r"$6\cdot10^{5}$×"]
    assert not [line for line in paper.get_lines() if line.get_marker() == "^"]
    _, note = legend_of(figure)
    assert "▲ in the gray strip: an error above 300 times the largest non-private error" in note
    (ticks,) = {tuple(axes.get_yticks()) for axes in (paper, fair)}
    assert max(ticks) < HIGHEST * 1e-4
    # The line leaves at the strip's edge instead of running through it.
    (line,) = (line for line in fair.get_lines() if line.get_marker() == "o" and max(line.get_ydata()) > 1.0)
    assert line.get_clip_box().y1 < fair.bbox.y1
    assert line.get_markevery() == [0]
    without = panel_figure(PANELS["2a"], usual, moment_order=4.0).axes[2]
    assert fair.get_ylim()[1] < 1.5 * without.get_ylim()[1]


def test_no_point_lies_on_the_edge_of_the_strip() -> None:
    rows = changed(rows_of("2a"), AS_PRINTED, ratio=0.99 * HIGHEST, setting="fair", at={1})
    rows = changed(rows, AS_PRINTED, ratio=1.3 * HIGHEST, setting="fair", at={3})
    rows = changed(rows, AS_PRINTED, ratio=9.0 * HIGHEST, setting="fair", at={10})
    axes = panel_figure(PANELS["2a"], rows, moment_order=4.0).axes[2]
    (carets,) = (line for line in axes.get_lines() if line.get_marker() == "^")
    assert tuple(carets.get_xdata()) == (10,)
    (edge,) = (line.get_ydata()[0] for line in axes.get_lines() if line.get_color() == "#bbbbbb")
    assert edge > 1.4 * 1.3 * HIGHEST * 1e-4


def test_an_overview_has_the_papers_layout() -> None:
    by_panel = {name: rows_of(name) for name in PANELS if name not in ("1g", "1h", "2d")}
    orders = {panel.distribution: 4.0 for panel in PANELS.values()}
    for number, shape in (("1", (2, 4)), ("2", (1, 4))):
        figure = overview_figure(number, by_panel, setting="fair", users=1_000, moment_orders=orders)
        assert figure.axes[0].get_gridspec().get_geometry() == shape
        assert figure.axes[0].get_title(loc="left") == f"{number}a: Uniform, d = 1"
        assert figure.get_suptitle().startswith(f"Figure {number}: 1,000 users, true mean drawn at random")
        assert [text.get_text() for text in figure.axes[-1].texts] == ["not run"]
        texts, _ = legend_of(figure)
        if number == "1":
            assert texts[0].endswith("(claims δ = 1e-5, actually 1.3e-3 for d = 1, 1.5e-12 for d = 3)")
            assert texts[-1] == "slope of the panel's theorem; its height has no meaning"


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    rows = changed(rows_of("1d"), AS_PRINTED, ratio=1e6, setting="paper", at={*RECORDS})
    found = []
    for run in ("one", "two"):
        paths = save_figure(panel_figure(PANELS["1d"], rows, moment_order=4.0), tmp_path / run, "1d")
        assert [path.name for path in paths] == ["1d.svg", "1d.png"]
        found.append([path.read_bytes() for path in paths])
    assert found[0] == found[1]
    svg, png = found[0]
    assert b"<dc:date>" not in svg
    assert b" \n" not in svg
    assert png.startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["1d.png", "1d.svg"]


def test_failures_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no results of panel 1b"):
        panel_figure(PANELS["1b"], rows_of("1a"), moment_order=8.0)
    (tmp_path / "file").write_text("")
    figure = panel_figure(PANELS["1a"], rows_of("1a", users=(1_000,)), moment_order=4.0)
    with pytest.raises(InputError, match="cannot be written"):
        save_figure(figure, tmp_path / "file", "1a")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"hubermean\[plot\]"):
        panel_figure(PANELS["1a"], rows_of("1a"), moment_order=4.0)
