"""`export_ledger`: a ledger as plain data, to be archived, published or checked without this package.

The digest of an entry is the SHA-256 of the canonical JSON (sorted names, no spaces, ASCII) of
`[number, dataset, kind, body, previous]`, where `body` is the canonical JSON of its `content`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from hubermean._version import __version__
from hubermean.errors import HubermeanError, LedgerDamaged, printable
from hubermean.ledger.amounts import NOTHING, Cost, plain
from hubermean.ledger.entries import CHARGES, OUTCOMES, Entry
from hubermean.release.ledger import Ledger
from hubermean.types.formatting import number, one_sided

_LONGEST = 300  # characters of a text in a table


def export_ledger(ledger: Ledger) -> dict[str, Any]:
    """Return everything in a ledger, with the result of `verify`, which names the damaged entries left out here."""
    verification = ledger.verify()
    entries = []
    with contextlib.suppress(HubermeanError):  # reported by the verification
        for entry in ledger.entries():
            with contextlib.suppress(LedgerDamaged):
                if entry.is_intact:
                    entries.append(export_entry(ledger, entry))
    try:
        datasets = [dataset.to_dict() for dataset in ledger.datasets()]
    except HubermeanError:
        datasets = []
    return {
        "made_with": f"hubermean {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verification": verification.to_dict(),
        "datasets": datasets,
        "charges": list_charges(entries),
        "refusals": list_refusals(entries),
        "history": list_history(entries),
        "entries": entries,
    }


def export_entry(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data; LedgerDamaged if it does not have the content of its kind."""
    ledger.check_entry(entry)
    return {
        "number": entry.number,
        "dataset": entry.dataset,
        "kind": entry.kind,
        "content": entry.content,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def list_charges(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe each charge: question, who asked, outcome, and its cost after what was given back.

    `entries` are as from `export_entry`.
    """
    entries = list(entries)
    outcomes, refunds = (
        {
            charge: entry
            for entry in entries
            if entry["kind"] in kinds and isinstance(charge := entry["content"].get("charge"), int)
        }
        for kinds in (OUTCOMES, ("refunded",))
    )
    return [
        _describe_charge(entry, outcomes.get(entry["number"]), refunds.get(entry["number"]))
        for entry in entries
        if entry["kind"] in CHARGES
    ]


def list_refusals(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe each request that was refused because it exceeded what was left: who asked for what, and its cost."""
    lines = [
        _describe_charge({**entry, "kind": "charged"}, None, None)
        for entry in entries
        if entry["kind"] == "refused"
    ]
    kept = ("entry", "dataset", "at", "by_whom", "what", "loss", "delta")
    return [{name: line[name] for name in kept} for line in lines]


def list_history(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each data set had spent after each entry that changed it; a refund has the time of its charge."""
    times: dict[int, str] = {}
    history = []
    for entry in entries:
        content = entry["content"]
        times[entry["number"]] = str(content.get("at") or times.get(content.get("charge"), ""))
        if entry["kind"] in ("opened", *CHARGES, "refunded"):
            with contextlib.suppress(LedgerDamaged):
                spent = Cost.read(content.get("spent"))
                line = {"dataset": entry["dataset"], "entry": entry["number"], "at": times[entry["number"]]}
                history.append({**line, "spent": plain(spent.loss)})
    return history


def _describe_charge(
    charge: Mapping[str, Any], outcome: Mapping[str, Any] | None, refunded: Mapping[str, Any] | None
) -> dict[str, Any]:
    content = charge["content"]
    line = {"entry": charge["number"], "dataset": charge["dataset"]}
    try:
        cost = Cost.read(content["cost"])
        refund = NOTHING if refunded is None else Cost.read(refunded["content"]["refund"])
        stays = cost - refund
        return line | {
            "at": str(content["at"])[:_LONGEST],
            "by_whom": printable(str(content.get("by_whom") or ""))[:_LONGEST],
            "what": _describe_question(content["asked"])[:_LONGEST],
            "outcome": _describe_outcome(charge, outcome, refund),
            "loss": plain(stays.loss),
            "delta": plain(stays.delta),
            "refunded": refund.to_dict(),
        }
    except (KeyError, TypeError, ValueError, AttributeError, LedgerDamaged):
        words = {"at": "", "by_whom": "", "what": "unreadable", "outcome": ""}
        return line | words | {"loss": "0", "delta": "0", "refunded": NOTHING.to_dict()}


def _describe_question(description: Mapping[str, Any]) -> str:
    if description.get("statistic") == "elsewhere":
        return printable(str(description.get("note") or ""))
    columns = ", ".join(map(str, description["columns"]))
    if more := description.get("more_columns"):
        columns += f" and {int(more):,} more"
    statistic = description["statistic"]
    if statistic == "mean":  # the first ledgers did not tell the two apart here
        statistic = {"record": "mean over records", "user": "mean of user means"}.get(
            str(description.get("per")), "mean"
        )
    path = f" ({description['path']})" if description.get("path") else ""
    by = f" by {', '.join(map(str, description['by']))}" if description.get("by") else ""
    return printable(
        f"{statistic} of {columns}{by}, {description['mechanism']}, from {description['source']}{path}"
    )


def _describe_outcome(
    charge: Mapping[str, Any], outcome: Mapping[str, Any] | None, refund: Cost = NOTHING
) -> str:
    if charge["kind"] == "spent":
        return "released elsewhere"
    if outcome is None:
        return "no outcome recorded; the charge counts"
    if outcome["kind"] == "not-released":
        amounts = [one_sided(refund.loss, up=False)] if refund.loss > 0 else []
        amounts += [f"delta {one_sided(refund.delta, up=False)}"] if refund.delta > 0 else []
        given_back = f"; {' and '.join(amounts)} given back" if amounts else ""
        return f"not released: a private step decided against it{given_back}"
    if outcome["kind"] == "failed":
        return "interrupted by an error; the charge counts"
    release = outcome["content"]["release"]
    if "by" in release:
        return f"{len(release['keys']):,} groups"
    values = [number(float(value)) for value in release["values"][:3]]
    return ", ".join(values) + (", ..." if len(release["values"]) > 3 else "")
