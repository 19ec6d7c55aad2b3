"""Trips, and a question about them, for tests of the ledger."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm

TRIPS = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0], "city": ["a", "b", "a", "b"]})
ASK: dict[str, Any] = {"user": "rider", "value": "fare", "bounds": (0, 100), "per": "user"}


def ask(ledger: Any, epsilon: float = 0.25, **more: Any) -> Any:
    data = more.pop("data", TRIPS)
    return hm.mean(data, **{**ASK, "ledger": ledger, "dataset": "trips", "epsilon": epsilon, **more})


def kinds(ledger: hm.Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def ask_means(ledger: Any, question: str = "q", epsilon: float = 0.25, **how: Any) -> hm.Release:
    """Of the data set "d"."""
    return hm.mean_of_user_means(
        [1.0, 2.0, 3.0], epsilon=epsilon, bounds=(0, 9), ledger=ledger, dataset="d", question=question, **how
    )


def kinds_at(place: str) -> list[str]:
    with hm.Ledger(place) as ledger:
        return kinds(ledger)


def spent(ledger: hm.Ledger) -> Decimal:
    return ledger.dataset("trips").spent.loss


def opened(place: str, epsilon: float = 1.0) -> None:
    """A ledger with one data set, "d"."""
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=epsilon)


def small_file(folder: Path) -> Path:
    """Fifty users, "u", with one value each, "v"."""
    path = folder / "data.parquet"
    pq.write_table(pa.table({"u": list(range(50)), "v": [float(k % 10) for k in range(50)]}), path)
    return path
