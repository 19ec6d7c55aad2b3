"""Reports: one page that holds what the release holds, whatever its columns and groups are called."""

from __future__ import annotations

import html.parser
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.report_table import Refusal, StandIn, made
from hubermean.accounting.budget import BudgetEntry, whole_budget
from hubermean.report.chart import Point, comparable, forest, strip
from hubermean.report.file import Destination
from hubermean.report.guarantee import certainty
from hubermean.report.page import page
from hubermean.types.axis import Axis, label
from hubermean.types.request import Neighbors

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = (
    '</title></svg><script>alert(1)</script><img src="https://x.example/y" onerror=z>&amp;\u202e\x00\x1b[31m'
)
finite = st.floats(allow_nan=False, allow_infinity=False)


class Reader(html.parser.HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def groups(count: int, *, columns: int = 1, **changes: Any) -> StandIn:
    names = tuple(f"value {number}" for number in range(columns))
    items = [
        made(
            *(10.0 + number + column for column in range(columns)),
            columns=names,
            group={"city": f"c{number:03d}"},
        )
        for number in range(count)
    ]
    return StandIn(items=items, columns=names, **changes)


# --- what the page says -----------------------------------------------------------------------------------------------


def test_a_page_says_what_the_release_says() -> None:
    release = made(
        14.7249, columns=["fare"], half=0.11, parameters={"max_records": 12, "bounds": [0.0, 99.5]}
    )
    read = Reader(page(release, source="/home/ann/2024/trips.parquet"))
    for words in (
        "Private mean of fare",
        "fare, mean over records 14.72",
        "95% interval: 14.61 to 14.84",
        "epsilon = 1, replace-user",
        "at most 73.2% sure",
        release.guarantee,
        "max records 12",
        "bounds 0, 99.5",
        "users (public) 1,234",
        "From trips.parquet.",
        "noise and sampling",
    ):
        assert words in read.words, words
    for hidden in ("ann", "2024", "/home"):
        assert hidden not in read.words


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("trips.csv", "From trips.csv."),
        ("C:\\ann\\trips.csv", "From trips.csv."),
        ("data/*.parquet", "From *.parquet."),
        ("folder/", "From folder."),
        ("", None),
        (None, None),
    ],
)
def test_only_the_name_of_the_file_is_shown(source: str | None, shown: str | None) -> None:
    words = Reader(page(made(1.0), source=source)).words
    assert shown in words if shown is not None else "From " not in words


@pytest.mark.parametrize(
    ("relation", "hidden", "visible"),
    [
        (
            Neighbors.REPLACE_USER,
            "all of that user's records were replaced by any others",
            "The number of users is public",
        ),
        (
            Neighbors.REPLACE_VALUES,
            "all of that user's values were replaced by any others",
            "the number of records of each are public",
        ),
        (
            Neighbors.ADD_REMOVE,
            "without that user's data",
            "Whether someone is in the data at all is protected",
        ),
    ],
)
def test_the_guarantee_follows_the_relation(relation: Neighbors, hidden: str, visible: str) -> None:
    words = Reader(page(made(1.0, neighbors=relation, n_users=None))).words
    assert hidden in words
    assert visible in words
    assert "users (public)" not in words
    if relation is Neighbors.ADD_REMOVE:  # a user with one record and with another are two changes apart
        assert (
            "50% sure that a user is in the data, and knows the records of all others, can become at most 73.2% sure"
            in words
        )
        assert "anything else about a user, 50% can become at most 88.1%" in words
        assert "of something about" not in words
    else:
        assert (
            "50% sure of something about a user, and knows the records of all others, can become at most 73.2%"
            in words
        )
        assert "88.1%" not in words


def test_two_changes_have_more_than_twice_the_delta() -> None:
    words = Reader(
        page(
            made(
                1.0,
                neighbors=Neighbors.ADD_REMOVE,
                n_users=None,
                delta=1e-6,
                budget_breakdown=whole_budget(1.0, 1e-6),
            )
        )
    ).words
    assert "Delta = 1e-06 is about the probability" in words
    assert "anything else about a user it is 3.8e-06." in words  # (1 + e) delta, rounded up


def test_delta_and_a_large_epsilon_are_named_for_what_they_are() -> None:
    plain = Reader(page(made(1.0))).words
    assert "guarantees little" not in plain
    assert "Delta" not in plain
    weak = Reader(page(made(1.0, epsilon=40.0, delta=1e-6, budget_breakdown=whole_budget(40.0, 1e-6)))).words
    assert "nearly 100% sure" in weak
    assert "guarantees little" in weak
    assert "Delta = 1e-06 is about the probability" in weak
    assert "Delta = 1e-06 was spent on the mean" in weak


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 5.0, 1e9])
def test_certainty_is_the_posterior_of_the_worst_outcome(epsilon: float) -> None:
    """Odds of one to one times e^epsilon."""
    odds = math.exp(min(epsilon, 700.0))
    assert certainty(epsilon) == pytest.approx(odds / (1.0 + odds))


def test_seeded_noise_is_not_passed_off_as_private() -> None:
    assert "protects nobody" in Reader(page(made(1.0, parameters={"insecure_noise": True}))).words
    assert "protects nobody" not in Reader(page(made(1.0))).words


def test_the_account_is_a_bar_and_a_table() -> None:
    spent = (
        BudgetEntry(what="contribution bound", amount=0.06, unit="epsilon"),
        BudgetEntry(what="weight of all users", amount=0.0001, unit="epsilon"),
        BudgetEntry(what="the mean", amount=0.9399, unit="epsilon"),
    )
    read = Reader(page(made(1.0, budget_breakdown=spent)))
    assert "contribution bound 0.06 6.0%" in read.words
    assert "weight of all users 0.0001 below 0.1%" in read.words
    widths = [
        float(one["width"].rstrip("%")) for one in read.named("rect") if "y" in one and one["height"] == "22"
    ]  # type: ignore[union-attr]
    assert widths == pytest.approx([6.0, 0.01, 93.99], abs=0.01)
    once = Reader(page(made(1.0)))
    assert "All of epsilon = 1 was spent in one step, on the mean." in once.words


def test_a_concentrated_account_is_explained() -> None:
    spent = tuple(
        BudgetEntry(what=what, amount=0.01, unit="rho") for what in ("place of user means", "the mean")
    )
    words = Reader(page(made(1.0, 2.0, delta=1e-6, budget_breakdown=spent))).words
    assert "Rho is the unit of concentrated" in words
    assert "place of user means 0.01 50.0%" in words


def test_a_release_without_an_interval_has_a_page() -> None:
    read = Reader(page(made(3.5, half=None)))
    assert "No interval is available" in read.words
    assert not [one for one in read.named("svg") if str(one.get("class")).startswith("chart")]


def test_up_to_ten_columns_are_drawn_and_all_are_written() -> None:
    ten = Reader(page(made(*range(10))))
    assert "All columns" not in ten.words
    eleven = Reader(page(made(*range(11))))
    assert "The charts show the first 10 of 11 columns" in eleven.words
    assert len(eleven.named("circle")) == 10
    assert "column 10 10.00 9.5 to 10.5" in eleven.words


def test_columns_of_different_sizes_have_axes_of_their_own() -> None:
    alike = Reader(page(made(10.0, 12.0)))
    apart = Reader(page(made(10.0, 12_000.0)))
    charts = [
        [one for one in read.named("svg") if str(one.get("class")).startswith("chart")]
        for read in (alike, apart)
    ]
    assert [len(one) for one in charts] == [1, 2]


# --- tables of groups -------------------------------------------------------------------------------------------------


def test_groups_are_drawn_by_value_and_written_in_their_order() -> None:
    table = groups(45, by=("city",))
    read = Reader(page(table, title="Fares"))
    assert read.words.count("Fares") == 2  # title and heading
    assert len(read.named("circle")) == 40
    assert "The charts show the 20 largest and the 20 smallest of 45 groups" in read.words
    assert "5 more groups" in read.words
    written = re.findall(r"c\d{3}", read.words.split("All groups")[1].split("What is guaranteed")[0])
    assert written == [f"c{number:03d}" for number in range(45)]
    assert "all groups of this page together" in read.words
    assert table.guarantee in read.words


def months(count: int, *, half: float | None = 0.5, columns: int = 1) -> StandIn:
    names = tuple(f"value {number}" for number in range(columns))
    items = [
        made(
            *(10.0 + number % 5 + column for column in range(columns)),
            columns=names,
            half=half,
            group={"month": f"{2020 + number // 12}-{number % 12 + 1:02}"},
        )
        for number in range(count)
    ]
    return StandIn(items=items[::-1], by=("month",), columns=names)


@pytest.mark.parametrize("count", [3, 60, 300])
def test_groups_in_time_are_a_line_with_a_band_in_time_order(count: int) -> None:
    read = Reader(page(months(count)))
    (line,), (band,) = read.named("polyline"), read.named("polygon")
    points = [tuple(map(float, pair.split(","))) for pair in str(line["points"]).split()]
    assert len(points) == count
    assert points == sorted(points, key=lambda point: point[0])
    assert len(str(band["points"]).split()) == 2 * count
    written = re.findall(r"20\d\d-\d\d", read.words.split("All groups")[1].split("What is guaranteed")[0])
    assert written == sorted(written)
    assert len(written) == count
    assert "Band: 95% interval" in read.words


def test_a_line_without_intervals_has_no_band_and_two_months_are_no_line() -> None:
    read = Reader(page(months(5, half=None)))
    assert read.named("polyline")
    assert not read.named("polygon")
    two = Reader(page(months(2)))
    assert not two.named("polyline")
    assert len(Reader(page(months(6, columns=2))).named("polyline")) == 2


def test_an_interval_beyond_the_chart_is_cut_off() -> None:
    items = [
        made(10.0 + number, columns=["fare"], half=0.5, group={"city": str(number)}, parameters={})
        for number in range(8)
    ]
    items.append(made(12.0, columns=["fare"], half=1e6, group={"city": "few"}, parameters={}))
    table = StandIn(items=items)
    words = Reader(page(table)).words
    assert "What reaches beyond a chart is cut off." in words
    assert "What reaches beyond" not in Reader(page(replace(table, items=items[:-1]))).words


def test_a_notebook_shows_the_chart_of_groups() -> None:
    data = {
        "rider": np.arange(900),
        "month": np.repeat(["2024-01", "2024-02", "2024-03"], 300),
        "fare": np.ones(900),
    }
    table = hm.mean(
        data,
        user="rider",
        value="fare",
        by="month",
        keys=["2024-03", "2024-01", "2024-02"],
        epsilon=1,
        bounds=(0, 2),
        per="user",
    )
    shown = Reader(table._repr_html_())
    assert len(shown.named("polyline")) == 1
    assert shown.words.index("2024-01") < shown.words.index("2024-03")
    assert "<script" not in table._repr_html_()


def test_a_group_that_was_refused_says_so() -> None:
    items = [
        made(1.0, columns=["fare"], group={"city": "A", "year": 1}),
        Refusal({"city": None, "year": 2}, "too few users <here>"),
        made(2.0, columns=["fare"], half=None, group={"city": "B", "year": 3}),
    ]
    read = Reader(page(StandIn(items=items, by=("city", "year"))))
    assert "3 groups by city and year, 2 of them released" in read.words
    assert "all 2 not released: too few users <here>" in read.words
    assert len(read.named("circle")) == 2


def test_tables_of_several_columns_have_a_chart_for_each_of_the_first() -> None:
    read = Reader(page(groups(3, columns=6)))
    assert len([one for one in read.named("svg") if str(one.get("class")).startswith("chart")]) == 4
    assert "the first 4 of 6 columns" in read.words
    assert "value 5, 95% interval" in read.words


@pytest.mark.parametrize("count", [0, 1])
def test_tables_of_next_to_nothing(count: int) -> None:
    words = Reader(page(groups(count))).words
    assert f"{count} group{'' if count == 1 else 's'} by city" in words


# --- hostile names and numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["release", "wide", "table"])
def test_no_name_is_markup(kind: str) -> None:
    release: Any = made(
        1.0, columns=[HOSTILE], mechanism=HOSTILE, parameters={HOSTILE: HOSTILE, "k": [HOSTILE]}
    )
    if kind == "wide":
        release = made(*range(12), columns=[HOSTILE + str(number) for number in range(12)])
    if kind == "table":
        items = [made(1.0, columns=[HOSTILE], group={HOSTILE: HOSTILE}), Refusal({HOSTILE: HOSTILE}, HOSTILE)]
        release = StandIn(items=items, by=(HOSTILE,), columns=(HOSTILE,))
    text = page(release, title=HOSTILE, source=HOSTILE)
    read = Reader(text)
    assert not {"script", "img"} & {name for name, _ in read.elements}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert HOSTILE[:10] in "".join(read.text)  # but it is shown
    only_own = {"title", "svg", "p", "h1", "th", "td", "tr", "div", "text", "g", "rect", "line", "circle"}
    for name, attributes in read.elements:
        assert name not in only_own or not any(key.startswith("on") or key == "src" for key in attributes)


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    text = page(groups(3))
    read = Reader(text)
    assert [one["href"] for one in read.named("link")] == ["data:,"]
    (policy,) = [one for one in read.named("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy["content"]).startswith("default-src 'none'")
    assert not re.search(r"https?:|url\(|@import|<script", text)


def test_charts_and_tables_are_accessible() -> None:
    for release in (made(1.0), made(1.0, 2000.0), groups(3)):
        read = Reader(page(release))
        names = [str(one["id"]) for _, one in read.elements if "id" in one]
        assert len(names) == len(set(names))
        for drawing in read.named("svg"):
            if drawing.get("role") == "img":
                assert set(str(drawing["aria-labelledby"]).split()) <= set(names)
        assert all(one.get("scope") in ("row", "col") for one in read.named("th"))
        assert len(read.named("h1")) == len(read.named("main")) == 1
        assert ("html", {"lang": "en"}) in read.elements


def luminance(color: str) -> float:
    """Of WCAG 2.1."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_and_marks_stand_out(scheme: int) -> None:
    from hubermean.report.style import STYLE

    found = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[scheme]
    colors = dict(re.findall(r"--(\w+): (#\w{6})", found))

    def contrast(first: str, second: str) -> float:
        lights = sorted(luminance(colors[name]) for name in (first, second))
        return (lights[1] + 0.05) / (lights[0] + 0.05)

    for text in ("ink", "muted", "accent", "warn"):
        for ground in ("card", "ground", "band"):
            assert contrast(text, ground) >= 4.5, (text, ground)
    for mark in ("wide", *(f"part{number}" for number in range(8))):
        assert contrast(mark, "card") >= 3.0, mark


@given(st.lists(finite, min_size=1, max_size=5), st.floats(min_value=0, max_value=1e300))
@settings(deadline=None, max_examples=60)
def test_every_number_in_a_drawing_is_finite_and_within_it(values: list[float], half: float) -> None:
    text = page(made(*values, half=half))
    for one in Reader(text).elements:
        for key, written in one[1].items():
            if key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "r"):
                position = float(str(written).rstrip("%"))
                assert math.isfinite(position)
                assert 0.0 <= position <= 100.0 or not str(written).endswith("%")
    if all(math.isfinite(value + end) for value in values for end in (half, -half)):
        assert not re.search(r"\b(nan|inf)\b", Reader(text).words.lower())


# --- axes -------------------------------------------------------------------------------------------------------------


@given(st.lists(finite, min_size=1, max_size=6))
@settings(deadline=None, max_examples=300)
def test_an_axis_holds_all_numbers_and_a_few_round_ticks(numbers: list[float]) -> None:
    axis = Axis.covering(numbers)
    assert all(0.0 < axis.position(number) < 100.0 for number in numbers)
    assert 2 <= len(axis.ticks) <= 8
    values = [tick.value for tick in axis.ticks]
    steps = {second - first for first, second in itertools.pairwise(values)}
    assert len(steps) == 1
    (step,) = steps
    digits = str(step.numerator).rstrip("0") if step.denominator == 1 else str(step.denominator)
    assert digits.lstrip("0")[0] in "125"
    assert axis.low <= values[0]
    assert values[-1] <= axis.high
    assert not axis.ticks[0].spare


@given(st.integers(-(10**6), 10**6), st.integers(-12, 25))
def test_labels_say_what_the_tick_is(multiple: int, exponent: int) -> None:
    value = multiple * Fraction(10) ** exponent
    assert Fraction(label(value, exponent).replace(",", "")) == value


def test_labels_stay_within_the_chart() -> None:
    """At the ends they do not hang over, where a printer would cut them off."""
    point = Point(name="", text="", value=16.21, wide=(15.9305, 16.4695))
    labels = re.findall(r'<text x="([\d.]+)%"[^>]*text-anchor="(\w+)"', strip(point, name="a", title="b"))
    assert [anchor for _, anchor in labels] == ["start", *["middle"] * (len(labels) - 2), "end"]


def test_what_is_not_on_the_axis_is_at_its_end() -> None:
    axis = Axis.covering([1.0, 2.0])
    ends = [axis.position(end) for end in (-math.inf, math.inf, -5.0, 5.0)]
    assert ends == [0.0, 100.0, 0.0, 100.0]
    assert Axis.covering([]).ticks
    assert Axis.covering([math.inf, math.nan, 3.0]).position(3.0) == 50.0


def test_intervals_too_narrow_to_be_seen_are_not_compared() -> None:
    wide, narrow = (Point(name="", text="", value=0.0, wide=(0.0, width)) for width in (100.0, 1.0))
    assert comparable([wide, wide])
    assert not comparable([wide, narrow])
    assert comparable([Point(name="", text="", value=0.0), Point(name="", text="", value=1e9)])
    assert "<svg" in strip(wide, name="a", title="b") + forest([wide], name="a", title="b")


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_page_is_written_whole_with_the_usual_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    target.write_text("old")
    Destination.checked(target).write("new \N{GREEK SMALL LETTER EPSILON}")
    assert target.read_text(encoding="utf-8") == "new ε"
    other = tmp_path / "plain"
    other.write_text("")
    assert target.stat().st_mode == other.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "plain"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.html"
    target.write_text("old")
    destination = Destination.checked(target)

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        destination.write("new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "is a folder"), ("no/such/folder.html", "does not exist; create it"), (".", "is a folder")],
)
def test_a_file_that_cannot_be_written_is_refused(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(hm.InputError, match=sentence):
        Destination.checked(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be allowed to write anywhere, so the system's answer is made up."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(hm.InputError, match="no file can be created"):
        Destination.checked(tmp_path / "out.html")


def test_importing_hubermean_does_not_import_reports() -> None:
    code = "import sys, hubermean; print('hubermean.report' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


# --- a browser --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_reads_the_page_as_it_was_meant(tmp_path: Path) -> None:
    """Hostile names and all: no element appears that was not written, and nothing is fetched."""
    items = [made(1.0 + number, columns=[HOSTILE], group={"g": HOSTILE}) for number in range(4)]
    text = page(StandIn(items=items, by=("g",), columns=(HOSTILE,)), title=HOSTILE)
    file, log = tmp_path / "page.html", tmp_path / "net.json"
    file.write_text(text, encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--dump-dom",
    ]
    quiet = ["--disable-background-networking", "--disable-component-update", f"--log-net-log={log}"]
    shown = subprocess.run(
        [str(BROWSER), *options, *quiet, file.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    written, parsed = (
        [name for name, _ in Reader(one).elements if name != "html"] for one in (text, shown.stdout)
    )
    assert parsed == written
    assert "x.example" not in log.read_text()


def test_what_a_number_should_not_be_taken_for_is_on_the_page() -> None:
    """The warning of a release, and the assumption behind its interval."""
    means = np.random.default_rng(3).lognormal(0, 1, 3000)
    release = replace(hm.mean_of_user_means(means, epsilon=1), warnings=("A few users carry <most> of it.",))
    shown = page(release)
    assert "A few users carry &lt;most&gt; of it." in shown
    assert "no more than" in shown
    assert release.interval_details().assumption.split(" times")[0] in shown  # type: ignore[union-attr]
