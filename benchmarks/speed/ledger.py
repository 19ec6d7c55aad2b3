"""How many charges a ledger commits in a second, beside plain inserts of rows as long into the same kind of database.

Both are one row a transaction, written through to the disk, by one process, in rounds by turns. The database's own rate
is what a ledger could reach at best; a charge also reads how the data set stands and checks the digests of three rows.

    python -m speed.ledger [--rounds 15] [--charges 200]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

import hubermean as hm

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.postgres_server import running_server

ROW = "x" * 700  # about as long as a charge


def rate(work: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return times / (time.perf_counter() - start)


def compared(name: str, place: str, plain: Callable[[], None], rounds: int, times: int) -> None:
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=1e9)

        def charge() -> None:
            ledger.spend("d", epsilon=1e-3)

        for work in (charge, plain):
            rate(work, times // 4)
        pairs = [(rate(charge, times), rate(plain, times)) for _ in range(rounds)]
        verified = rate(lambda: _require(ledger.verify().sound), 1)
        entries = ledger.verify().entries
    charges, inserts = (statistics.median(one) for one in zip(*pairs, strict=True))
    ratios = sorted(charged / inserted for charged, inserted in pairs)
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    print(
        f"{name:<12} {charges:7,.0f} charges/s  {inserts:7,.0f} plain inserts/s  ratio {statistics.median(ratios):.2f} "
        f"({low:.2f} to {high:.2f} in 8 of 10 rounds);  verify: {entries * verified:,.0f} entries/s"
    )


def _require(sound: bool) -> None:
    assert sound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--charges", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = sqlite3.connect(f"{folder}/plain.sqlite", isolation_level=None)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute("CREATE TABLE plain (number INTEGER PRIMARY KEY, body TEXT)")

        def into_file() -> None:
            file.execute("BEGIN IMMEDIATE")
            file.execute("INSERT INTO plain (body) VALUES (?)", (ROW,))
            file.execute("COMMIT")

        compared("SQLite", f"{folder}/l.sqlite", into_file, options.rounds, options.charges)
        file.close()
    with running_server(durable=True) as server, psycopg.connect(server.url()) as database:
        database.execute(
            "CREATE TABLE plain (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT)"
        )
        database.commit()

        def into_database() -> None:
            database.execute("INSERT INTO plain (body) VALUES (%s)", (ROW,))
            database.commit()

        compared("PostgreSQL", server.new_database("ledger"), into_database, options.rounds, options.charges)


if __name__ == "__main__":
    main()
