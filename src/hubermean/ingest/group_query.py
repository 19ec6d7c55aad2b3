"""The query of a grouped release: exact sums per user and group, each user in no more groups than it may count in.

Which of its groups a user counts in is decided by the MD5 sum of the texts that identify the user and the group
(`identity`), and by the names of groups where two such sums are equal. So the rule looks at one user alone, favours no
group and no value, and gives the same answer for the same data, in whatever container and with whatever engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hubermean.ingest.columns import KeyColumn, ValueColumn
from hubermean.ingest.engine import SEPARATOR
from hubermean.ingest.files import literal
from hubermean.ingest.grouping import aggregates, all_present, renamed


@dataclass(frozen=True, kw_only=True)
class GroupQuery:
    """What is asked of the engine.

    Attributes:
        keys: a query for the public groups, with columns `code`, `group_0`, ...; None where they are not public.
        max_groups: how many groups a user counts in; None where that needs no enforcing.
        pooled: whether to tell one of each user's groups from its others (`first`), and how many users there are
            (`n_users`); then there is one row at least, without a group if nobody has one.
    """

    source: str
    users: Sequence[KeyColumn]
    groups: Sequence[KeyColumn]
    values: Sequence[ValueColumn]
    keys: str | None
    max_groups: int | None
    pooled: bool

    def text(self, *, split: bool, quick: bool) -> str:
        """The SQL. `split`: see `grouping_query`. `quick`: faster for users who count in one group of several.

        The quick query finds the least number per user and takes the group that has it: all of them, should two have
        it. Whether that happened shows in `chosen` and `several`; then the other query must be run.
        """
        _, users = renamed(self.users, "user")
        _, groups = renamed(self.groups, "group")
        identities = [column.identity(name) for column, name in zip(self.users, users, strict=True)]
        number = f"md5(concat_ws(chr({SEPARATOR}), {', '.join([*identities, *groups])}))"
        # Both are asked for twice where users are to be counted, else only the second.
        shares = f"shares AS {'MATERIALIZED' if self.pooled else 'NOT MATERIALIZED'} ({self._shares(split)})"
        joined = f"JOIN public_groups USING ({', '.join(groups)}) " if self.keys is not None else ""
        known = f"public_groups AS MATERIALIZED ({self.keys}), " if self.keys is not None else ""
        kept = f"kept AS MATERIALIZED (SELECT * FROM ({self._named(split)}) {joined})"
        own = ", ".join(users)
        # As bytes: DuckDB makes what it sorts by anew, and of text that is no UTF-8 another text.
        one_user = ", ".join(f"encode({identity})" for identity in identities)
        order = (
            f"row_number() OVER (PARTITION BY {one_user} "
            f"ORDER BY {number}, {', '.join(f'encode({group})' for group in groups)})"
        )
        with_ = f"WITH {known}{shares}, {kept}"
        columns = ", ".join(self._columns(groups, split))
        if self.pooled:
            limit = "" if self.max_groups is None else f" WHERE place <= {self.max_groups}"
            return (
                f"{with_}, placed AS (SELECT {columns}, {order} AS place FROM kept), "
                f"everyone AS (SELECT count(*) AS n_users FROM (SELECT DISTINCT {own} FROM shares)) "
                f"SELECT {columns}, place = 1 AS first, n_users FROM everyone "
                f"LEFT JOIN (SELECT * FROM placed{limit}) ON true"
            )
        if self.max_groups is None:
            return f"{with_} SELECT {columns} FROM kept"
        too_many = f"SELECT {own} FROM kept GROUP BY {own} HAVING count(*) > {self.max_groups}"
        if quick and self.max_groups == 1:
            return (
                f"{with_}, many AS MATERIALIZED (SELECT {own}, min({number}) AS least FROM kept "
                f"SEMI JOIN ({too_many}) USING ({own}) GROUP BY {own}) SELECT {columns}, least IS NOT NULL AS chosen, "
                f"(SELECT count(*) FROM many) AS several FROM kept LEFT JOIN many USING ({own}) "
                f"WHERE least IS NULL OR {number} = least"
            )
        return (
            f"{with_}, many AS MATERIALIZED ({too_many}) "
            f"SELECT {columns} FROM kept ANTI JOIN many USING ({own}) UNION ALL SELECT {columns} FROM "
            f"(SELECT *, {order} AS place FROM kept SEMI JOIN many USING ({own})) WHERE place <= {self.max_groups}"
        )

    def _shares(self, split: bool) -> str:
        """Sums per user and group."""
        selected, users = renamed(self.users, "user")
        more, groups = renamed(self.groups, "group")
        selected += more
        selected += [
            f"{value.parts[0].expression} AS value_{number}" for number, value in enumerate(self.values)
        ]
        keys = ", ".join([*users, *groups])
        return (
            f"SELECT {keys}, {', '.join(aggregates(self.values, split=split))} FROM "
            f"(SELECT {', '.join(selected)} FROM {self.source} WHERE {all_present(self.users)}) GROUP BY {keys}"
        )

    def _named(self, split: bool) -> str:
        """Shares that have a group, with the texts that identify groups in place of what they were grouped by."""
        _, users = renamed(self.users, "user")
        _, groups = renamed(self.groups, "group")
        pairs = list(zip(self.groups, groups, strict=True))
        texts = [f"{column.identity(f'shares.{name}')} AS {name}" for column, name in pairs]
        present = " AND ".join(column.present(f"shares.{name}") for column, name in pairs)
        columns = [*users, *texts, *_names(self.values, split)]
        return f"SELECT {', '.join(columns)} FROM shares WHERE {present}"

    def _columns(self, groups: Sequence[str], split: bool) -> list[str]:
        """Numbers only, and what tells the groups apart: nothing that names a user."""
        return [*(groups if self.keys is None else ["code"]), *_names(self.values, split)]


def _names(values: Sequence[ValueColumn], split: bool) -> list[str]:
    return [one.rsplit(" AS ", 1)[1] for one in aggregates(values, split=split)]


def keys_query(texts: Sequence[tuple[str, ...]]) -> str:
    """DuckDB's query for the texts of keys, with a number each; nothing of the data is in it."""
    columns = []
    for place, column in enumerate(zip(*texts, strict=True)):
        # One long text in place of one per key, which the engine would take much longer to read.
        listed = f"string_split({literal(chr(SEPARATOR).join(column))}, {literal(chr(SEPARATOR))})"
        columns.append(f"unnest({listed}) AS group_{place}")
    return f"SELECT unnest(range({len(texts)})) AS code, {', '.join(columns)}"
