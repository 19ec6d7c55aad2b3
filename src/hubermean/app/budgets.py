"""The ledger as pages show it: of a data set that a release is running on, as it was before that release began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hubermean.app.runner import Released
from hubermean.app.state import Run
from hubermean.errors import InputError, LedgerDamaged
from hubermean.ledger.dataset import Dataset
from hubermean.ledger.entries import Entry
from hubermean.release.ledger import Ledger
from hubermean.release.records import restore_release
from hubermean.release.warnings import LARGE_EPSILON, warn_of_epsilon
from hubermean.report.ledger_export import export_entry, list_charges, list_history, list_refusals
from hubermean.types.release_info import Receipt


def list_datasets(ledger: Ledger, before: Mapping[str, int]) -> list[Dataset]:
    """Return the budgets of all data sets; none where there is no ledger yet.

    Args:
        ledger: the ledger.
        before: as `Runner.before`.
    """
    try:
        found = ledger.datasets()
    except InputError:  # the first data set creates the ledger
        return []
    return [_rewind(ledger, dataset, before) for dataset in found]


def identify_ledger(ledger: Ledger) -> str | None:
    """Return what tells a ledger from others, the digest of its first entry; None where it has none yet."""
    try:
        first = next(ledger.entries(), None)
    except InputError:  # the first data set creates the ledger
        return None
    return None if first is None else first.digest


def read_dataset(ledger: Ledger, name: str, before: Mapping[str, int]) -> Dataset:
    """Return the budget of a data set."""
    return _rewind(ledger, ledger.dataset(name), before)


def describe_dataset(ledger: Ledger, name: str, before: Mapping[str, int]) -> dict[str, Any]:
    """Return what `report.ledger_page.show_dataset` needs."""
    dataset = read_dataset(ledger, name, before)
    last = before.get(name)
    entries = [
        export_entry(ledger, entry) for entry in ledger.entries(name) if last is None or entry.number <= last
    ]
    return {
        "dataset": dataset.to_dict(),
        "charges": list_charges(entries),
        "refusals": list_refusals(entries),
        "history": list_history(entries),
    }


def _rewind(ledger: Ledger, dataset: Dataset, before: Mapping[str, int]) -> Dataset:
    last = before.get(dataset.name)
    if last is None:
        return dataset
    spent, users = dataset.spent, dataset.users
    for entry in ledger.entries(dataset.name):
        if entry.number > last:
            break
        listed = entry.content.get("user")
        spent, users = entry.spent, None if listed is None else tuple(listed)
    return replace(dataset, spent=spent, users=users)


def restore_run(ledger: Ledger, run: Run) -> Released:
    """Return the release of a run, from its entry in the ledger or from what the run keeps instead."""
    record: Any = run.record
    if record is None:
        entry = _find_entry(ledger, run)
        record = entry.content.get("release")
        if entry.kind != "released" or not isinstance(record, dict):
            raise LedgerDamaged(f"entry {entry.number} does not hold a release", entry=entry.number)
    release = restore_release(record)
    more = (warn_of_epsilon(release.epsilon),) if release.epsilon > LARGE_EPSILON else ()
    receipt = Receipt(
        dataset=run.dataset,
        entry=run.entry or 0,
        charged=run.charged,
        left=run.left,
        recorded=run.record is None,
    )
    return replace(release, receipt=receipt, warnings=(*release.warnings, *more))


def _find_entry(ledger: Ledger, run: Run) -> Entry:
    number = run.entry or 0
    entry = next(ledger.entries(run.dataset, after=number - 1), None)
    if entry is None or entry.number != number or entry.digest != run.digest or not entry.is_intact:
        raise LedgerDamaged(f"entry {number} of the ledger is missing or was altered", entry=number)
    return entry
