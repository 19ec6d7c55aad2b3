"""Records that engines would lose, refuse or take for others: read like any other, for all files and queries alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from hubermean.ingest import group_table, user_table
from hubermean.mechanisms import PublicFacts, Request
from hubermean.mechanisms.clipped import Clipped
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable, padded
from worlds import sums_by_size

LONG = 70_000_000  # more than the engine makes room for at first


def test_a_byte_order_mark_belongs_to_no_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"u": 1, "v": 2}\n{"u": 2, "v": 3}\n')
    assert sums_by_size(user_table(path, user="u", value="v")) == [(2, 1, 1), (3, 1, 1)]


def test_json_numbers_identify_by_their_value(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    cells = ["5", "5.0", '"5"', "5.50", "true", '"true"', "null", '{"a": 1}', "-7.0", '"-7"']
    path.write_text("".join(f'{{"u": {cell}, "v": 1}}\n' for cell in cells))
    counts = sorted(count for _, count, _ in sums_by_size(user_table(path, user="u", value="v")))
    assert counts == [1, 1, 2, 2, 3]  # 5.50 and the object alone, two flags, two of -7, three of 5


def test_a_long_record_of_a_csv_file_is_in_the_result_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    with path.open("w") as file:
        file.write("u,v,note\na,1,x\nb,2," + "y" * LONG + "\nc,3,z\n")
    query = hm.sql("select u, try_cast(v as double) as v from records", files=[path])
    assert user_table(query, user="u", value="v").n_users == 3


def invalid_text(*texts: bytes) -> pa.Array:
    held = pa.array(texts, type=pa.binary())
    return pa.Array.from_buffers(pa.string(), len(texts), held.buffers())


def names_and_sums(path: Any, **how: Any) -> list[Any]:
    table = group_table(path, user=["u"], value=["v"], by=["g"], keys=None, pooled=False, **how)
    return sorted(
        (table.keys[group], float(table.members.means[place]))
        for place, group in enumerate(table.membership.groups.tolist())
    )


@pytest.mark.parametrize("files", [1, 2])
def test_text_of_parquet_files_that_is_no_utf8_changes_nothing_for_others(files: int, tmp_path: Path) -> None:
    """The engine refuses a whole file for one such text; as an id it is one more user, as a group it has no name."""
    users = [f"u{number}".encode() for number in range(60)]
    groups = [f"g{number % 5}".encode() for number in range(60)]

    def written(odd: bytes) -> Path:
        for part in range(files):
            ids, names = invalid_text(*users[part::files], odd), invalid_text(*groups[part::files], odd)
            values = pa.array([*[float(number) for number in range(60)][part::files], 1000.0])
            stored = {"u" if part == 0 else "U": ids, "g": names, "v": values}  # one column to the engine
            pq.write_table(pa.table(stored), tmp_path / f"part-{part}.parquet")
        return tmp_path / "part-*.parquet"

    fine = names_and_sums(written(b"zz"), max_groups=1)
    odd = names_and_sums(written(b"\xff\xfe"), max_groups=1)
    assert [one for one in fine if one[1] < 1000] == odd
    assert user_table(written(b"\xff"), user="u", value="v").n_users == 61
    release = hm.count(written(b"\xff"), user="u", epsilon=100)
    assert release.value == 61


def test_a_stream_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that was used up would look like data without users."""
    import duckdb

    from hubermean.ingest import rows

    table = pa.table({"u": range(20), "v": [1.0] * 20})

    def failing(*_: Any, **__: Any) -> Any:
        raise duckdb.OutOfMemoryException("no")

    monkeypatch.setattr(rows, "fetch", failing)
    with pytest.raises(hm.InputError, match="could not be read"):
        user_table(table.to_reader(), user="u", value="v", memory_limit="20MB")


def test_users_who_were_stated_and_not_found_have_nothing_usable() -> None:
    table = UserTable.from_means(np.array([1.0, 5.0]), np.array([1, 1]))
    whole = padded(table, 5).collected()
    assert (whole.n_users, sorted(whole.counts.tolist())) == (5, [0, 0, 0, 1, 1])
    with pytest.raises(hm.InputError, match="more users"):
        padded(table, 1)
    request = Request.checked(("mean",), epsilon=1, delta=0, per="user", neighbors="replace-user")
    facts = PublicFacts.of(whole, Neighbors.REPLACE_USER)
    missing = UserTable.from_means(np.array([1.0, 5.0, *[np.nan] * 3]), np.ones(5, dtype=int))
    laws = [Clipped(bounds=(0, 10)).prepare(request, facts).law(one) for one in (whole, missing)]
    first, second = (list(law.position) for law in laws)
    assert first == second


def test_the_charge_is_on_disk_before_the_first_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubermean.ingest import rows

    pq.write_table(pa.table({"u": range(300), "v": [1.0] * 300}), tmp_path / "t.parquet")
    ledger = hm.Ledger(tmp_path / "ledger.sqlite")
    ledger.init("trips", epsilon=1.0)
    fetch, seen = rows.fetch, []

    def watched(*given: Any, **more: Any) -> Any:
        seen.append(json.loads(json.dumps(str(ledger.dataset("trips").left_in_words))))
        return fetch(*given, **more)

    monkeypatch.setattr(rows, "fetch", watched)
    hm.mean(
        tmp_path / "t.parquet",
        user="u",
        value="v",
        epsilon=0.25,
        bounds=(0, 2),
        per="user",
        ledger=ledger,
        dataset="trips",
    )
    assert seen
    assert all("0.75" in left for left in seen)
