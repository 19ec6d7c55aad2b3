"""What a ledger keeps of a question: enough to tell questions apart, and no more for many columns than for few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from hubermean.report.ledger_export import export_ledger


def whats(ledger: hm.Ledger) -> list[str]:
    return [line["what"] for line in export_ledger(ledger)["charges"]]


@pytest.fixture
def ledger(tmp_path: Path) -> hm.Ledger:
    made = hm.Ledger(tmp_path / "l.sqlite")
    made.init("d", epsilon=100)
    return made


def table(columns: int = 1) -> pa.Table:
    return pa.table({"u": [1, 2, 3], **{f"a_rather_long_name_{k}": [1.0, 2.0, 3.0] for k in range(columns)}})


def ask(ledger: hm.Ledger, data: Any, columns: int = 1, **more: Any) -> hm.Release:
    names = [f"a_rather_long_name_{k}" for k in range(columns)]
    given = {"user": "u", "value": names, "epsilon": 1.0, "bounds": (0, 9), "max_records": 2, **more}
    if given.get("per") == "user":
        del given["max_records"]
    return hm.mean(data, ledger=ledger, dataset="d", **given)


def test_descriptions_tell_paths_and_kinds_of_means_apart(ledger: hm.Ledger, tmp_path: Path) -> None:
    for folder in ("january", "february"):
        (tmp_path / folder).mkdir()
        pq.write_table(table(), tmp_path / folder / "trips.parquet")
        for per in ("record", "user"):
            ask(ledger, str(tmp_path / folder / "trips.parquet"), per=per)
    shown = whats(ledger)
    assert len(set(shown)) == 4
    assert [one.split(" of a_rather")[0] for one in shown] == ["mean over records", "mean of user means"] * 2
    assert all("from trips.parquet (" in one for one in shown)
    assert not any("january" in one or str(tmp_path) in one for one in shown)  # a folder may name a person
    # Two queries differ in their digests as well.
    for limit in (2, 3):
        query = hm.sql(
            f"select * from t limit {limit}", files={"t": str(tmp_path / "january" / "trips.parquet")}
        )
        ask(ledger, query)
    assert len(set(whats(ledger))) == 6


def test_a_charge_takes_no_more_room_for_many_columns(ledger: hm.Ledger) -> None:
    sizes = {}
    for columns in (4, 50, 200):
        ask(ledger, table(columns), columns, question=f"with {columns}")
        charge = [entry for entry in ledger.entries() if entry.kind == "charged"][-1]
        sizes[columns] = len(charge.body)
        with pytest.raises(hm.BudgetExhausted):
            ask(ledger, table(columns), columns, question=f"over {columns}", epsilon=1000.0)
    assert sizes[200] <= sizes[50] + 10 < sizes[4] + 200
    refused = [len(entry.body) for entry in ledger.entries() if entry.kind == "refused"]
    assert max(refused) < 1000
    assert "a_rather_long_name_2 and 197 more" in whats(ledger)[-1]
    assert ledger.verify().sound


def test_many_columns_that_differ_in_one_are_another_question(ledger: hm.Ledger) -> None:
    data = table(51)
    names = [f"a_rather_long_name_{k}" for k in range(51)]
    first = ask(ledger, data, value=names[:50])
    second = ask(ledger, data, value=[*names[:49], names[50]])
    assert first.receipt is not None
    assert second.receipt is not None
    assert not second.receipt.again
    digests = [
        entry.content["asked"]["columns_digest"] for entry in ledger.entries() if entry.kind == "charged"
    ]
    assert len(set(digests)) == 2


def test_a_cell_that_is_run_again_is_recognised_by_its_question(ledger: hm.Ledger) -> None:
    def cell(**how: Any) -> hm.Release:
        frame = pd.DataFrame({"u": np.arange(3), "a_rather_long_name_0": [1.0, 2.0, 3.0]})
        return ask(ledger, frame, **how)

    first, second = cell(), cell()
    assert second.receipt is not None
    assert not second.receipt.again  # another object
    assert "give question='...', and running this again costs nothing" in " ".join(str(first).split())
    named, again = cell(question="fares in May"), cell(question="fares in May")
    assert "give question" not in str(named)
    assert again.receipt is not None
    assert again.receipt.again
    assert again.value == named.value
    # Who asks is not part of the question.
    assert cell(question="fares in May", by_whom="Bea").receipt.again  # type: ignore[union-attr]


def test_a_file_needs_no_name(ledger: hm.Ledger, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "t.parquet")
    assert "give question" not in str(ask(ledger, str(tmp_path / "t.parquet")))
