"""The queries of DuckDB: exact sums and counts per user, or per user and group, and nothing that names a user.

For a grouped release each user counts in a bounded number of groups. Which ones is decided by the MD5 sums of the texts
that identify the user and each group (`ingest.identity`), and by the names of the groups if two sums are equal. So the
choice depends on that user alone, favours no group and no value, and is the same in every container and engine.

A sum and its count are one aggregate where possible: DuckDB can return the state of an average of integers, which is
their exact 128-bit sum and their number, as a struct (EXPORT_STATE). So one aggregate is updated per record instead of
two. The engine does not guarantee the layout of the struct, so it is tested before it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.data.arrays import IntArray
from hubermean.data.threads import run_in_threads
from hubermean.data.user_table import UserTable
from hubermean.errors import InputError
from hubermean.ingest.duckdb.coarse_sums import CoarseSums
from hubermean.ingest.duckdb.fast_sums import (
    FastSums,
    SumOverflowError,
    choose_fast_sums,
    read_magnitudes,
    supports_double_state,
)
from hubermean.ingest.duckdb.session import RecordTooLongError, fetch
from hubermean.ingest.engine import (
    IDENTITY_SEPARATOR,
    GroupEntries,
    GroupOptions,
    build_user_table,
    int64_array,
)
from hubermean.ingest.files import COUNT_REJECTED, FileSet, quote_text
from hubermean.ingest.groups import number_groups
from hubermean.ingest.numbering import number_integers
from hubermean.ingest.schema import ColumnRoles, KeyColumn, Schema, ValueColumn, alias_keys, require_keys

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
InParts = FastSums | CoarseSums

_STATE = "state"


@dataclass(frozen=True, kw_only=True)
class DuckdbRows:
    """Rows that DuckDB can select from.

    Attributes:
        name: what to select from.
        schema: columns with the types they are stored in.
        relation: None if `connection` knows the rows by `name`.
        once: the rows can be read only once; then `renew`, if it is given, makes them anew.
        statistics: Parquet files whose statistics allow `FastSums`, if they are large enough.
        rejects: DuckDB leaves out records that are too long, and counts them in a table.
    """

    name: str
    roles: ColumnRoles
    schema: Schema
    connection: duckdb.DuckDBPyConnection | None
    relation: duckdb.DuckDBPyRelation | None = None
    once: bool = False
    renew: Callable[[], object] | None = None
    progress: bool = False
    statistics: FileSet | None = None
    rejects: bool = False

    def run(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return the relation of a query."""
        if self.relation is not None:
            found = self.relation.query(self.name, query)
            if found is None:  # for statements that return no rows
                raise InputError("the data must be a relation that returns rows")
            return found
        assert self.connection is not None
        return self.connection.sql(query)

    def read_users(self, values: Sequence[ValueColumn], *, records: bool) -> UserTable:
        """Return exact sums and counts per user."""
        joint = supports_joint_state(self.run)
        users = self._keys(self.roles.users)

        def group(split: bool, fast: InParts | None = None) -> UserTable:
            query = build_user_query(
                self.name,
                users=users,
                values=values,
                records=records,
                split=split,
                joint=joint,
                fast=fast,
            )
            return _build_table(self._fetch(query), values, fast)

        alone = joint and len(values) == 1
        return self._with_fast_sums(
            group, self._choose_coarse_sums if alone else self._choose_fast_sums, values
        )

    def read_group_entries(self, values: Sequence[ValueColumn], groups: GroupOptions) -> GroupEntries:
        """Return exact sums and counts per user and group; see `Source`."""
        query = GroupQuery(
            source=self.name,
            users=self._keys(self.roles.users),
            groups=[self.schema.group_column(name) for name in self.roles.groups],
            values=values,
            public=None if groups.public is None else build_public_groups_query(groups.public.texts),
            max_groups=groups.max_groups,
        )

        if query.max_groups is None:
            return self._read_all_groups(query)

        def group(split: bool) -> pa.Table:
            table = self._fetch(query.build_limited(split=split, quick=self._is_repeatable))
            if "several" in table.column_names and not _is_unambiguous(table):
                self._begin_again()
                table = self._fetch(query.build_limited(split=split, quick=False))
            return table

        table = self._with_room(group)
        n_owners = table.column("n_owners")[0].as_py()
        table = table.filter(table.column("owner").is_valid())
        members = build_user_table(table, values)
        names: Sequence[tuple[str | None, ...]]
        if groups.public is not None:
            found, names = int64_array(table.column("code")), groups.public.texts
        else:
            found, names = number_groups(_group_columns(table, query))
        owners = int64_array(table.column("owner"))
        return GroupEntries(entries=members, owners=owners, n_owners=n_owners, groups=found, names=names)

    def _read_all_groups(self, query: GroupQuery) -> GroupEntries:
        joint = supports_joint_state(self.run)

        def group(split: bool, fast: InParts | None = None) -> GroupEntries:
            table = self._fetch(query.build(split=split, joint=joint, fast=fast))
            work: list[Callable[[], Any]] = [
                lambda: number_groups(_group_columns(table, query), name_integers),  # needs the connection
                lambda: _number_owners(table),
            ]
            (groups, names), (owners, n_owners) = run_in_threads(lambda one: one(), work)
            # What is numbered is not held while sums are combined.
            keys = [name for name in table.column_names if name.startswith(("user_", "owner", "group_"))]
            table = table.drop_columns(keys)
            entries = _build_table(table, query.values, fast)
            return GroupEntries(entries=entries, owners=owners, n_owners=n_owners, groups=groups, names=names)

        def name_integers(place: int, integers: IntArray) -> list[str]:
            return self._name_integers(query.groups[place], integers)

        return self._with_fast_sums(group, self._choose_fast_sums, query.values)

    def _name_integers(self, column: KeyColumn, integers: IntArray) -> list[str]:
        """Return the texts that identify integers of a group column."""
        # One long text, which DuckDB parses much faster than one literal per integer.
        listed = quote_text(" ".join(map(str, integers.tolist())))
        cells = f"SELECT CAST(unnest(string_split({listed}, ' ')) AS BIGINT) AS cell"
        if not len(integers):
            return []
        names = dict(self.run(f"SELECT cell, {column.identity('cell')} FROM ({cells})").fetchall())
        return [names[integer] for integer in integers.tolist()]

    def _keys(self, names: Sequence[str]) -> list[KeyColumn]:
        return [self.schema.key_column(name) for name in names]

    def _choose_coarse_sums(self, files: FileSet, values: Sequence[ValueColumn]) -> InParts | None:
        assert self.connection is not None
        (magnitude,) = read_magnitudes(self.connection, files, values)
        return None if magnitude is None else CoarseSums.up_to(magnitude, values[0].number)

    def _choose_fast_sums(self, files: FileSet, values: Sequence[ValueColumn]) -> InParts | None:
        assert self.connection is not None
        fast = choose_fast_sums(self.connection, files, values)
        return fast if fast is not None and supports_double_state(self.run) else None

    def _with_fast_sums(
        self,
        group: Callable[[bool, InParts | None], T],
        choose: Callable[[FileSet, Sequence[ValueColumn]], InParts | None],
        values: Sequence[ValueColumn],
    ) -> T:
        """Group with fast sums where statistics allow them, else in one of the other ways, to the same integers."""
        fast = None
        if self.statistics is not None and any(one.floats for one in values):
            fast = choose(self.statistics, values)
        if fast is not None:
            with contextlib.suppress(*_overflow_errors()):
                return group(False, fast)
        return self._with_room(lambda split: group(split, None))

    def _fetch(self, query: str) -> pa.Table:
        found = fetch(self.run(query), self.connection, progress=self.progress)
        if self.rejects and self.run(COUNT_REJECTED).fetchall()[0][0]:
            raise RecordTooLongError
        return found

    def _with_room(self, group: Callable[[bool], T]) -> T:
        """Group with one 128-bit sum, or with sums of two parts if that overflows; the integers are the same.

        Rows that can be read only once are grouped with two parts right away.
        """
        import duckdb

        if self._is_repeatable:
            with contextlib.suppress(duckdb.OutOfRangeException):
                return group(False)
            self._begin_again()
        return group(True)

    @property
    def _is_repeatable(self) -> bool:
        return not self.once or self.renew is not None

    def _begin_again(self) -> None:
        """Make rows that can be read only once anew, before they are read again."""
        if self.once and self.renew is not None:
            self.renew()


def _overflow_errors() -> tuple[type[Exception], ...]:
    """Errors of `FastSums` and `CoarseSums` for a value that its statistics leave out, or a very large sum."""
    import duckdb

    return (duckdb.ConversionException, duckdb.OutOfRangeException, SumOverflowError)


# --- sums per user ---------------------------------------------------------------------------------------------------


def build_user_query(
    source: str,
    *,
    users: Sequence[KeyColumn],
    values: Sequence[ValueColumn],
    records: bool,
    split: bool = False,
    joint: bool = False,
    fast: InParts | None = None,
) -> str:
    """Return SQL for the sums and counts per user of `source`.

    A record is usable if all of its values are. Others add nothing to a sum but keep their user in the table.

    Args:
        source: what to select from.
        users: the columns that identify users.
        values: the columns to sum.
        records: also count all records.
        split: add two smaller parts of each value instead of one 128-bit integer. The engine fails if a 128-bit sum
            overflows, which takes millions of huge records of one user; two parts are slower and have no such limit.
        joint: compute the first sum and the number of usable records as one aggregate.
        fast: how to add doubles in parts.
    """
    selected, keys = alias_keys(users, "user")
    rows, wanted = _select_rows(source, users, selected, keys, values, split=split, joint=joint, fast=fast)
    if records:
        wanted.append("count(*) AS records")
    return f"SELECT {', '.join(wanted)} FROM ({rows}) GROUP BY {', '.join(keys)}"


def _select_rows(
    source: str,
    users: Sequence[KeyColumn],
    selected: Sequence[str],
    keys: Sequence[str],
    values: Sequence[ValueColumn],
    *,
    split: bool,
    joint: bool,
    fast: InParts | None,
) -> tuple[str, list[str]]:
    """Return SQL of the rows to group, with `keys` and what is added, and the aggregates of them."""
    numbers = _select_values(values, split=split) if fast is None else fast.numbers()
    rows = f"SELECT {', '.join([*selected, *numbers])} FROM {source} WHERE {require_keys(users)}"
    if fast is None:
        return rows, _aggregates(values, split=split, joint=joint)
    return fast.select(rows, keys), fast.aggregates()


def _build_table(table: pa.Table, values: Sequence[ValueColumn], fast: InParts | None) -> UserTable:
    """Return the sums and counts in the result of a query."""
    if fast is None:
        return build_user_table(split_joint_state(table), values)
    table = fast.split_state(table)
    counts = int64_array(table.column("usable"))
    return build_user_table(
        table, values, sums=[fast.read_sums(table, n, counts) for n in range(len(values))]
    )


def _select_values(values: Sequence[ValueColumn], *, split: bool) -> list[str]:
    """Columns `value_0`, `value_1`, ...; with `split` `value_0_high` and `value_0_low` of those that have halves."""
    selected = []
    for number, value in enumerate(values):
        (part,) = value.parts
        if split and part.halves is not None:
            high, low = part.halves
            selected += [f"{high} AS value_{number}_high", f"{low} AS value_{number}_low"]
        else:
            selected.append(f"{part.expression} AS value_{number}")
    return selected


def _aggregates(values: Sequence[ValueColumn], *, split: bool, joint: bool = False) -> list[str]:
    """The number of usable records, and their sums, over the columns of `_select_values`."""
    if not values:  # nothing to average: every record counts
        return ["count(*) AS usable"]
    in_halves = [split and value.parts[0].halves is not None for value in values]
    names = [f"value_{number}" + ("_high" if halved else "") for number, halved in enumerate(in_halves)]
    usable = " AND ".join(f"{name} IS NOT NULL" for name in names)
    # With one column, count and sum skip unusable records anyway.
    only = f" FILTER ({usable})" if len(values) > 1 else ""
    joint = joint and (in_halves[0] or not split)
    # Of a number in halves both are null or neither is.
    first = "value_0_low" if in_halves[0] else names[0]
    wanted = [_joint_aggregate(first, only) if joint else f"count({names[0]}){only} AS usable"]
    for value, name, halved in zip(values, names, in_halves, strict=True):
        radix = value.encoding.radix
        if halved:
            halves = (name, name.replace("_high", "_low"))
            wanted += [f"sum({half}){only} AS {half}" for half in halves if not joint or half != first]
        elif joint and name == first:
            continue
        elif split and radix > 1:
            wanted += [
                f"sum({name} // {radix}){only} AS {name}_high",
                f"sum({name} % {radix}){only} AS {name}_low",
            ]
        else:
            wanted.append(f"sum({name}){only} AS {name}")
    return wanted


def _joint_aggregate(name: str, only: str) -> str:
    """Sum and count of a column of integers, over the records of the filter `only`."""
    return f"avg({name}){only} EXPORT_STATE AS {_STATE}"


def supports_joint_state(run: Callable[[str], duckdb.DuckDBPyRelation]) -> bool:
    """Whether this version of DuckDB exports the state of an average in the expected layout."""
    import duckdb
    import pyarrow as pa

    wide = 2**100
    rows = f"({wide}::HUGEINT), (-{wide}), (-{wide}), (3), (NULL)"
    query = f"SELECT {_joint_aggregate('v', ' FILTER (v < 5)')} FROM (VALUES {rows}) t(v)"
    try:
        state = run(query).to_arrow_table().column(_STATE)
    except (duckdb.Error, pa.ArrowException):
        return False
    return _is_joint_state(state.type) and state.to_pylist() == [{"count": 3, "value": 3 - 2 * wide}]


def split_joint_state(table: pa.Table) -> pa.Table:
    """Return the table with `usable` and a sum, of `value_0` or its lower half, in place of the joint aggregate."""
    if _STATE not in table.column_names:
        return table
    place = table.column_names.index(_STATE)
    if not _is_joint_state(table.schema.field(place).type):
        raise TypeError("the state of an average must be a count and an integer")
    counts, totals = table.column(place).flatten()
    name = "value_0_low" if "value_0_high" in table.column_names else "value_0"
    return table.remove_column(place).append_column("usable", counts).append_column(name, totals)


def _is_joint_state(kind: pa.DataType) -> bool:
    """Whether a type is a count and a sum; the sum has 64 bits for the smallest integers."""
    import pyarrow as pa

    sums = (pa.decimal128(38, 0), pa.int64())
    return any(kind == pa.struct({"count": pa.uint64(), "value": total}) for total in sums)


# --- sums per user and group -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GroupQuery:
    """The query of a grouped release.

    Attributes:
        public: a query for the public groups, with columns `code`, `group_0`, ...; None if groups are private.
        max_groups: number of groups that a user counts in; None for all of its groups.
    """

    source: str
    users: Sequence[KeyColumn]
    groups: Sequence[KeyColumn]
    values: Sequence[ValueColumn]
    public: str | None
    max_groups: int | None

    def build(self, *, split: bool, joint: bool, fast: InParts | None) -> str:
        """Return SQL for all groups of all users; the arguments are those of `build_user_query`.

        The result has one row per user and group, with nulls for a group that is none. It has the number of the user
        (`owner`), or the only integer that identifies it (`user_0`), which can be numbered at less cost than a join.
        """
        _, users = alias_keys(self.users, "user")
        _, groups = alias_keys(self.groups, "group")
        pairs = list(zip(self.groups, groups, strict=True))
        present = " AND ".join(column.present(name) for column, name in pairs)
        cells = [
            f"CASE WHEN {present} THEN {name if column.whole else column.identity(name)} END AS {name}"
            for column, name in pairs
        ]
        names = [*cells, *_aggregate_names(self.values, split, joint, fast)]
        if len(users) == 1 and self.users[0].whole:
            entries = self._entries(split, joint, fast)
            return f"SELECT {', '.join([*users, *names])} FROM ({entries})"
        entries = self._entries(split, joint, fast)
        return (
            f"WITH entries AS MATERIALIZED ({entries}), {self._owners(users)} "
            f"SELECT {', '.join(['owner', *names])} FROM entries JOIN owners USING ({', '.join(users)})"
        )

    def build_limited(self, *, split: bool, quick: bool) -> str:
        """Return SQL for the groups that users count in. `split`: see `build_user_query`.

        `quick`: faster if users count in one of several groups.

        The result has one row per user and group, with the number of the user (`owner`), and the number of all users
        (`n_owners`); if no user is in a group, it has one row that is null except for that number.

        The quick query finds the smallest hash per user and takes the group that has it: several groups, if their
        hashes are equal. `chosen` and `several` show whether that happened; then the other query must be run.
        """
        _, users = alias_keys(self.users, "user")
        _, groups = alias_keys(self.groups, "group")
        known = f"public_groups AS MATERIALIZED ({self.public}), " if self.public is not None else ""
        joined = f" JOIN public_groups USING ({', '.join(groups)})" if self.public is not None else ""
        return (
            f"WITH {known}entries AS MATERIALIZED ({self._entries(split)}), {self._owners(users)}, "
            f"named AS (SELECT * FROM ({self._named_entries(split)}){joined}) "
            f"SELECT * FROM (SELECT count(*) AS n_owners FROM owners) "
            f"LEFT JOIN ({self._select_groups(users, groups, split, quick)}) ON true"
        )

    def _select_groups(self, users: Sequence[str], groups: Sequence[str], split: bool, quick: bool) -> str:
        """Entries of the groups that each user counts in."""
        columns = ", ".join(self._columns(groups, split))
        identities = [column.identity(name) for column, name in zip(self.users, users, strict=True)]
        number = f"md5(concat_ws(chr({IDENTITY_SEPARATOR}), {', '.join([*identities, *groups])}))"
        too_many = f"SELECT owner FROM kept GROUP BY owner HAVING count(*) > {self.max_groups}"
        if quick and self.max_groups == 1:
            return (
                f"WITH kept AS MATERIALIZED (SELECT * FROM named), "
                f"many AS MATERIALIZED (SELECT owner, min({number}) AS least FROM kept "
                f"SEMI JOIN ({too_many}) USING (owner) GROUP BY owner) SELECT {columns}, "
                f"least IS NOT NULL AS chosen, (SELECT count(*) FROM many) AS several FROM kept "
                f"LEFT JOIN many USING (owner) WHERE least IS NULL OR {number} = least"
            )
        # As bytes: DuckDB writes sort keys again, and changes text that is no UTF-8.
        order = (
            f"row_number() OVER (PARTITION BY owner "
            f"ORDER BY {number}, {', '.join(f'encode({group})' for group in groups)})"
        )
        return (
            f"WITH kept AS MATERIALIZED (SELECT * FROM named), many AS MATERIALIZED ({too_many}) "
            f"SELECT {columns} FROM kept ANTI JOIN many USING (owner) UNION ALL SELECT {columns} FROM "
            f"(SELECT *, {order} AS place FROM kept SEMI JOIN many USING (owner)) WHERE place <= {self.max_groups}"
        )

    @staticmethod
    def _owners(users: Sequence[str]) -> str:
        """All users, and their numbers."""
        own = ", ".join(users)
        return (
            f"owners AS MATERIALIZED (SELECT {own}, row_number() OVER () - 1 AS owner "
            f"FROM (SELECT DISTINCT {own} FROM entries))"
        )

    def _entries(self, split: bool, joint: bool = False, fast: InParts | None = None) -> str:
        """Sums per user and group."""
        selected, users = alias_keys(self.users, "user")
        more, groups = alias_keys(self.groups, "group")
        keys = [*users, *groups]
        rows, wanted = _select_rows(
            self.source,
            self.users,
            [*selected, *more],
            keys,
            self.values,
            split=split,
            joint=joint,
            fast=fast,
        )
        return f"SELECT {', '.join([*keys, *wanted])} FROM ({rows}) GROUP BY {', '.join(keys)}"

    def _named_entries(self, split: bool) -> str:
        """Entries that have a group, with the text that identifies it in place of the column they were grouped by.

        The number of its user stands beside the columns that identify it.
        """
        _, users = alias_keys(self.users, "user")
        _, groups = alias_keys(self.groups, "group")
        pairs = list(zip(self.groups, groups, strict=True))
        texts = [f"{column.identity(f'entries.{name}')} AS {name}" for column, name in pairs]
        present = " AND ".join(column.present(f"entries.{name}") for column, name in pairs)
        columns = ["owner", *users, *texts, *_aggregate_names(self.values, split)]
        return (
            f"SELECT {', '.join(columns)} FROM entries JOIN owners USING ({', '.join(users)}) WHERE {present}"
        )

    def _columns(self, groups: Sequence[str], split: bool) -> list[str]:
        """Numbers, and what distinguishes the groups; nothing that names a user."""
        return [
            "owner",
            *(groups if self.public is None else ["code"]),
            *_aggregate_names(self.values, split),
        ]


def _aggregate_names(
    values: Sequence[ValueColumn], split: bool, joint: bool = False, fast: InParts | None = None
) -> list[str]:
    wanted = _aggregates(values, split=split, joint=joint) if fast is None else fast.aggregates()
    return [one.rsplit(" AS ", 1)[1] for one in wanted]


def _group_columns(table: pa.Table, query: GroupQuery) -> list[pa.ChunkedArray]:
    return [table.column(f"group_{number}") for number in range(len(query.groups))]


def _number_owners(table: pa.Table) -> tuple[IntArray, int]:
    """Return the number of the user of each entry, and how many users there are."""
    if "owner" in table.column_names:
        owners = int64_array(table.column("owner"))
        return owners, int(owners.max(initial=-1)) + 1
    owners, distinct = number_integers(table.column("user_0"))
    return owners, len(distinct)


def _is_unambiguous(table: pa.Table) -> bool:
    """Whether the quick query chose one group for every user of several."""
    import pyarrow.compute as pc

    return (pc.sum(table.column("chosen")).as_py() or 0) == (pc.max(table.column("several")).as_py() or 0)


def build_public_groups_query(texts: Sequence[tuple[str, ...]]) -> str:
    """Return SQL for the texts of public groups and their numbers; it reads no data."""
    columns = []
    separator = chr(IDENTITY_SEPARATOR)
    for place, column in enumerate(zip(*texts, strict=True)):
        # One long text instead of one per group, which DuckDB would take much longer to parse.
        listed = f"string_split({quote_text(separator.join(column))}, {quote_text(separator)})"
        columns.append(f"unnest({listed}) AS group_{place}")
    return f"SELECT unnest(range({len(texts)})) AS code, {', '.join(columns)}"
