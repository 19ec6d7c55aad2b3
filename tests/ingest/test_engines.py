"""Every engine makes the same exact integers of the same records: one suite that all of them pass.

To have another engine held to it, add a way to hand it an Arrow table to `_MAKERS`.
"""

from __future__ import annotations

import datetime
import math
import random
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from fuzz.oracle import Rule, expected, found, found_in_groups

import hubermean as hm
from helpers.more_containers import postgres_table
from helpers.spark_sessions import HARD_FLOATS, in_spark
from hubermean.ingest.identity import identity_text
from hubermean.ingest.reading import group_table, user_table

Maker = Callable[[pa.Table], Any]
INFINITE = math.inf
_EXACT = Context(prec=60)


def _arrow(_: pytest.FixtureRequest) -> Maker:
    return lambda table: table


def _parquet(request: pytest.FixtureRequest) -> Maker:
    folder: Path = request.getfixturevalue("tmp_path")

    def made(table: pa.Table) -> Path:
        pq.write_table(table, folder / "data.parquet")
        return folder / "data.parquet"

    return made


def _spark(request: pytest.FixtureRequest) -> Maker:
    session = request.getfixturevalue("spark")

    def made(table: pa.Table) -> Any:
        # By default Spark takes points in time without a time zone to be in that of its session.
        session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        try:
            return in_spark(session)(table)
        finally:
            session.conf.unset("spark.sql.timestampType")

    return made


def _spark_of_files(request: pytest.FixtureRequest) -> Maker:
    session, stored = request.getfixturevalue("spark"), _parquet(request)
    return lambda table: session.read.parquet(str(stored(table)))


def _arrow_file(request: pytest.FixtureRequest) -> Maker:
    folder: Path = request.getfixturevalue("tmp_path")

    def made(table: pa.Table) -> Path:
        feather.write_feather(table, folder / "data.arrow")
        return folder / "data.arrow"

    return made


def _s3(request: pytest.FixtureRequest) -> Maker:
    server, stored = request.getfixturevalue("s3"), _parquet(request)
    return lambda table: server.upload(stored(table), f"{uuid.uuid4().hex}.parquet")


def _postgres(_: pytest.FixtureRequest) -> Maker:
    def made(table: pa.Table) -> Any:
        texts = [
            one for column in table.columns if pa.types.is_string(column.type) for one in column.to_pylist()
        ]
        if any("\0" in text for text in texts if text is not None):
            pytest.skip("a text of PostgreSQL has no character 0")
        return postgres_table(table)

    return made


_MAKERS = {
    "arrow": _arrow,
    "parquet": _parquet,
    "spark": _spark,
    "arrow-file": _arrow_file,
    "s3": _s3,
    "postgres": _postgres,
}
_WITHOUT = {"postgres"}  # databases have no unsigned numbers
_UNSIGNED = {name: maker for name, maker in _MAKERS.items() if name not in _WITHOUT}
_UNSIGNED["spark"] = _spark_of_files  # Spark takes unsigned numbers from files alone


@pytest.fixture(params=_MAKERS)
def made(request: pytest.FixtureRequest) -> Maker:
    return _MAKERS[request.param](request)


@pytest.fixture(params=_UNSIGNED)
def made_of_unsigned(request: pytest.FixtureRequest) -> Maker:
    return _UNSIGNED[request.param](request)


def _rows(count: int, seed: int = 1) -> list[int | None]:
    chance = random.Random(seed)
    return [None if chance.random() < 0.1 else chance.randrange(7) for _ in range(count)]


def _agrees(
    made: Maker,
    users: Sequence[Hashable | None],
    columns: dict[str, tuple[pa.Array, Sequence[Fraction | None]]],
    *,
    kind: pa.DataType | None = None,
    **how: Any,
) -> None:
    table = pa.table({"u": pa.array(users, type=kind), **{name: one[0] for name, one in columns.items()}})
    got = user_table(made(table), user="u", value=list(columns), **how).collect()
    assert found(got) == expected(users, [one[1] for one in columns.values()])


@pytest.mark.fair_sample(0.5)
@pytest.mark.parametrize(
    "rule", [Rule(), Rule(clamp=True), Rule(resolution=0.01), Rule(resolution=3.0, clamp=True)]
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_floats_are_rounded_and_added_exactly(made: Maker, rule: Rule, kind: pa.DataType) -> None:
    values = HARD_FLOATS * 3 + [random.Random(2).uniform(-1e6, 1e6) for _ in range(200)]
    stored = pa.array(values, type=pa.float64()).cast(kind, safe=False)
    exact = [None if one is None else float(one) for one in stored.to_pylist()]
    _agrees(made, _rows(len(values)), {"v": (stored, [rule.real(one) for one in exact])}, **rule.arguments)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_()])
def test_whole_numbers_are_added_as_they_are(made: Maker, kind: pa.DataType) -> None:
    least, most = (
        (0, 1) if kind == pa.bool_() else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    )
    values = [None if i % 11 == 0 else (least, most, 0, most, 1)[i % 5] for i in range(300)]
    stored = pa.array(
        [None if v is None else bool(v) for v in values] if kind == pa.bool_() else values, type=kind
    )
    _agrees(made, _rows(300), {"v": (stored, [None if v is None else Fraction(v) for v in values])})


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_unsigned_numbers_are_added_as_they_are_and_clamped_to_64_bits(
    made_of_unsigned: Maker, kind: pa.DataType
) -> None:
    most = 2**kind.bit_width - 1
    values = [None if i % 11 == 0 else (0, most, most // 2, most // 2 + 1, 1)[i % 5] for i in range(300)]
    users = _rows(300)
    table = pa.table({"u": users, "v": pa.array(values, type=kind)})
    for rule in (Rule(), Rule(resolution=3.0)):
        got = user_table(made_of_unsigned(table), user="u", value="v", **rule.arguments).collect()
        assert found(got) == expected(users, [[rule.whole(one) for one in values]])
        assert got.limits == ((2**63 - 1) * Fraction(rule.resolution or 1),)


@pytest.mark.fair_sample(0.5)
@pytest.mark.parametrize(
    ("width", "scale"), [(9, 2), (18, 0), (18, 18), (19, 2), (30, 18), (37, 0), (38, 0), (38, 18)]
)
def test_decimals_are_added_in_their_last_digit(made: Maker, width: int, scale: int) -> None:
    unit, most = Fraction(1, 10**scale), 10**width - 1
    chance = random.Random(3)
    digits = [chance.choice([0, 1, -1, most, -most, chance.randrange(-most, most)]) for _ in range(200)]
    stored = pa.array(
        [Decimal(one).scaleb(-scale, _EXACT) for one in digits], type=pa.decimal128(width, scale)
    )
    limit = 2**63 - 1 if width <= 18 else (2**63 - 1) * 10**18
    values = [min(max(one, -limit), limit) * unit for one in digits]
    _agrees(made, _rows(200), {"v": (stored, values)})


def test_decimals_of_many_digits_behind_the_point_are_read_as_floats(made: Maker) -> None:
    values = [Decimal("0.12345678901234567890"), Decimal("-3.5"), Decimal("1e-20")]
    stored = pa.array(values, type=pa.decimal128(38, 20))
    _agrees(made, [1, 1, 2], {"v": (stored, [Rule().real(float(one)) for one in values])})


@pytest.mark.parametrize("made", ["arrow", "spark"], indirect=True)  # Parquet has no durations, but integers
def test_durations_are_added_in_microseconds(made: Maker) -> None:
    half_a_year = (
        180 * 86_400_000_000
    )  # from winter to summer, whatever the clocks of a session's time zone do
    micros = [0, 1, -1, 86_400_000_000, 123_456_789_012, None, -999_999, half_a_year, 2**62 + 1, -(2**63)]
    stored = pa.array(micros, type=pa.duration("us"))
    values = [None if one is None else Fraction(one, 10**6) for one in micros]
    _agrees(made, [1, 1, 2, 2, 3, 3, 3, 4, 5, 6], {"v": (stored, values)})


@pytest.mark.parametrize(
    ("users", "kind"),
    [
        (["a", "A", "a ", "", None, "ä", "ä", "\0", "a"], pa.string()),
        ([b"\xff", b"", b"\x00", None, b"\xff", b"a", b"A", b"a", b"a\x00"], pa.binary()),
        ([1.0, -0.0, 0.0, math.nan, None, INFINITE, -INFINITE, 1.0, 0.5], pa.float64()),
        ([2**63 - 1, -(2**63), 0, None, 1, 1, 2**53, 2**53 + 1, 0], pa.int64()),
        ([datetime.date(2024, 2, 29 - i % 3) for i in range(9)], pa.date32()),
        ([True, False, None, True, True, False, None, False, True], pa.bool_()),
        ([Decimal("1.10"), Decimal("1.1"), Decimal("-1.10"), None, *[Decimal(0)] * 5], pa.decimal128(10, 2)),
    ],
)
def test_users_are_distinguished_by_their_ids(made: Maker, users: list[Any], kind: pa.DataType) -> None:
    values = [float(2**place) for place in range(len(users))]
    _agrees(made, users, {"v": (pa.array(values), [Fraction(one) for one in values])}, kind=kind)


def test_users_are_distinguished_by_unsigned_numbers(made_of_unsigned: Maker) -> None:
    users = [2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 0, None, 1, 2**64 - 1, 2**53, 2**53 + 1]
    values = [float(2**place) for place in range(len(users))]
    numbers = (pa.array(values), [Fraction(one) for one in values])
    _agrees(made_of_unsigned, users, {"v": numbers}, kind=pa.uint64())


def test_a_user_may_be_told_by_two_columns(made: Maker) -> None:
    first, second = ["a", "a", "b", None, "b", "a"], [1, 2, 1, 1, None, 1]
    table = pa.table({"x": first, "y": second, "v": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]})
    got = user_table(made(table), user=["x", "y"], value="v").collect()
    assert sorted(one[0][0] for one in found(got)) == [2, 4, 33]


def test_a_record_counts_if_all_its_values_do(made: Maker) -> None:
    rule, chance = Rule(), random.Random(4)
    floats = [chance.choice(HARD_FLOATS) for _ in range(300)]
    whole = [chance.choice([None, 1, -5, 10**18]) for _ in range(300)]
    columns = {
        "v": (pa.array(floats), [rule.real(one) for one in floats]),
        "w": (pa.array(whole), [rule.whole(one) for one in whole]),
    }
    _agrees(made, _rows(300), columns)


@pytest.mark.parametrize("size", [8e12, -8e12, 9.2e18])
def test_sums_that_need_more_than_64_bits_are_exact(made: Maker, size: float) -> None:
    whole = abs(size) > 1e13
    values = [int(size)] * 40 if whole else [size] * 40
    stored = pa.array(values, type=pa.int64() if whole else pa.float64())
    _agrees(made, [1, 2] * 20, {"v": (stored, [Fraction(one) for one in values])})


def test_without_values_records_are_counted(made: Maker) -> None:
    users = _rows(100)
    got = user_table(made(pa.table({"u": users})), user="u", value=None).collect()
    assert sorted(got.counts.tolist()) == sorted(users.count(one) for one in set(users) - {None})


@pytest.mark.parametrize("rows", [0, 1])
def test_nobody_at_all_is_an_empty_table(made: Maker, rows: int) -> None:
    table = pa.table({"u": pa.array([None] * rows, pa.int64()), "v": pa.array([1.0] * rows, pa.float64())})
    assert user_table(made(table), user="u", value="v").n_users == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"user": "nobody", "value": "v"}, "there is no column 'nobody'"),
        ({"user": "u", "value": "nothing"}, "there is no column 'nothing'"),
        ({"user": "u", "value": "text"}, "has no mean"),
        ({"user": "list", "value": "v"}, "cannot identify users"),
    ],
)
def test_columns_that_cannot_serve_are_refused_in_words(
    made: Maker, columns: dict[str, str], words: str
) -> None:
    table = pa.table({"u": [1], "v": [2.0], "text": ["x"], "list": pa.array([[1]])})
    with pytest.raises(hm.InputError, match=words):
        user_table(made(table), **columns)


# --- groups -----------------------------------------------------------------------------------------------------------

USERS = [1, 1, 1, 2, 2, 3, 4, None, 5, 5]
CITIES = ["Bern", "Zug", "Bern", "Zug", None, "Basel", "Bern", "Bern", "Zug", "Basel"]
FARES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, math.nan, 64.0, 128.0, 256.0]


@pytest.fixture
def trips(made: Maker) -> Any:
    return made(pa.table({"u": USERS, "city": CITIES, "v": FARES}))


def _grouped(data: Any, **how: Any) -> Any:
    asked: dict[str, Any] = {"keys": None, "max_groups": 9, **how}
    return group_table(data, user=["u"], value=["v"], by=["city"], **asked)


def test_sums_by_user_and_group_are_exact(trips: Any) -> None:
    assert found_in_groups(_grouped(trips)) == [
        ("('Basel',)", (Fraction(32),), 1),
        ("('Basel',)", (Fraction(256),), 1),
        ("('Bern',)", (Fraction(0),), 0),
        ("('Bern',)", (Fraction(5),), 2),
        ("('Zug',)", (Fraction(2),), 1),
        ("('Zug',)", (Fraction(8),), 1),
        ("('Zug',)", (Fraction(128),), 1),
    ]


def test_public_groups_are_those_that_were_named(trips: Any) -> None:
    table = _grouped(trips, keys=[("Zug",), ("Chur",)])
    assert table.keys == (("Zug",), ("Chur",))
    assert [one[1][0] for one in found_in_groups(table)] == [2, 8, 128]


@pytest.mark.parametrize("most", [1, 2])
def test_nobody_counts_in_more_groups_than_allowed(trips: Any, most: int) -> None:
    table = _grouped(trips, max_groups=most)
    held = [one[1][0] for one in found_in_groups(table)]
    assert sum(one in (2, 5) for one in held) == most  # user 1 is in two groups
    assert sum(one in (128, 256) for one in held) == most  # and so is user 5
    assert {0, 8, 32} <= set(held)
    assert found_in_groups(_grouped(trips, max_groups=most)) == found_in_groups(table)


def test_users_of_the_same_groups_do_not_all_count_in_the_same_ones(made: Maker) -> None:
    """Else a group that all share would take everybody from the others."""
    users, cities = [f"user {number}" for number in range(60)], ["Basel", "Bern", "Zug"]
    data = {"u": users * 3, "city": [city for city in cities for _ in users], "v": [1.0] * 180}
    table = _grouped(made(pa.table(data)), max_groups=1)
    chosen = Counter(key for (key,) in (table.keys[group] for group in table.membership.groups.tolist()))
    assert sum(chosen.values()) == 60
    assert min(chosen[city] for city in cities) >= 8  # of 20 each in the mean; the sums are always the same


@pytest.mark.parametrize("keys", [None, [("Zug",), ("Bern",)], [("Chur",)]])
@pytest.mark.parametrize("most", [None, 1])
def test_entries_of_one_user_and_no_other_have_one_owner(trips: Any, keys: Any, most: int | None) -> None:
    """Users 1 and 5 are in two cities each, user 2 is in one and in none, user 4 in one with nothing usable."""
    table = _grouped(trips, keys=keys, max_groups=most)
    rows: dict[int, list[Any]] = {owner: [] for owner in range(table.n_owners)}
    for owner, group, place in zip(
        table.owners.tolist(), table.membership.groups.tolist(), range(len(table.owners)), strict=True
    ):
        rows[owner].append((table.keys[group][0], int(table.members.sums[0].fraction(place))))
    named = {city for (city,) in keys} if keys is not None else {"Basel", "Bern", "Zug"}
    held = [{"Bern": 5, "Zug": 2}, {"Zug": 8}, {"Basel": 32}, {"Bern": 0}, {"Zug": 128, "Basel": 256}]
    allowed = [{(city, fare) for city, fare in one.items() if city in named} for one in held]
    numbers = [len(one) if most is None else min(len(one), most) for one in allowed]
    assert len(rows) == 5
    assert sorted(map(len, rows.values())) == sorted(numbers)
    for row in rows.values():
        assert any(set(row) <= one for one in allowed)
    users = table.users()
    assert users.n_users == 5
    totals = [int(users.sums[0].fraction(owner)) for owner in range(5)]
    assert totals == [sum(fare for _, fare in rows[owner]) for owner in range(5)]
    assert users.counts.sum() == table.members.counts.sum()


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([0.0, -0.0, 1.5, -1.5, 0.0, 1.5]),
        pa.array(["a", "a", "A", "a ", "a", "A"]),
        pa.array([1, 1, 2**62, -(2**62), 1, 2**62]),
        pa.array([7, 7, 9, 8, 7, 9], pa.int8()),
        pa.array([b"x", b"x", b"x\0", b"", b"x", b"x\0"]),
        pa.array([datetime.date(2024, 1, day) for day in (1, 1, 3, 2, 1, 3)]),
        pa.array([Decimal(number) for number in ("1.5", "1.50", "2", "3", "1.5", "2")], pa.decimal128(30, 2)),
    ],
    ids=str,
)
def test_owners_are_distinguished_whatever_the_type_of_ids(made: Maker, ids: pa.Array) -> None:
    cities = ["Bern", "Zug", "Bern", "Zug", "Basel", None]
    data = made(pa.table({"u": ids, "city": cities, "v": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]}))
    table = _grouped(data, max_groups=None)
    assert table.n_owners == 3
    assert sorted(table.users().sums[0].fraction(owner) for owner in range(3)) == [4, 8, 19]


@pytest.mark.parametrize(
    ("names", "kind", "keys"),
    [
        ([3, 4, 3], pa.int32(), [3, 4]),
        ([True, False, None], pa.bool_(), [True, False]),
        (
            [datetime.date(2024, 2, 29), None, datetime.date(1900, 1, 1)],
            pa.date32(),
            [datetime.date(2024, 2, 29)],
        ),
        ([Decimal("1.10"), Decimal("2.00"), None], pa.decimal128(5, 2), [Decimal("1.1"), Decimal(2)]),
    ],
)
def test_groups_may_be_of_many_types(
    made: Maker, names: list[Any], kind: pa.DataType, keys: list[Any]
) -> None:
    data = made(pa.table({"u": [1, 2, 3], "city": pa.array(names, type=kind), "v": [1.0, 2.0, 3.0]}))
    public = _grouped(data, keys=[(key,) for key in keys])
    private = _grouped(data)
    assert [key[0] for key in public.keys] == keys
    texts = {identity_text(name) for name in names if name is not None}
    assert sorted(key[0] for key in private.keys) == sorted(texts)  # text, whatever the type
    assert len(found_in_groups(public)) == sum(name in keys for name in names)


@pytest.mark.parametrize("keys", [None, [2**64 - 1, 1]])
def test_groups_may_be_unsigned_numbers(made_of_unsigned: Maker, keys: list[int] | None) -> None:
    cities = pa.array([2**64 - 1, 2**64 - 2, None, 1], type=pa.uint64())
    data = made_of_unsigned(pa.table({"u": [1, 2, 3, 4], "city": cities, "v": [1.0, 2.0, 4.0, 8.0]}))
    got = _grouped(data, keys=None if keys is None else [(key,) for key in keys])
    shown = keys or [str(key) for key in (1, 2**64 - 2, 2**64 - 1)]
    assert sorted(key for (key,) in got.keys) == sorted(shown)
    assert sorted(one[1][0] for one in found_in_groups(got)) == ([1, 8] if keys else [1, 2, 8])


# --- periods ----------------------------------------------------------------------------------------------------------

MOMENTS = [
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999999),
    datetime.datetime(2024, 12, 30),  # in the first week of 2025
    datetime.datetime(2021, 1, 3, 12),  # in the last week of 2020
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1970, 1, 1),
    None,
    datetime.datetime(1582, 10, 14),
    datetime.datetime(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23),
]


def period_of(moment: datetime.datetime | None, period: str) -> str | None:
    """The name of a period, from Python's own calendar."""
    if moment is None:
        return None
    year, week, _ = moment.isocalendar()
    return {
        "day": moment.date().isoformat(),
        "week": f"{year:04d}-W{week:02d}",
        "month": moment.date().isoformat()[:7],
        "quarter": f"{moment.year:04d}-Q{(moment.month + 2) // 3}",
        "year": f"{moment.year:04d}",
    }[period]


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_dates_and_timestamps_are_grouped_by_period(made: Maker, kind: pa.DataType, period: str) -> None:
    moments = pa.array(MOMENTS, pa.timestamp("us")).cast(kind, safe=False)
    values = [float(2**place) for place in range(len(MOMENTS))]
    data = made(pa.table({"u": range(len(MOMENTS)), "city": moments, "v": values}))
    got = group_table(data, user=["u"], value=["v"], by=[f"{period}(city)"], keys=None, max_groups=9)
    wanted: Counter[Any] = Counter()
    for moment, value in zip(MOMENTS, values, strict=True):
        if (name := period_of(moment, period)) is not None:
            wanted[name] += value
    names = [got.keys[group][0] for group in got.membership.groups.tolist()]
    sums: Counter[Any] = Counter()
    for name, place in zip(names, range(len(names)), strict=True):
        sums[name] += float(got.members.sums[0].fraction(place))
    assert sums == wanted


@pytest.mark.parametrize("clock", ["America/New_York", "Pacific/Kiritimati"])
def test_the_time_zone_of_a_session_moves_nobody_into_another_month(
    made: Maker, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", clock)
    monkeypatch.setenv("PGTZ", clock)
    moments = pa.array(
        [datetime.datetime(2024, 3, 1, 0, 30), datetime.datetime(2024, 2, 29, 23, 30)],
        pa.timestamp("us", "UTC"),
    )
    data = made(pa.table({"u": [1, 2], "city": moments, "v": [1.0, 2.0]}))
    if hasattr(data, "sparkSession"):
        data.sparkSession.conf.set("spark.sql.session.timeZone", clock)
    try:
        got = group_table(
            data,
            user=["u"],
            value=["v"],
            by=["month(city)", "day(city)"],
            keys=[("2024-02", "2024-02-29"), ("2024-03", "2024-03-01")],
            max_groups=9,
        )
    finally:
        if hasattr(data, "sparkSession"):
            data.sparkSession.conf.unset("spark.sql.session.timeZone")
    assert found_in_groups(got) == [
        ("('2024-02', '2024-02-29')", (Fraction(2),), 1),
        ("('2024-03', '2024-03-01')", (Fraction(1),), 1),
    ]


def test_a_timestamp_itself_is_refused_as_a_group_with_the_periods_it_has(made: Maker) -> None:
    moments = pa.array([datetime.datetime(2024, 3, 1)], pa.timestamp("us"))
    data = made(pa.table({"u": [1], "city": moments, "v": [1.0]}))
    with pytest.raises(hm.InputError, match=r"group by month\(city\)"):
        group_table(data, user=["u"], value=["v"], by=["city"], keys=None, max_groups=1)


def test_what_has_no_month_is_refused(made: Maker) -> None:
    data = made(pa.table({"u": [1], "city": ["2024-02-29"], "v": [1.0]}))
    with pytest.raises(hm.InputError, match="has no month; use a column of dates or timestamps"):
        group_table(data, user=["u"], value=["v"], by=["month(city)"], keys=None, max_groups=1)


@pytest.mark.parametrize(("period", "key"), [("month", "2024-13"), ("year", "24"), ("week", "2024-09")])
def test_keys_that_are_no_period_are_refused(made: Maker, period: str, key: str) -> None:
    data = made(pa.table({"u": [1], "day": [datetime.date(2024, 2, 29)], "v": [1.0]}))
    with pytest.raises(hm.InputError, match=f"group 1 of keys is no {period}; write keys like '2024"):
        hm.mean(data, user="u", value="v", by=f"{period}(day)", keys=[key], epsilon=1, bounds=(0, 1))
