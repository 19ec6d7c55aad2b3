"""Data frames of every type and container: refused, or summed exactly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

import hubermean as hm
from fuzz.draw import Draw
from fuzz.oracle import Rule, Sums, clipped_mean, expected, expected_in_groups, found, found_in_groups
from fuzz.randomness import CountedNoise, NoNoise, drawn_from
from fuzz.releases import check_release
from fuzz.rows import MARK, VALUES, Rows
from fuzz.surroundings import working_folder
from fuzz.violation import is_foreign, require, result_or_refusal
from hubermean.ingest.inspection import unsafe_inspection
from hubermean.ingest.reading import group_table, user_table

DICTIONARY: tuple[bytes, ...] = ()
RESOLUTIONS = (None, None, None, 0.5, 0.01, 4.0, 1e-18, 1e18, 3e-7)
_HALVES = 2


def _chunked(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, len(table) // _HALVES), table.slice(len(table) // _HALVES)])


def _pandas(table: pa.Table) -> Any:
    return table.to_pandas()


def _pandas_arrow(table: pa.Table) -> Any:
    import pandas as pd

    return table.to_pandas(types_mapper=pd.ArrowDtype)


def _polars(table: pa.Table) -> Any:
    import polars as pl

    return pl.from_arrow(table)


def _polars_lazy(table: pa.Table) -> Any:
    return _polars(table).lazy()


def _polars_failing(table: pa.Table) -> Any:
    """A frame whose own plan fails at some values, in words that quote them."""
    import polars as pl

    return _polars_lazy(table).with_columns(v=pl.col("u").cast(pl.String).cast(pl.Int8))


def _failing_reader(table: pa.Table) -> Any:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise LookupError(MARK)

    return pa.RecordBatchReader.from_batches(table.schema, batches())


# Whether a container keeps types as they are, so that the oracle knows what is to be made of values.
CONTAINERS: tuple[tuple[Callable[[pa.Table], Any], bool], ...] = (
    (lambda table: table, True),
    (_chunked, True),
    (lambda table: table.to_reader(max_chunksize=3), True),
    (lambda table: ds.dataset(table), True),
    (_pandas, False),
    (_pandas_arrow, False),
    (_polars, False),
    (_polars_lazy, False),
    (_polars_failing, False),
    (_failing_reader, False),
)
# These are the same in every container.
PLAIN = (pa.float64(), pa.float32())
_PLAIN_USERS = (pa.int64(), pa.string())


def check(data: bytes) -> None:
    draw = Draw(data)
    contain, faithful = draw.pick(CONTAINERS)
    how = draw.below(8)
    rule = Rule(resolution=draw.pick(RESOLUTIONS), clamp=draw.flag())
    rows = Rows.drawn(draw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame = contain(rows.table)
        except BaseException as error:
            if is_foreign(error):  # some types have no such container
                return
            raise
    types = rows.table.schema
    plain = (
        all(types.field(name).type in PLAIN for name in rows.names) and types.field("u").type in _PLAIN_USERS
    )
    broken = contain in (_polars_failing, _failing_reader)
    understood = rows.known and (faithful or plain) and not broken and not _is_unclear(rows, rule)
    with working_folder():
        match how:
            case 0 | 1 | 2:
                _summed(frame, rows, rule, understood)
            case 3:
                _grouped(frame, rows, rule, understood and faithful)
            case 4:
                _without_noise(frame, rows, rule, understood)
            case 5:
                _released(frame, rows, draw)
            case 6:
                result_or_refusal(lambda: unsafe_inspection(frame, user="u", value=rows.names), hidden=[MARK])
            case _:
                _counted(frame, draw)


def _is_unclear(rows: Rows, rule: Rule) -> bool:
    """A step is divided by in floats; of decimals and durations the oracle does not know how they became floats."""
    return rule.resolution is not None and any(
        pa.types.is_decimal(kind.type) or pa.types.is_duration(kind.type) for kind in rows.kinds
    )


def _summed(frame: Any, rows: Rows, rule: Rule, understood: bool) -> None:
    table = result_or_refusal(
        lambda: user_table(frame, user="u", value=rows.names, **rule.arguments), hidden=[MARK]
    )
    if table is not None and understood:
        require(found(table) == _expected(rows, rule), "sums and counts are exact")


def _expected(rows: Rows, rule: Rule) -> Sums:
    return expected(rows.users, rows.understood(rule))


def _grouped(frame: Any, rows: Rows, rule: Rule, understood: bool) -> None:
    table = result_or_refusal(
        lambda: group_table(
            frame,
            user=["u"],
            value=rows.names,
            by=["g"],
            keys=None,
            max_groups=1000,
            **rule.arguments,
        ),
        hidden=[MARK],
    )
    if table is not None and understood and rows.groups_known:
        wanted = expected_in_groups(rows.users, rows.groups, rows.understood(rule))
        require(found_in_groups(table) == wanted, "sums and counts of groups are exact")


def _without_noise(frame: Any, rows: Rows, rule: Rule, understood: bool) -> None:
    low, high, cap = -100.0, 50.0, 3
    with drawn_from(NoNoise()) as noise:
        release = result_or_refusal(
            lambda: hm.mean(
                frame,
                user="u",
                value="v",
                epsilon=1,
                bounds=(low, high),
                max_records=cap,
                **rule.arguments,
            ),
            hidden=[MARK],
        )
    if release is None:
        return
    check_release(release, noise, hidden=[MARK])
    if understood:
        exact = clipped_mean(expected(rows.users, rows.understood(rule)[:1]), low=low, high=high, cap=cap)
        if exact is not None:
            close = abs(release.values[0] - exact) <= (high - low) * 2.0**-28
            require(close, "without noise the answer is the exact one")


def _released(frame: Any, rows: Rows, draw: Draw) -> None:
    options: dict[str, Any] = draw.pick(
        (
            {"bounds": (-10, 10), "max_records": 2},
            {},
            {"threshold": 2, "radius": 100, "max_records": 2, "mechanism": "inverse-sensitivity"},
            {
                "threshold": 2,
                "radius": 100,
                "max_records": 2,
                "mechanism": "smooth-sensitivity",
                "delta": 1e-5,
            },
            {
                "threshold": 2,
                "radius": 100,
                "max_records": 2,
                "mechanism": "propose-test-release",
                "delta": 1e-5,
            },
            {"threshold": 2, "radius": 100, "per": "user", "mechanism": "winsorized"},
            {"bounds": (-10, 10), "max_records": 2, "by": "g", "delta": 1e-3},
            {"by": "g", "delta": 1e-3},
            {"bounds": (-10, 10), "per": "user", "by": "g", "keys": [1, 2], "max_groups": 2},
        )
    )
    neighbors = draw.pick(("replace-user", "add-remove", "replace-values"))
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        release = result_or_refusal(
            lambda: hm.mean(frame, user="u", value=rows.names, epsilon=1, neighbors=neighbors, **options),
            hidden=[MARK],
        )
    if release is not None:
        check_release(release, noise, hidden=() if "by" in options else [MARK])


def _counted(frame: Any, draw: Draw) -> None:
    options: dict[str, Any] = draw.pick(
        (
            {},
            {"of": "records", "max_records": 2},
            {"of": "records"},
            {"by": "g", "delta": 0.01},
            {"value": "v"},
        )
    )
    neighbors = draw.pick(("add-remove", "replace-user", "replace-values"))
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        release = result_or_refusal(
            lambda: hm.count(frame, user="u", epsilon=1, neighbors=neighbors, **options), hidden=[MARK]
        )
    if release is not None:
        check_release(release, noise, hidden=() if "by" in options else [MARK])


def seeds() -> Iterable[bytes]:
    """Every container with every type, and every call."""
    body = bytes(range(7, 250, 3)) * 2
    for container in range(len(CONTAINERS)):
        for how in range(8):
            yield bytes([container, how, 0, 0, 9, how % 3, 0, how % 8, 0, how % 10]) + body
    for number in range(len(VALUES)):
        for user in range(0, 19, 3):
            yield (
                bytes(
                    [
                        number % 2,
                        0,
                        number % 3,
                        0,
                        12,
                        (user + number) % 19,
                        number % 4,
                        number % 8,
                        0,
                        number,
                    ]
                )
                + body
            )
