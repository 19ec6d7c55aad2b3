"""The query of a grouped release: exact sums per user and group, each user in no more groups than it may count in.

Which of its groups a user counts in is decided by a number that is made from the user's id and the group's name (the
engine's hash), and by the names themselves where two such numbers are equal. So the rule looks at one user alone,
favours no group and no value, and gives the same answer for the same data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hubermean.ingest.columns import ValueColumn
from hubermean.ingest.files import identifier
from hubermean.ingest.grouping import aggregates, renamed


@dataclass(frozen=True, kw_only=True)
class GroupQuery:
    """What is asked of the engine.

    Attributes:
        marks: for each user column, another that follows from the user's id, where that column itself does not.
        keys: a query for the public groups, with columns `code`, `group_0`, ...; None where they are not public.
        max_groups: how many groups a user counts in; None where that needs no enforcing.
        pooled: whether to tell one of each user's groups from its others (`first`), and how many users there are
            (`n_users`); then there is one row at least, without a group if nobody has one.
    """

    source: str
    users: Sequence[str]
    marks: Sequence[str | None]
    has_user: Sequence[str]
    groups: Sequence[str]
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
        marks = [
            user if mark is None else name
            for user, mark, name in zip(users, self.marks, self._mark_names(), strict=True)
        ]
        number = f"hash({', '.join([*marks, *groups])})"
        # Both are asked for twice where users are to be counted, else only the second.
        shares = f"shares AS {'MATERIALIZED' if self.pooled else 'NOT MATERIALIZED'} ({self._shares(split)})"
        present = " AND ".join(f"{group} IS NOT NULL" for group in groups)
        joined = f"JOIN public_groups USING ({', '.join(groups)}) " if self.keys is not None else ""
        known = f"public_groups AS MATERIALIZED ({self.keys}), " if self.keys is not None else ""
        kept = f"kept AS MATERIALIZED (SELECT * FROM shares {joined}WHERE {present})"
        own = ", ".join(users)
        order = f"row_number() OVER (PARTITION BY {own} ORDER BY {number}, {', '.join(groups)})"
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
        if quick and self.max_groups == 1:
            return (
                f"{with_}, many AS MATERIALIZED (SELECT {own}, min({number}) AS least FROM kept GROUP BY {own} "
                f"HAVING count(*) > 1) SELECT {columns}, least IS NOT NULL AS chosen, "
                f"(SELECT count(*) FROM many) AS several FROM kept LEFT JOIN many USING ({own}) "
                f"WHERE least IS NULL OR {number} = least"
            )
        too_many = f"SELECT {own} FROM kept GROUP BY {own} HAVING count(*) > {self.max_groups}"
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
        marks = [(mark, name) for mark, name in zip(self.marks, self._mark_names(), strict=True) if mark]
        selected += [f"{identifier(str(mark))} AS {name}" for mark, name in marks]
        keys = ", ".join([*users, *groups])
        wanted = [f"min({name}) AS {name}" for _, name in marks] + aggregates(self.values, split=split)
        return (
            f"SELECT {keys}, {', '.join(wanted)} FROM (SELECT {', '.join(selected)} "
            f"FROM {self.source} WHERE {' AND '.join(self.has_user)}) GROUP BY {keys}"
        )

    def _mark_names(self) -> list[str]:
        return [f"mark_{number}" for number in range(len(self.users))]

    def _columns(self, groups: Sequence[str], split: bool) -> list[str]:
        """Numbers only, and what tells the groups apart: nothing that names a user."""
        names = groups if self.keys is None else ["code"]
        return [*names, *(one.rsplit(" AS ", 1)[1] for one in aggregates(self.values, split=split))]
