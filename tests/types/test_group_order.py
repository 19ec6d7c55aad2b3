"""In which order and on which range groups are shown, and the charts of text that show them."""

from __future__ import annotations

import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubermean.types.group_order import axis_ends, group_times, order_groups
from hubermean.types.text_chart import ASCII, UNICODE, Span, TimeChart, TimePoint, marks_for

finite = st.floats(allow_nan=False, allow_infinity=False)


def test_groups_are_sorted_with_noise_and_refusals_last() -> None:
    values = [1.0, 9.0, math.nan, 3.0, 2.0]
    noise = [False, True, False, False, False]
    order = order_groups(values, uninformative=noise)
    assert order.rows == (3, 4, 0, 1, 2)
    assert order.ranked == 3
    assert order_groups([5.0, 5.0, 7.0]).rows == (2, 0, 1), "ties keep the order of the table"


def test_groups_in_time_are_in_time_order_whatever_their_values() -> None:
    times = [2023.0, 2021.0, 2022.0]
    order = order_groups([1.0, math.nan, 3.0], uninformative=[True, False, False], times=times)
    assert order.rows == (1, 2, 0)


@given(st.lists(finite | st.just(math.nan), max_size=30), st.integers(2, 12), st.integers(0, 12))
def test_of_many_groups_the_first_and_the_last_are_shown(values: list[float], most: int, every: int) -> None:
    order = order_groups(values)
    shown = order.cut(most, all_up_to=every)
    assert len(shown.rows) + shown.left_out == len(values)
    assert len(set(shown.rows)) == len(shown.rows) <= max(most, every)
    assert (shown.left_out > 0) == (len(values) > max(most, every))
    kept = [values[row] for row in shown.rows if not math.isnan(values[row])]
    assert kept == sorted(kept, reverse=True)
    useful = [value for value in values if not math.isnan(value)]
    if shown.left_out and len(useful) >= most:
        assert kept[0] == max(useful)
        assert kept[-1] == min(useful)


@pytest.mark.parametrize(
    "names",
    [
        ["2023-12", "2024-01", "2024-02"],
        ["2020-W53", "2021-W01"],
        ["2023-Q4", "2024-Q1"],
        ["2024-02-28", "2024-02-29", "2024-03-01"],
        [datetime.date(2023, 12, 31), datetime.date(2024, 1, 1)],
        [1999, 2000, 2001],
        ["1980", "1990", "2000", "2010"],
        [2004, 2008, 2012],
    ],
)
def test_dates_periods_and_years_are_in_time(names: list[object]) -> None:
    times = group_times([(name,) for name in names])
    assert times is not None
    assert list(times) == sorted(times)
    assert group_times([(name,) for name in reversed(names)]) == times[::-1]


@pytest.mark.parametrize(
    "names",
    [
        ["north", "south"],
        ["2023-12", "south"],
        ["2023-12", "2024-Q1"],
        ["2024-02-30", "2024-02-28"],
        [1, 2, 3],
        [True, False],
        [1801, 1950, 1951, 2188],
        ["18-25", "26-35"],
        [2024],
        [None, 2024],
    ],
)
def test_other_names_are_not(names: list[object]) -> None:
    assert group_times([(name,) for name in names]) is None


def test_periods_are_as_far_apart_as_they_are_in_time() -> None:
    times = group_times([("2023-11",), ("2023-12",), ("2024-03",)])
    assert times is not None
    assert [later - times[0] for later in times] == [0.0, 1.0, 4.0]
    assert group_times([("2024", "north"), ("2025", "north")]) is None, "of one column"


@given(st.lists(st.tuples(finite, st.floats(0, 1e6)), min_size=1, max_size=12))
def test_a_chart_shows_every_value_that_is_more_than_noise(pairs: list[tuple[float, float]]) -> None:
    values = [value for value, _ in pairs]
    found = axis_ends(values, [(value - half, value + half) for value, half in pairs])
    assert found is not None
    assert found[0] <= min(values)
    assert found[1] >= max(values)


def test_one_wide_interval_does_not_flatten_the_others() -> None:
    values = [10.0, 11.0, 12.0, 11.5, 1e6]
    ends = [(value - 1, value + 1) for value in values[:4]] + [(-1e9, 1e9)]
    found = axis_ends(values, ends, uninformative=[False] * 4 + [True])
    assert found == (9.0, 13.0)
    assert axis_ends([math.nan], []) is None
    assert axis_ends([1e6], [(-1e9, 1e9)], uninformative=[True]) == (-1e9, 1e9), "where there is nothing else"


# --- text ---------------------------------------------------------------------------------------------------------


def test_an_interval_is_drawn_to_scale() -> None:
    assert Span.on((0.0, 10.0), 5.0, (2.0, 8.0)).draw(10) == "  ├──●──┤"
    assert Span.on((0.0, 10.0), 5.0, (2.0, 8.0)).draw(10, ASCII) == "  |--o--|"
    assert Span.on((0.0, 10.0), 5.0).draw(10) == "     ●"
    assert Span.on((0.0, 10.0), 50.0, (-5.0, 100.0)).draw(6) == "◂────▸", "nothing of the value is shown"


def series(count: int = 24) -> TimeChart:
    points = [
        TimePoint(
            name=f"{2022 + month // 12}-{month % 12 + 1:02}",
            time=float(month),
            value=float(month),
            ends=(month - 2.0, month + 2.0),
        )
        for month in range(count)
    ]
    return TimeChart(points=tuple(reversed(points)), axis=(-2.0, count + 1.0))


@pytest.mark.parametrize("marks", [UNICODE, ASCII])
def test_a_rising_line_rises_from_left_to_right(marks: object) -> None:
    lines = series().lines(70, marks)  # type: ignore[arg-type]
    assert max(map(len, lines)) <= 70
    dot = marks.dot  # type: ignore[attr-defined]
    places = [(line.index(dot), height) for height, line in enumerate(lines[:-1]) if dot in line]
    assert places == sorted(places, reverse=True), "lines further down begin further left"
    assert sum(line.count(dot) for line in lines) == 24
    assert "2022-01" in lines[-1]
    assert lines[-1].endswith("2023-12")
    if marks is ASCII:
        assert "".join(lines).isascii()


def test_a_refused_period_is_left_out_of_the_line() -> None:
    chart = series(4)
    refused = TimePoint(name="2022-02", time=1.0, value=None)
    points = (refused, *(point for point in chart.points if point.time != 1.0))
    lines = TimeChart(points=points, axis=chart.axis).lines(60)
    assert sum(line.count("●") for line in lines) == 3


@pytest.mark.parametrize(
    ("encoding", "plain"),
    [("utf-8", False), (None, False), ("ascii", True), ("latin-1", True), ("cp1252", True)],
)
def test_terminals_without_unicode_get_ascii(encoding: str | None, plain: bool) -> None:
    marks = marks_for(encoding)
    assert (marks.dot == ASCII.dot) == plain
    assert marks.fit("Zürich").isascii() == (encoding == "ascii")
