"""A ledger as plain data, for people who keep, publish or check it without this package.

The digest of an entry is the SHA-256 of the JSON text, sorted, without spaces and in ASCII, of
`[number, dataset, kind, body, previous]`, where `body` is the JSON text of its `content`, written in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from hubermean._version import __version__
from hubermean.errors import HubermeanError, LedgerDamaged
from hubermean.ledger.amounts import Cost, plain
from hubermean.ledger.entries import CHARGES, OUTCOMES, Entry
from hubermean.ledger.ledger import Ledger
from hubermean.ledger.shape import require_shape
from hubermean.readable import number, printable

_LONGEST = 300  # characters of a line for people


def exported(ledger: Ledger) -> dict[str, Any]:
    """All there is in a ledger, with the verdict of `verify`. Damaged entries are left out; the verdict names them."""
    verification = ledger.verify()
    entries = []
    with contextlib.suppress(HubermeanError):  # the verdict says so
        for entry in ledger.entries():
            with contextlib.suppress(LedgerDamaged):
                if entry.is_whole:
                    entries.append(plain_entry(entry))
    try:
        datasets = [dataset.to_dict() for dataset in ledger.datasets()]
    except HubermeanError:
        datasets = []
    lines = charge_lines(entries)
    return {
        "made_with": f"hubermean {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verification": verification.to_dict(),
        "datasets": datasets,
        "charges": lines,
        "entries": entries,
    }


def charge_lines(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Charges in words: what was asked, what came out, what it cost; of entries as `plain_entry` gives them."""
    entries = list(entries)
    outcomes = {
        place: entry
        for entry in entries
        if entry["kind"] in OUTCOMES and isinstance(place := entry["content"].get("charge"), int)
    }
    return [_line(entry, outcomes.get(entry["number"])) for entry in entries if entry["kind"] in CHARGES]


def _line(charge: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    content = charge["content"]
    line = {"entry": charge["number"], "dataset": charge["dataset"]}
    try:
        cost = Cost.read(content["cost"])
        return line | {
            "at": str(content["at"])[:_LONGEST],
            "what": _asked_in_words(content["asked"])[:_LONGEST],
            "came_out": _outcome_in_words(charge, outcome),
            "loss": plain(cost.loss),
            "delta": plain(cost.delta),
        }
    except (KeyError, TypeError, ValueError, AttributeError, LedgerDamaged):
        return line | {"at": "", "what": "cannot be read", "came_out": "", "loss": "0", "delta": "0"}


def _asked_in_words(asked: Mapping[str, Any]) -> str:
    if asked.get("statistic") == "elsewhere":
        return printable(str(asked.get("note") or ""))
    columns = ", ".join(map(str, asked["columns"]))
    by = f" by {', '.join(map(str, asked['by']))}" if asked.get("by") else ""
    return printable(f"{asked['statistic']} of {columns}{by}, {asked['mechanism']}, from {asked['source']}")


def _outcome_in_words(charge: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> str:
    if charge["kind"] == "spent":
        return "released elsewhere"
    if outcome is None:
        return "no outcome recorded; the charge counts"
    if outcome["kind"] == "not-released":
        return "not released: the mechanism's own test said no"
    if outcome["kind"] == "failed":
        return "interrupted by an error; the charge counts"
    release = outcome["content"]["release"]
    if "by" in release:
        return f"{len(release['keys']):,} groups"
    values = [number(float(value)) for value in release["values"][:3]]
    return ", ".join(values) + (", ..." if len(release["values"]) > 3 else "")


def plain_entry(entry: Entry) -> dict[str, Any]:
    """As plain data; LedgerDamaged where it does not hold what its kind has."""
    require_shape(entry)
    return {
        "number": entry.number,
        "dataset": entry.dataset,
        "kind": entry.kind,
        "content": entry.content,
        "previous": entry.previous,
        "digest": entry.digest,
    }
