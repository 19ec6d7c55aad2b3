"""One user's records change nothing about how others are read, in any container; nor does the container.

Hypothesis draws records, what one user adds to them, and a container. What ingest makes of everybody else must be the
same to the last bit: sums, counts, which groups they count in, names and types of keys, refusals and their words.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fuzz.oracle import Rule
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.container_entries import GROUP, USER, VALUE, Look, Refusal, expected_groups, expected_users
from helpers.more_containers import ALL_CONTAINERS as CONTAINERS
from helpers.more_containers import OPTIONS
from hubermean import _api as api
from hubermean.auditing.cells import TEXT, Cell, Columns, common_kinds, identity
from hubermean.auditing.containers import Container
from hubermean.noise.seeded import InsecureSeededNoise

ON_DUCKDB = [name for name in CONTAINERS if name != "spark"]
UNTYPED = [name for name, container in CONTAINERS.items() if not container.typed]
PANDAS = [name for name in UNTYPED if name.startswith("pandas")]

INTEGERS = [0, 1, 2, 7, -3, 10**6, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, 2.5, 7.0, -0.125, 1e-7, 1e16, 1e300, math.inf, -math.inf]
DECIMALS = [Decimal(text) for text in ("7.00", "0.10", "1E+2", "-0.0", "2.5", "-3")]
TEXTS = [
    "a",
    "b",
    "A",
    " a",
    "b ",
    "Zürich",
    "nan",
    "None",
    "NULL",
    "true",
    "1",
    "1.0",
    "07",
    "x,y",
    'q"q',
    "漢",
]
DATES = [date(2024, 2, 29), date(1900, 1, 1), date(9999, 12, 31)]
OTHERS = [True, False, b"\xff", b"", uuid.UUID(int=5), None, math.nan]
STYLES: list[list[Cell]] = [
    INTEGERS,
    [*INTEGERS[:6], None],
    [*FLOATS, *INTEGERS[:6], math.nan],
    DECIMALS,
    TEXTS,
    [*TEXTS, None],
    DATES,
    [True, False, None],
    [*INTEGERS, *FLOATS, *DECIMALS, *TEXTS, *DATES, *OTHERS],
]
ODD: list[Cell] = [
    *(
        "x",
        2.5,
        None,
        True,
        False,
        date(2024, 2, 29),
        "\ud800",
        "z\udfff",
        10**30,
        -(10**400),
        math.nan,
        math.inf,
    ),
    *(
        Decimal("1.50"),
        Decimal("NaN"),
        b"\xff",
        uuid.UUID(int=9),
        "",
        "a\0b",
        "two\nlines",
        "only here",
        1e13,
    ),
]
ODD_IDS: list[list[Cell]] = [*([cell] for cell in ODD), [7777, 7777.0, "7777", Decimal("7777.00")]]
NUMBERS: list[list[Cell]] = [
    [None, 0, 1, -5, 10**13, 2**63 - 1],
    [None, 0.0, 0.1, -2.5, 1e13, math.nan, math.inf, -math.inf],
    [None, Decimal("0.10"), Decimal("-7"), Decimal("1E+13")],
    [None, True, False],
]
"""Values of one type each: what a container with types may have as values."""
ODD_NUMBERS: list[Cell] = [*ODD, " 7 ", "1e3", "false", Decimal("0.1"), -1e300]


def column(cells: Sequence[Cell], size: int) -> st.SearchStrategy[list[Cell]]:
    return st.lists(st.sampled_from(cells), min_size=size, max_size=size)


@st.composite
def iterate_neighbors(draw: st.DrawFn, container: Container) -> tuple[Columns, Columns]:
    """Records of some users, and the same with one more user's among them."""
    size = draw(st.integers(1, 12))
    more = draw(st.integers(1, 4))
    if container.typed:
        values = numbers = draw(st.sampled_from(NUMBERS))
    else:
        values, numbers = draw(st.sampled_from([*STYLES, *NUMBERS])), ODD_NUMBERS
    own_ids = draw(st.sampled_from(ODD_IDS))
    groups = draw(st.sampled_from(STYLES))
    base = {
        USER: draw(column(draw(st.sampled_from(STYLES)), size)),
        GROUP: draw(column(groups, size)),
        VALUE: draw(column(values, size)),
    }
    own = {
        USER: draw(column(own_ids, more)),
        GROUP: draw(column([*ODD, *groups], more)),
        VALUE: draw(column(numbers, more)),
    }
    who = {identity(cell) for cell in own_ids}
    kept = [
        place for place, cell in enumerate(base[USER]) if identity(cell) is None or identity(cell) not in who
    ]
    base = {name: [cells[place] for place in kept] for name, cells in base.items()}
    places = [draw(st.integers(0, len(kept))) for _ in range(more)]

    def whole(name: str) -> list[Cell]:
        cells = list(base[name])
        for place, cell in zip(places, own[name], strict=True):
            cells.insert(place, cell)
        return cells

    return base, {name: whole(name) for name in base}


looks = st.sampled_from(
    [
        Look(),
        Look(max_groups=1),
        Look(max_groups=2),
        Look(by_group=True),
        Look(by_group=True, keys=("a", "2", "true", "2024-02-29")),
        Look(max_groups=1, keys=("a", "2", "true", "2024-02-29")),
    ]
)


def others_stay(container: Container, base: Columns, whole: Columns, look: Look) -> None:
    """What is made of all others is the same with and without the user."""
    assume(_is_held(container, base) and _is_held(container, whole))
    kinds = common_kinds(base, whole) if container.typed else None
    before = look.within(container.name, base, kinds)
    after = look.within(container.name, whole, kinds)
    if isinstance(before, Refusal) or isinstance(after, Refusal):
        assert container.typed, "what is in a container without types decided whether there is an answer"
        assert before == after
        return
    assert not before - after, "somebody else's entry has changed"
    assert (after - before).total() <= look.of_one_user(len(whole[USER]) - len(base[USER]))
    if not look.grouped:
        own = [cell for cell in whole[USER] if identity(cell) not in {*map(identity, base[USER]), None}]
        empty = own == [""] * len(own) and container.name.startswith("csv")  # where that is a missing cell
        records = [entry[-1] for entry in after - before]
        assert records == ([len(own)] if own and not empty else []), "a record has vanished"


def _is_held(container: Container, columns: Columns) -> bool:
    """Whether pandas itself keeps the ids and groups as they are: among floats it rounds large integers."""
    if container.name not in ("pandas", "pandas-nullable", "pandas-categorical"):
        return True
    frame = container.make(columns, None)
    return all(
        [identity(cell) for cell in frame[name].tolist()]
        == [_escaped(identity(cell), container) for cell in cells]
        for name, cells in columns.items()
        if name != VALUE
    )


def _escaped(text: str | None, container: Container) -> str | None:
    if text is None or container.name != "pandas-categorical":
        return text
    return text.encode(errors="backslashreplace").decode()


_SHORT = 40


def sample(examples: int) -> Callable[[Any], Any]:
    quick = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
    phases = (Phase.explicit, Phase.generate) if "HUBERMEAN_QUICK_RED" in os.environ else tuple(Phase)
    # The short sample is the same in every run; the long one is drawn anew.
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=quick,
        phases=phases,
        derandomize=examples <= _SHORT,
    )


@pytest.mark.parametrize("name", ON_DUCKDB)
@given(data=st.data(), look=looks)
@sample(12)
def test_one_user_changes_nothing_about_others(name: str, data: st.DataObject, look: Look) -> None:
    container = CONTAINERS[name]
    others_stay(container, *data.draw(iterate_neighbors(container)), look)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_DUCKDB)
@given(data=st.data(), look=looks)
@sample(500)
def test_one_user_changes_nothing_about_others_in_many_examples(
    name: str, data: st.DataObject, look: Look
) -> None:
    container = CONTAINERS[name]
    others_stay(container, *data.draw(iterate_neighbors(container)), look)


@pytest.mark.parametrize("name", ["spark", "parquet"])
@given(data=st.data(), look=looks)
@sample(4)
def test_one_user_changes_nothing_about_others_in_spark(
    name: str, spark: Any, data: st.DataObject, look: Look
) -> None:
    container = CONTAINERS[name]
    others_stay(container, *data.draw(iterate_neighbors(container)), _in_spark(look))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark", "parquet"])
@given(data=st.data(), look=looks)
@sample(150)
def test_one_user_changes_nothing_about_others_in_spark_in_many_examples(
    name: str, spark: Any, data: st.DataObject, look: Look
) -> None:
    container = CONTAINERS[name]
    others_stay(container, *data.draw(iterate_neighbors(container)), _in_spark(look))


def _in_spark(look: Look) -> Look:
    return replace(look, engine="spark")


# --- the same records in every container ------------------------------------------------------------------------------

SAME_NUMBERS = [None, 0, 1, -5, 2.5, -0.125, 10**12, True]
"""Values that are one number, however they are stored: neither rounded nor beyond what a float may be."""
KEYS = [style for style in STYLES if style is not STYLES[2]]
"""Group keys; a container with types may refuse floats as such."""


@st.composite
def records(draw: st.DrawFn, keys: Sequence[Sequence[Cell]], numbers: Sequence[Cell]) -> Columns:
    size = draw(st.integers(1, 12))
    return {
        USER: draw(column(draw(st.sampled_from(STYLES)), size)),
        GROUP: draw(column(draw(st.sampled_from(keys)), size)),
        VALUE: draw(column(numbers, size)),
    }


def agrees(container: Container, columns: Columns, numbers: Sequence[Fraction | None], look: Look) -> None:
    """A container's entries are those of the rules of reading, and group choices those of plain text in Arrow."""
    assume(_is_held(container, columns))
    if container.typed:
        columns = {**columns, VALUE: [None if cell is None else float(cell) for cell in columns[VALUE]]}
    kinds = {**common_kinds(columns), VALUE: "double"} if container.typed else None
    found = look.within(container.name, columns, kinds)
    if not look.grouped:
        assert found == expected_users(columns, numbers)
    elif look.max_groups is None:
        assert found == expected_groups(columns, numbers)
    else:
        plain = {name: [identity(cell) for cell in columns[name]] for name in (USER, GROUP)}
        doubles = [None if number is None else float(number) for number in numbers]
        reference = Look(max_groups=look.max_groups).within(
            "arrow", {**plain, VALUE: doubles}, {USER: TEXT, GROUP: TEXT, VALUE: "double"}
        )
        assert found == reference


same_looks = st.sampled_from([Look(), Look(by_group=True), Look(max_groups=1), Look(max_groups=2)])


def exactly(cells: Sequence[Cell]) -> list[Fraction | None]:
    return [None if cell is None else Fraction(cell) for cell in cells]


@pytest.mark.parametrize("name", ON_DUCKDB)
@given(columns=records(KEYS[:-1], SAME_NUMBERS), look=same_looks)
@sample(6)
def test_the_same_records_are_the_same_in_every_container(name: str, columns: Columns, look: Look) -> None:
    agrees(CONTAINERS[name], columns, exactly(columns[VALUE]), look)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_DUCKDB)
@given(columns=records(KEYS, SAME_NUMBERS), look=same_looks)
@sample(300)
def test_the_same_records_are_the_same_in_every_container_in_many_examples(
    name: str, columns: Columns, look: Look
) -> None:
    agrees(CONTAINERS[name], columns, exactly(columns[VALUE]), look)


@pytest.mark.parametrize("name", ["spark", "parquet"])
@given(columns=records(KEYS[:-1], SAME_NUMBERS), look=same_looks)
@sample(6)
def test_the_same_records_are_the_same_in_spark(name: str, spark: Any, columns: Columns, look: Look) -> None:
    agrees(CONTAINERS[name], columns, exactly(columns[VALUE]), _in_spark(look))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark", "parquet"])
@given(columns=records(KEYS, SAME_NUMBERS), look=same_looks)
@sample(150)
def test_the_same_records_are_the_same_in_spark_in_many_examples(
    name: str, spark: Any, columns: Columns, look: Look
) -> None:
    agrees(CONTAINERS[name], columns, exactly(columns[VALUE]), _in_spark(look))


MIXED_NUMBERS = [
    *SAME_NUMBERS,
    "x",
    " 7 ",
    "1e3",
    "true",
    "false",
    "nan",
    "inf",
    Decimal("0.1"),
    1e300,
    10**13,
]
MIXED_NUMBERS += [date(2024, 2, 29), math.nan, math.inf, Decimal("NaN"), "2.5 kg", "1,5", 0.1]


def parsed(cell: Cell) -> Fraction | None:
    """A value of a container without types, as special-values.md has it."""
    text = cell.strip() if isinstance(cell, str) else cell
    if text in ("true", "false"):
        return Fraction(text == "true")
    if text is None or isinstance(cell, date):
        return None
    try:
        return Rule().real(float(text))
    except ValueError:
        return None


@pytest.mark.parametrize("name", UNTYPED)
@given(columns=records(STYLES, MIXED_NUMBERS), look=st.sampled_from([Look(), Look(by_group=True)]))
@sample(7)
def test_without_types_every_value_is_read_by_itself(name: str, columns: Columns, look: Look) -> None:
    agrees(CONTAINERS[name], columns, [parsed(cell) for cell in columns[VALUE]], look)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNTYPED)
@given(columns=records(STYLES, MIXED_NUMBERS), look=same_looks)
@sample(300)
def test_without_types_every_value_is_read_by_itself_in_many_examples(
    name: str, columns: Columns, look: Look
) -> None:
    agrees(CONTAINERS[name], columns, [parsed(cell) for cell in columns[VALUE]], look)


@pytest.mark.parametrize(
    "name",
    [
        "csv",
        "csv-gz",
        "csv-formatted",
        "jsonl",
        "sqlite",
        "numpy",
        "pandas",
        "pandas-object",
        "pandas-string",
    ],
)
def test_halves_of_surrogate_pairs_are_ids_of_their_own_and_name_no_group(name: str) -> None:
    odd = ["\ud800", "\ud801", "a\udfff", "\ufffd", "a"]
    columns = {USER: odd * 2, GROUP: (odd * 2)[::-1], VALUE: [1, 2, 4, 8, 16] * 2}
    numbers = exactly(columns[VALUE])
    assert Look().within(name, columns) == expected_users(columns, numbers)
    assert Look(by_group=True).within(name, columns) == expected_groups(
        columns, numbers, shown=str.isprintable
    )


# --- pandas: the same cells, whatever the dtype -----------------------------------------------------------------------

DTYPES = [
    *("int64", "float64", "object", "Int64", "Float64", "int16", "uint64", "float32", "category", "str"),
    *("string[python]", "string[pyarrow]", "int64[pyarrow]", "double[pyarrow]", "large_string[pyarrow]"),
]


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("role", [USER, GROUP, VALUE])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_of_pandas_decides_nothing(dtype: str, role: str) -> None:
    users = [user for user in range(40) for _ in range(3)]
    frame = pd.DataFrame({USER: users, GROUP: [place * 7 % 5 for place in range(120)], VALUE: [3, 1, 2] * 40})
    held = frame[role].astype(dtype)
    # The same as categories, in another order and with one that nobody has.
    listed = dict.fromkeys([*held.tolist()[::-1], 3 * held.tolist()[-1]])
    categories = pd.Index(listed, dtype=None if dtype == "category" else dtype)
    for look in (Look(), Look(max_groups=1)):
        plain = look.at(pd.DataFrame({name: frame[name].astype(object) for name in frame}))
        assert not isinstance(plain, Refusal)
        assert look.at(frame.assign(**{role: held})) == plain
        assert look.at(frame.assign(**{role: held.astype(pd.CategoricalDtype(categories))})) == plain


@pytest.mark.parametrize("role", [USER, GROUP, VALUE])
def test_a_missing_cell_of_pandas_changes_no_other(role: str) -> None:
    """Integers become floats, and flags objects, by the first cell that is missing."""
    for cells in ([5, 6, 7] * 20, [True, False] * 30, ["5", "6", "7"] * 20):
        whole = {USER: list(range(60)), GROUP: [place % 3 for place in range(60)], VALUE: [1.0] * 60}
        whole[role] = cells
        for look in (Look(), Look(max_groups=1)):
            with_one = {name: [*held, None if name == role else 1] for name, held in whole.items()}
            with_one[USER][-1] = None if role == USER else "other"
            before, after = (look.at(pd.DataFrame(columns)) for columns in (whole, with_one))
            assert not isinstance(before, Refusal)
            assert not isinstance(after, Refusal)
            assert not before - after


@pytest.mark.parametrize("role", [USER, GROUP, VALUE])
def test_points_in_time_of_pandas_are_read_alike_in_every_unit(role: str) -> None:
    """One early date turns nanoseconds into seconds, and one text everything into objects."""
    days = pd.Series(pd.to_datetime(["2024-02-29", "2024-03-01", None, "1999-12-31"] * 15))
    other: dict[str, Any] = {USER: range(60), GROUP: [place % 3 for place in range(60)], VALUE: [1.0] * 60}
    forms = [days.astype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")]
    forms += [days.astype(object), days.astype("category"), days.astype("timestamp[us][pyarrow]")]
    forms += [pd.Series(days.dt.to_pydatetime(), dtype=object), days.astype("timestamp[ns][pyarrow]")]
    for look in (Look(), Look(max_groups=1)):
        found = [look.at(pd.DataFrame({**other, role: form})) for form in forms]
        assert all(one == found[0] for one in found)
        assert not isinstance(found[0], Refusal)


def test_durations_of_pandas_are_seconds_in_every_unit() -> None:
    spans = pd.Series(pd.to_timedelta([1, 2.5, None, -3600], unit="s"))
    forms = [spans.astype(f"timedelta64[{unit}]") for unit in ("ms", "us", "ns")]
    forms += [spans.astype(object), spans.astype("category"), spans.astype("duration[us][pyarrow]")]
    forms.append(pd.Series([1.0, 2.5, None, -3600.0]))
    found = [Look().at(pd.DataFrame({USER: [1, 2, 3, 4], VALUE: form})) for form in forms]
    assert all(one == found[-1] for one in found)


# --- a release --------------------------------------------------------------------------------------------------------


def test_a_release_is_the_same_from_every_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(5))
    columns = {USER: [user for user in range(50) for _ in range(2)], VALUE: [1, 2.5, 4, 8] * 25}
    releases = {}
    for name in ON_DUCKDB:
        kinds = {USER: TEXT, VALUE: "double"} if CONTAINERS[name].typed else None
        (tmp_path / name).mkdir()
        data = CONTAINERS[name].make(columns, tmp_path / name, kinds)
        made = hm.mean(
            data, user=USER, value=VALUE, epsilon=1, bounds=(0, 10), max_records=2, **OPTIONS.get(name, {})
        )
        assert made.neighbors.value == "add-remove"
        assert made.n_users is None
        releases[name] = made.to_dict()
    assert all(one == releases["arrow"] for one in releases.values())
