"""A small ledger, and ways to damage it and to look what became of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.ledger import sqlite_store


def ask(ledger: Any, question: str, epsilon: float = 0.25, dataset: str = "d") -> hm.Release:
    return hm.mean_of_user_means(
        np.array([1.0, 2.0]),
        epsilon=epsilon,
        bounds=(0, 9),
        ledger=ledger,
        dataset=dataset,
        question=question,
    )


def filled(place: Any) -> None:
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=1)
        ledger.init("e", epsilon=2)
        ask(ledger, "one")
        ask(ledger, "two", dataset="e")
        ledger.spend("d", epsilon=0.5, note="a histogram")
        ask(ledger, "three")
        with pytest.raises(hm.BudgetExhausted):
            ask(ledger, "four")


def content(place: Path) -> list[tuple[Any, ...]]:
    with hm.Ledger(place) as ledger:
        entries = [
            (one.number, one.dataset, one.kind, one.body, one.previous, one.digest)
            for one in ledger.entries()
        ]
        return [*entries, *((one.name, one.spent, one.limit) for one in ledger.datasets())]


def verdict(place: Path) -> hm.ledger.Verification | hm.HubermeanError:
    try:
        with hm.Ledger(place) as ledger:
            return ledger.verify()
    except hm.HubermeanError as error:
        return error


def changed(place: Path, *statements: str) -> None:
    """Somebody with a tool for databases, who takes the triggers away and puts them back."""
    triggers = {name: made for name, made in sqlite_store._VERSIONS[2].items() if "TRIGGER" in made}
    with sqlite3.connect(place) as connection:
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for made in triggers.values():
            connection.execute(made)
    connection.close()
