"""`ledger_page`: the budgets of all data sets, and what they were spent on, as one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hubermean.readable import number, one_sided
from hubermean.report.chart import bar
from hubermean.report.document import document, facts_table, note, number_cell, section, table
from hubermean.report.markup import safe, tag

MOST_ROWS = 500
"""Charges that are listed for a data set; the JSON has them all."""


def ledger_page(exported: Mapping[str, Any], *, title: str = "Privacy budgets") -> str:
    """A page of what `hubermean.ledger.export` gives; it holds nothing else."""
    verdict = exported["verification"]
    refused = Counter(entry["dataset"] for entry in exported["entries"] if entry["kind"] == "refused")
    charges = exported["charges"]
    parts = [
        tag(
            "header",
            tag("h1", safe(title)),
            tag(
                "p",
                safe(f"As of {_when(exported['made_at'])}, {verdict['entries']:,} entries."),
                class_="sub",
            ),
        ),
        _verdict(verdict),
        *(
            _dataset(
                place,
                dataset,
                [line for line in charges if line["dataset"] == dataset["dataset"]],
                refused[dataset["dataset"]],
            )
            for place, dataset in enumerate(exported["datasets"])
        ),
        tag(
            "footer",
            safe(
                f"Made with {exported['made_with']}. All that this page holds was public before or was released under "
                "the budgets above."
            ),
        ),
    ]
    return document(title, parts)


def _verdict(verdict: Mapping[str, Any]) -> str:
    remarks = [note(f"Note: {remark}.") for remark in verdict["remarks"]]
    if not verdict["sound"]:
        faults = [
            f"entry {one['entry']}: {one['what']}" if one["entry"] else one["what"]
            for one in verdict["faults"]
        ]
        items = [tag("li", safe(fault)) for fault in faults]
        return section(
            "Damaged",
            tag("p", safe("This ledger is not as it was written. Release nothing against it.")),
            tag("ul", *items),
            *remarks,
            kind="warning",
        )
    told = "Every entry is as it was written, and follows from the one before. The last one's digest is"
    return section("Verified", tag("p", safe(told), " ", tag("code", safe(verdict["head"])), "."), *remarks)


def _dataset(
    place: int, dataset: Mapping[str, Any], charges: Sequence[Mapping[str, Any]], refused: int
) -> str:
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
    chart = bar(shares, name=f"budget{place}", title=f"{unit} spent and left")
    deltas = {name: Decimal(dataset[name]["delta"]) for name in ("total", "spent", "left")}
    facts = [
        ("total", f"epsilon = {number(dataset['epsilon'])}, delta = {number(dataset['delta'])}"),
        ("hides", dataset["neighbors"]),
        (
            "a user is told by",
            ", ".join(dataset["user"]) if dataset["user"] else "decided by the first release",
        ),
        ("costs add up", dataset["composition"]),
        ("opened", _when(dataset["opened"])),
    ]
    if deltas["total"] > 0:
        facts.append(
            (
                "delta spent",
                f"{one_sided(deltas['spent'], up=True)} of {one_sided(deltas['total'], up=False)}",
            )
        )
    if dataset["composition"] != "basic":
        come_to = f"epsilon = {one_sided(Decimal(dataset['spent_epsilon']), up=True)}"
        facts.append(
            ("spent comes to", f"{come_to}, delta = {one_sided(Decimal(dataset['spent_delta']), up=True)}")
        )
    return section(
        dataset["dataset"],
        tag("div", *heroes, class_="heroes several"),
        tag("figure", chart),
        facts_table(facts),
        *_charges(charges, refused, unit),
    )


def _when(at: str) -> str:
    """A time as ledgers write it, for people.

    >>> _when("2026-11-16T13:03:31+00:00")
    '2026-11-16 13:03 UTC'
    """
    return f"{at[:10]} {at[11:16]} UTC" if at.endswith("+00:00") else at


def _hero(label: str, value: str) -> str:
    return tag("div", tag("div", safe(label), class_="label"), tag("div", safe(value), class_="value"))


def _charges(lines: Sequence[Mapping[str, Any]], refused: int, unit: str) -> list[str]:
    rows = [_row(line) for line in lines[-MOST_ROWS:]]
    parts = []
    if rows:
        headings = ["entry", "when", "what", "came out", unit, "delta"]
        parts = [tag("h3", safe("Charges")), table(headings, rows, words=4)]
    if len(lines) > MOST_ROWS:
        parts.append(note(f"Listed are the last {MOST_ROWS} of {len(lines):,} charges."))
    if refused:
        times = "once" if refused == 1 else f"{refused:,} times"
        parts.append(note(f"More was asked for than was left {times}; nothing was released then."))
    return parts


def _row(line: Mapping[str, Any]) -> str:
    words = (str(line["entry"]), _when(line["at"]), line["what"], line["came_out"])
    numbers = (one_sided(Decimal(line[name]), up=True) for name in ("loss", "delta"))
    return tag("tr", *(tag("td", safe(word)) for word in words), *map(number_cell, numbers))
