"""`ledger_page`: one HTML page about the budgets of all data sets and what they were spent on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hubermean.report.chart import bar
from hubermean.report.document import document, facts_table, note, number_cell, safe, section, table, tag
from hubermean.report.history import draw_history
from hubermean.types.formatting import number, one_sided

MOST_ROWS = 500
"""Charges listed per data set; the JSON export has all."""
MOST_REFUSALS = 50


def ledger_page(exported: Mapping[str, Any], *, title: str = "Privacy budgets") -> str:
    """Return a page that shows what `export_ledger` returned, and nothing else."""
    verdict = exported["verification"]
    parts = [
        tag(
            "header",
            tag("h1", safe(title)),
            tag(
                "p",
                safe(f"As of {_format_time(exported['made_at'])}, {verdict['entries']:,} entries."),
                class_="sub",
            ),
        ),
        show_verdict(verdict),
        *(
            show_dataset(exported, dataset, position=position)
            for position, dataset in enumerate(exported["datasets"])
        ),
        tag(
            "footer",
            safe(
                f"Made with {exported['made_with']}. Everything on this page was public before or was released under "
                "the budgets above."
            ),
        ),
    ]
    return document(title, parts)


def show_verdict(verdict: Mapping[str, Any]) -> str:
    """Return the section about a verification."""
    remarks = [note(f"Note: {remark}.") for remark in verdict["remarks"]]
    if not verdict["sound"]:
        faults = [
            f"entry {one['entry']}: {one['what']}" if one["entry"] else one["what"]
            for one in verdict["faults"]
        ]
        items = [tag("li", safe(fault)) for fault in faults]
        return section(
            "Damaged",
            tag(
                "p",
                safe(
                    "This ledger was changed after it was written. Release nothing against it; restore a backup."
                ),
            ),
            tag("ul", *items),
            *remarks,
            kind="warning",
        )
    result = "All entries match their digests and follow from one another. The digest of the last entry is"
    return section("Verified", tag("p", safe(result), " ", tag("code", safe(verdict["head"])), "."), *remarks)


def show_dataset(
    exported: Mapping[str, Any], dataset: Mapping[str, Any], *, position: int = 0, heading: str | None = None
) -> str:
    """Return the section about a data set: what is left of its budget, over time, and what was spent on what."""
    own = {
        kind: [line for line in exported[kind] if line["dataset"] == dataset["dataset"]]
        for kind in ("charges", "refusals", "history")
    }
    unit = dataset["unit"]
    total, spent, left = (Decimal(dataset[name]["loss"]) for name in ("total", "spent", "left"))
    shares = [
        (f"spent: {one_sided(spent, up=True)}", float(spent / total), 0),
        (f"left: {one_sided(left, up=False)}", float(left / total), 7),
    ]
    heroes = [
        _hero(f"{unit} left", one_sided(left, up=False)),
        _hero(f"{unit} spent", one_sided(spent, up=True)),
        _hero("of", one_sided(total, up=False)),
    ]
    chart = bar(shares, name=f"budget{position}", title=f"{unit} spent and left")
    deltas = {name: Decimal(dataset[name]["delta"]) for name in ("total", "spent", "left")}
    facts = [
        ("total", f"epsilon = {number(dataset['epsilon'])}, delta = {number(dataset['delta'])}"),
        ("neighbors", dataset["neighbors"]),
        (
            "user columns",
            ", ".join(dataset["user"]) if dataset["user"] else "set by the first release",
        ),
        ("composition", dataset["composition"]),
        ("opened", _format_time(dataset["opened"])),
    ]
    if deltas["total"] > 0:
        facts.append(
            (
                "delta spent",
                f"{one_sided(deltas['spent'], up=True)} of {one_sided(deltas['total'], up=False)}",
            )
        )
    if dataset["composition"] != "basic":
        converted = f"epsilon = {one_sided(Decimal(dataset['spent_epsilon']), up=True)}"
        facts.append(
            (
                "spent, as epsilon and delta",
                f"{converted}, delta = {one_sided(Decimal(dataset['spent_delta']), up=True)}",
            )
        )
    over_time = draw_history(
        [(line["at"], total - Decimal(line["spent"])) for line in own["history"]],
        total=total,
        name=f"history{position}",
        title=f"{unit} left over time",
    )
    return section(
        heading or dataset["dataset"],
        tag("div", *heroes, class_="heroes several"),
        tag("figure", chart),
        over_time,
        facts_table(facts),
        *_charges(own["charges"], unit),
        *_refusals(own["refusals"], unit),
    )


def _format_time(at: str) -> str:
    """Return a time of a ledger in a short form.

    >>> _format_time("2026-11-16T13:03:31+00:00")
    '2026-11-16 13:03 UTC'
    """
    return f"{at[:10]} {at[11:16]} UTC" if at.endswith("+00:00") else at


def _hero(label: str, value: str) -> str:
    return tag("div", tag("div", safe(label), class_="label"), tag("div", safe(value), class_="value"))


def _charges(lines: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    rows = [_row(line, "outcome") for line in lines[-MOST_ROWS:]]
    if not rows:
        return []
    headings = ["entry", "when (UTC)", "by whom", "what", "outcome", unit, "delta"]
    parts = [tag("h3", safe("Charges")), table(headings, rows, words=5)]
    if len(lines) > MOST_ROWS:
        parts.append(note(f"The table lists the last {MOST_ROWS} of {len(lines):,} charges."))
    return parts


def _refusals(lines: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    rows = [_row(line) for line in lines[-MOST_REFUSALS:]]
    if not rows:
        return []
    times = "once" if len(lines) == 1 else f"{len(lines):,} times"
    said = f"A release was refused {times} because it exceeded the remaining budget. Nothing was charged."
    if len(lines) > MOST_REFUSALS:
        said += f" The table lists the last {MOST_REFUSALS}."
    headings = ["entry", "when (UTC)", "by whom", "what", unit, "delta"]
    return [tag("h3", safe("Refusals")), note(said), table(headings, rows, words=4)]


def _row(line: Mapping[str, Any], *more: str) -> str:
    words = [line["by_whom"], line["what"], *(line[name] for name in more)]
    numbers = (one_sided(Decimal(line[name]), up=True) for name in ("loss", "delta"))
    return tag(
        "tr",
        tag("td", safe(str(line["entry"]))),
        tag("td", safe(_format_time(line["at"]).removesuffix(" UTC")), class_="when"),
        *(tag("td", safe(word)) for word in words),
        *map(number_cell, numbers),
    )
