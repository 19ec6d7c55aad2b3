"""`page`: a release as one HTML file with nothing beside it, no scripts, and no request to anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hubermean._version import __version__
from hubermean.accounting.budget import format_amounts, has_stages
from hubermean.report.chart import Point, bar, color_class, comparable, forest, strip
from hubermean.report.document import document, facts_table, note, number_cell, safe, section, table, tag
from hubermean.report.guarantee import NOT_COVERED, explain_guarantee
from hubermean.report.style import NOTEBOOK_STYLE
from hubermean.report.subject import NARROW_LEVEL, Line, Subject
from hubermean.report.time_chart import time_chart
from hubermean.types.formatting import SHOWN, number, readable
from hubermean.types.group_order import FEWEST_IN_A_LINE
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable

GROUPS_DRAWN, GROUPS_IN_A_NOTEBOOK = 40, 16
COLUMNS_DRAWN = 4
"""In a table of groups, where each column has its own chart."""
NO_INTERVAL = (
    "No interval is available: this mechanism has none that can be computed from released numbers alone."
)
_NAMED = 3  # columns that a heading names


def page(release: Release | ReleaseTable, *, title: str | None = None, source: str | None = None) -> str:
    """Return one self-contained HTML page about a release or a table of releases.

    Args:
        release: what is shown; the page holds nothing else.
        title: the heading; by default made of the column names.
        source: where the data came from; of a path only the file name is shown.

    Returns:
        The page as text. It loads nothing from elsewhere and has no scripts.

    Raises:
        InputError: `release` is neither a release nor a table of releases.

    Formal guarantees: the page is a function of its arguments. It shows nothing but what the release holds, so it may
    be published wherever the release may.

    >>> import hubermean as hm
    >>> release = hm.mean_of_user_means([4.1, 5.0, 3.7], per="user", bounds=(0, 10), epsilon=1e6)
    >>> "<h1>Ratings</h1>" in page(release, title="Ratings")
    True
    """
    heading, parts = show_release(release, title=title, source=source)
    made = (
        f"Made with hubermean {__version__}. Everything on this page was released under the guarantee above or was "
        "public before."
    )
    return document(heading, [*parts, tag("footer", safe(made))])


def show_release(
    release: Release | ReleaseTable, *, title: str | None = None, source: str | None = None
) -> tuple[str, list[str]]:
    """Return the heading of a page about a release, and its header and sections as safe parts; see `page`."""
    subject = Subject.of(release)
    heading = title if title is not None else _heading(subject)
    return heading, [
        _header(subject, heading, source),
        _answer(subject),
        *_all_rows(subject),
        _show_guarantee(subject),
        _budget(subject),
        _facts(subject),
    ]


def _heading(subject: Subject) -> str:
    if len(subject.columns) > _NAMED:
        named = f"Private {subject.info.statistic}s of {len(subject.columns):,} columns"
    else:
        named = f"Private {subject.info.statistic} of {' and '.join(subject.columns)}"
    return f"{named} by {' and '.join(subject.by)}" if subject.is_table else named


def _header(subject: Subject, heading: str, source: str | None) -> str:
    info = subject.info
    privacy = f"Differentially private for whole users: {info.budget}, {info.neighbors.value}."
    lines = [tag("h1", safe(heading)), tag("p", safe(privacy), class_="sub")]
    if source is not None and (name := _file_name(source)):
        lines.append(tag("p", safe(f"From {name}."), class_="sub"))
    return tag("header", *lines)


def _file_name(source: str) -> str:
    """Return the file name without its folders, which may reveal people or machines."""
    return re.split(r"[/\\]", source.rstrip("/\\"))[-1]


def _warnings(subject: Subject) -> list[str]:
    """Show how the number should not be read, right beside it."""
    sentences = [tag("p", safe(sentence)) for _, sentence in subject.info.warning_lines()]
    return [tag("div", tag("strong", "Warning"), *sentences, class_="warning")] if sentences else []


def _answer(subject: Subject) -> str:
    return _groups(subject) if subject.is_table else _single(subject)


# --- one release ------------------------------------------------------------------------------------------------------


def _single(subject: Subject) -> str:
    """Show the values in large type, and their intervals on an axis."""
    (line,) = subject.lines
    heroes, all_shown = [], len(subject.columns) <= SHOWN
    for column, name in enumerate(subject.columns if all_shown else ()):
        value, interval = line.format_column(column)
        words = [
            tag("div", safe(f"{name}, {subject.what}"), class_="label"),
            tag("div", safe(value), class_="value"),
        ]
        if line.wide is not None:
            words.append(tag("div", safe(f"{line.wide.level:.0%} interval: {interval}"), class_="range"))
        if line.behind:
            words.append(tag("div", safe(f"Based on about {line.behind} {subject.behind}"), class_="range"))
        heroes.append(tag("div", *words))
    several = " several" if len(heroes) > 1 else ""
    content = [tag("div", *heroes, *_warnings(subject), class_=f"heroes{several}")]
    points = [line.point(column, name) for column, name in enumerate(subject.columns[:SHOWN])]
    if line.wide is not None or len(points) > 1:
        content.append(_intervals(subject, points))
    else:
        content.append(note(NO_INTERVAL))
    if not all_shown:
        content.append(_note_drawn([f"the first {SHOWN} of {len(subject.columns):,} columns"]))
    return section(None, *content)


def _intervals(subject: Subject, points: Sequence[Point]) -> str:
    """Draw intervals of similar size on one axis, otherwise each on its own."""
    caption = tag("figcaption", safe(_legend(subject)))
    if len(points) > 1 and comparable(points):
        chart = forest(points, name="values", title=f"Private {subject.what} of each column")
        return tag("figure", chart, caption)
    figures = []
    for position, point in enumerate(points):
        title = f"Private {subject.what} of {point.name}"
        words = [tag("div", safe(point.name), class_="label")] if len(points) > 1 else []
        chart = strip(point, name=f"value{position}", title=title)
        figures.append(tag("div", *words, chart, class_="strip"))
    return tag("figure", *figures, caption)


def _legend(subject: Subject) -> str:
    interval = subject.interval
    if interval is None:
        return NO_INTERVAL
    if subject.is_table and is_line(subject):
        return (
            f"Line: the released values. Band: {interval.level:.0%} interval of each. They cover {interval.covers}. "
            f"{interval.assumption}".rstrip()
        )
    return (
        f"Dot: the released value. Line: {interval.level:.0%} interval; thick part: {NARROW_LEVEL:.0%} interval. "
        f"They cover {interval.covers}. {interval.assumption}".rstrip()
    )


# --- a table of groups ------------------------------------------------------------------------------------------------


def _groups(subject: Subject) -> str:
    released = sum(line.reason is None for line in subject.lines)
    summary = f"{_count(len(subject.lines), 'group')} by {' and '.join(subject.by)}"
    if released < len(subject.lines):
        summary += f", {released:,} of them released"
    content = [tag("p", safe(f"{summary}; {subject.what} of each."), class_="label"), *_warnings(subject)]
    for column, name in enumerate(subject.columns[:COLUMNS_DRAWN] if subject.lines else ()):
        if len(subject.columns) > 1:
            content.append(tag("h2", safe(name)))
        content.append(tag("figure", draw_groups(subject, column, most=GROUPS_DRAWN)))
    legend = _legend(subject) if subject.lines else "No group has enough users to appear."
    if any(map(subject.is_cut_off, range(min(len(subject.columns), COLUMNS_DRAWN)))):
        legend += " What reaches beyond a chart is cut off."
    content.append(tag("p", safe(legend), class_="note"))
    left = []
    if len(subject.lines) > GROUPS_DRAWN and not is_line(subject):
        left.append(
            f"the {GROUPS_DRAWN // 2} largest and the {GROUPS_DRAWN // 2} smallest of {len(subject.lines):,} groups"
        )
    if len(subject.columns) > COLUMNS_DRAWN:
        left.append(f"the first {COLUMNS_DRAWN} of {len(subject.columns):,} columns")
    if left:
        content.append(_note_drawn(left))
    return section(None, *content)


def is_line(subject: Subject) -> bool:
    """Whether groups are drawn as a line over time."""
    return (
        subject.times is not None
        and sum(map(bool, (line.values for line in subject.lines))) >= FEWEST_IN_A_LINE
    )


def draw_groups(subject: Subject, column: int, *, most: int) -> str:
    """Return the chart of a column: a line over time, or a row per group, of many the first and the last ones."""
    names = " and ".join(subject.by)
    title = f"Private {subject.what} of {subject.columns[column]} by {names}"
    points = [line.point(column, ", ".join(line.group)) for line in subject.lines]
    ends = subject.axis_ends(column)
    if is_line(subject) and subject.times is not None and ends is not None:
        return time_chart(points, subject.times, name=f"groups{column}", title=title, ends=ends)
    shown = subject.order(column).cut(most)
    rows = [points[row] for row in shown.first]
    if shown.left_out:
        text = f"{_count(shown.left_out, 'more group')}"
        rows.append(Point(name="…", text=text, missing=text))
    rows += [points[row] for row in shown.last]
    return forest(rows, name=f"groups{column}", title=title, ends=ends)


def chart_of_groups(release: ReleaseTable) -> str:
    """Return the charts of a table as safe markup with styles of its own, for a notebook."""
    subject = Subject.of(release)
    drawn = [
        (tag("div", safe(name)) if len(subject.columns) > 1 else "")
        + draw_groups(subject, column, most=GROUPS_IN_A_NOTEBOOK)
        for column, name in enumerate(subject.columns[:COLUMNS_DRAWN] if subject.lines else ())
    ]
    style = f"<style>{NOTEBOOK_STYLE}</style>"
    return tag("div", style, *drawn, class_="hubermean-groups") if drawn else ""


def _all_rows(subject: Subject) -> list[str]:
    """List all numbers in a table if the top of the page does not show them all."""
    interval = subject.interval
    level = "interval" if interval is None else f"{interval.level:.0%} interval"
    if subject.is_table:
        several = len(subject.columns) > 1
        headings = list(subject.by)
        for name in subject.columns:
            headings += [name, f"{name}, {level}" if several else level]
        if subject.behind is not None:
            headings.append(subject.behind)
        lines = subject.lines
        if subject.times is not None:
            lines = tuple(lines[row] for row in subject.order(0).rows)
        rows = [_group_row(line, len(subject.columns), subject.behind is not None) for line in lines]
        listed = table(headings, rows, words=len(subject.by), caption=f"{subject.what} of each group")
        return [section("All groups", listed)]
    if len(subject.columns) <= SHOWN:
        return []
    (line,) = subject.lines
    rows = [
        tag("tr", tag("th", safe(name), scope="row"), *map(number_cell, line.format_column(column)))
        for column, name in enumerate(subject.columns)
    ]
    return [section("All columns", table(["column", subject.what, level], rows, words=1))]


def _group_row(line: Line, columns: int, behind: bool) -> str:
    names = [tag("th", safe(key), scope="row") for key in line.group]
    if line.reason is not None:
        span = 2 * columns + behind
        return tag("tr", *names, tag("td", safe(f"not released: {line.reason}"), colspan=span))
    cells = [cell for column in range(columns) for cell in line.format_column(column)]
    cells += [line.behind] if behind else []
    return tag("tr", *names, *map(number_cell, cells))


# --- guarantee, budget and parameters ---------------------------------------------------------------------------------


def _show_guarantee(subject: Subject) -> str:
    words = [tag("p", safe(paragraph)) for paragraph in explain_guarantee(subject)]
    words.append(tag("p", safe(f"In one sentence: {subject.guarantee}"), class_="note"))
    items = [tag("li", tag("strong", safe(what)), " ", safe(why)) for what, why in NOT_COVERED]
    return section("What is guaranteed", *words, tag("h3", "What is not covered"), tag("ul", *items))


def _budget(subject: Subject) -> str:
    """Show the budget breakdown as a bar and a table, or as a sentence if there is only one step."""
    heading = "What the budget was spent on"
    delta = "".join(
        tag("p", safe(f"Delta = {number(entry.amount)} was spent on {entry.what}."), class_="note")
        for entry in subject.info.budget_breakdown
        if entry.unit == "delta"
    )
    entries = [entry for entry in subject.info.budget_breakdown if entry.unit != "delta"]
    if not has_stages(subject.info.budget_breakdown):
        spent = f"All of epsilon = {number(subject.info.epsilon)} was spent in one step"
        on = f", on {entries[0].what}." if entries else "."
        return section(heading, tag("p", safe(spent + on)), delta)
    unit, whole = entries[0].unit, sum(entry.amount for entry in entries)
    shares = [entry.amount / whole for entry in entries]
    amounts = format_amounts([entry.amount for entry in entries])
    rows, named_shares = [], []
    # The last entry is the statistic itself, in the color of its value.
    colors = [*range(1, len(entries)), 0]
    for entry, amount, share, color in zip(entries, amounts, shares, colors, strict=True):
        percent = f"{share:.1%}" if share >= 0.001 else "below 0.1%"
        named_shares.append((f"{entry.what}: {amount}, {percent}", share, color))
        key = tag(
            "svg",
            tag("rect", width="100%", height="100%", rx=2, class_=color_class(color)),
            class_="key",
            width=12,
            height=12,
            aria_hidden="true",
        )
        name = tag("th", key, safe(entry.what), scope="row")
        rows.append(tag("tr", name, number_cell(amount), number_cell(percent)))
    chart = bar(named_shares, name="budget", title=f"What {unit} was spent on")
    rho = ""
    if unit == "rho":
        rho = note(
            "Rho is the unit of concentrated differential privacy, in which many steps add up to less. "
            "Epsilon and delta together determine the total rho."
        )
    listed = table(["spent on", unit, "share"], rows, words=1)
    return section(heading, tag("figure", chart), listed, rho, delta)


def _facts(subject: Subject) -> str:
    """List the parameters: public ones, and those that were estimated privately."""
    given = [("mechanism", subject.info.mechanism), ("what is released", subject.what)]
    given.append(("neighbors", subject.info.neighbors.value))
    if subject.n_users is not None:
        given.append(("users (public)", f"{subject.n_users:,}"))
    given += [(name.replace("_", " "), readable(one)) for name, one in subject.parameters.items()]
    return section("Parameters", facts_table(given))


def _note_drawn(parts: Sequence[str]) -> str:
    return note(f"The charts show {' and '.join(parts)}; the table below lists all.")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
