"""Adversarial data sets in groups and the neighbors of each, all synthetic.

The changed user moves between groups, is split over several, changes its values or numbers of records, or is added or
removed. It may be in more groups than it may count in, in groups that are not public, or in none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from hubermean.auditing.neighbors import USER, VALUE, Pair, User, finite_or_none
from hubermean.types.request import Neighbors

if TYPE_CHECKING:
    import pyarrow as pa

    from hubermean.auditing.cells import Columns
    from hubermean.auditing.containers import ContainerRoundTrip

GROUP = "group"
ELSEWHERE = "elsewhere"
_NO_GROUP = None
GROUP_SHAPES = ("moved", "split", "values", "counts", "anything", "alone")


@dataclass(frozen=True, kw_only=True)
class Share:
    """A user's records in a group, all of one value; NaN is unusable, and None means no group."""

    group: str | None
    value: float
    records: int

    def __str__(self) -> str:
        return f"{self.records:,} of {self.value:.6g} in {self.group or 'no group'}"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A user, by its records in each group."""

    shares: tuple[Share, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.shares))

    def to_dict(self) -> dict[str, Any]:
        return {
            "shares": [
                {"group": share.group, "value": finite_or_none(share.value), "records": share.records}
                for share in self.shares
            ]
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPair:
    """Two neighboring data sets in groups. `before` or `after` is None if the user is absent."""

    shape: str
    members: tuple[Member, ...] = field(repr=False)
    before: Member | None
    after: Member | None

    def records(self) -> tuple[pa.Table, pa.Table]:
        """Return both data sets as Arrow tables of records."""
        return self._with(self.before), self._with(self.after)

    def columns(self, round_trip: ContainerRoundTrip | None = None) -> tuple[Columns, Columns]:
        """Return both data sets as plain cells, for a container."""
        return self._columns(self.before, round_trip), self._columns(self.after, round_trip)

    def _with(self, changed: Member | None) -> pa.Table:
        import pyarrow as pa

        schema = pa.schema([(USER, pa.int64()), (GROUP, pa.string()), (VALUE, pa.float64())])
        return pa.table(self._columns(changed, None), schema=schema)

    def _columns(self, changed: Member | None, round_trip: ContainerRoundTrip | None) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {USER: [], GROUP: [], VALUE: []}
        # The changed user has one id in both and is not the last: positions must not matter.
        first = 0 if round_trip is None else round_trip.changed_user(0)
        everyone: list[tuple[Any, Member | None]] = [(first, changed), *enumerate(self.members, start=1)]
        for user, member in everyone:
            for share in member.shares if member is not None else ():
                value = (
                    share.value if round_trip is None else round_trip.cell(share.value, changed=user == first)
                )
                columns[USER] += [user] * share.records
                columns[GROUP] += [share.group] * share.records
                columns[VALUE] += [value] * share.records
        return columns

    def summary(self) -> str:
        groups = Counter(share.group or "no group" for member in self.members for share in member.shares)
        listed = "; ".join(f"{number} in {group}" for group, number in groups.most_common(4))
        return f"{len(self.members)} other users" + (f", {listed}" if listed else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "members": [member.to_dict() for member in self.members],
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class GroupSearchSpace:
    """The public facts that shape the search.

    `center` and `reach` are the middle and half the width of the value range; `counts` are numbers of records that
    matter; `sizes` are numbers of users that matter to whether a group is selected.
    """

    neighbors: Neighbors
    groups: tuple[str, ...]
    max_groups: int | None
    center: float
    reach: float
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    per_group: int

    @property
    def usual_row(self) -> int:
        """In how many groups a user is: as many as it may count in, or all."""
        return self.max_groups or len(self.groups)

    def value(self, rng: Generator) -> float:
        offset = float(rng.choice([1.0, 1.0, 1.0 + 1e-9, 0.5, 0.0, 1e6]))
        if rng.random() < 0.05:
            return math.nan
        return self.center + float(rng.choice([-1.0, 1.0])) * offset * self.reach

    def places(self, rng: Generator, most: int) -> list[str | None]:
        """Some groups, seldom one that is not public, or none."""
        pool: list[str | None] = [*self.groups]
        if rng.random() < 0.2:
            pool += [ELSEWHERE, _NO_GROUP]
        number = min(int(rng.integers(1, most + 1)), len(pool))
        return [pool[place] for place in rng.choice(len(pool), number, replace=False)]

    def member(self, rng: Generator, most: int | None = None) -> Member:
        places = self.places(rng, most or self.usual_row + 2)
        return self._in(places, rng)

    def _in(self, places: Sequence[str | None], rng: Generator) -> Member:
        value, records = self.value(rng), int(rng.choice(self.counts))
        alike = rng.random() < 0.7
        return Member(
            shares=tuple(
                Share(
                    group=place,
                    value=value if alike else self.value(rng),
                    records=records if alike else int(rng.choice(self.counts)),
                )
                for place in places
            )
        )

    def changed(self, shape: str, rng: Generator) -> tuple[Member | None, Member | None]:
        """One user before and after, as the relation allows."""
        before = self.member(rng)
        places = [share.group for share in before.shares]
        match shape:
            case "moved":
                others = [group for group in self.groups if group not in places] or list(self.groups)
                after = self._same(before, others[: len(places)])
            case "split":
                before = self._in(places[:1], rng)
                after = self._in(self.places(rng, self.usual_row + 2), rng)
            case "values":
                mirrored = tuple(
                    replace(share, value=2.0 * self.center - share.value) for share in before.shares
                )
                after = Member(shares=mirrored)
            case "counts":
                after = Member(
                    shares=tuple(
                        replace(share, records=int(rng.choice(self.counts))) for share in before.shares
                    )
                )
            case _:
                after = self.member(rng)
        if self.neighbors is Neighbors.ADD_REMOVE:
            return (None, after) if rng.random() < 0.5 else (after, None)
        if self.neighbors is Neighbors.REPLACE_VALUES:
            after = _with_as_many_records(before, after)
        return before, after

    @staticmethod
    def _same(member: Member, places: Sequence[str | None]) -> Member:
        """Return the same records in other groups, as far as there are enough."""
        pairs = zip(member.shares, places, strict=False)
        return Member(shares=tuple(replace(share, group=place) for share, place in pairs) or member.shares)


def _with_as_many_records(before: Member, after: Member) -> Member:
    """Give the second user as many records as the first, as `replace-values` requires."""
    total = sum(share.records for share in before.shares)
    shares = []
    for share in after.shares:
        records = min(share.records, total)
        if records:
            shares.append(replace(share, records=records))
        total -= records
    if total:
        shares[-1] = replace(shares[-1], records=shares[-1].records + total)
    return Member(shares=tuple(shares))


def make_group_pair(shape: str, space: GroupSearchSpace, rng: Generator) -> GroupPair:
    """Make a pair in which one user changes in a named way."""
    members: list[Member] = []
    if shape != "alone":
        for group in space.groups:
            size = int(rng.choice(space.sizes)) if len(space.sizes) else space.per_group
            value, records = space.value(rng), int(rng.choice(space.counts))
            share = Share(group=group, value=value, records=min(records, 3))
            members += [Member(shares=(share,))] * size
        members += [space.member(rng) for _ in range(3)]
    before, after = space.changed(shape, rng)
    return GroupPair(shape=shape, members=tuple(members), before=before, after=after)


def spread_over_groups(
    pair: Pair, space: GroupSearchSpace, rng: Generator, sizes: Sequence[int] = ()
) -> GroupPair:
    """Place the users of a pair in one group each; the changed user is in as many as it may count in.

    With `sizes`, all groups but the last have one of these numbers of users.
    """
    places = [str(space.groups[place]) for place in rng.permutation(len(space.groups))[: space.usual_row]]
    others = [group for group in space.groups if group not in places] or places

    def held(user: User | None, groups: Sequence[str]) -> Member | None:
        if user is None:
            return None
        # Under `replace-values` the total number of records stays the same.
        return Member(
            shares=tuple(Share(group=group, value=user.mean[0], records=user.records) for group in groups)
        )

    means, counts = pair.means[:, 0].tolist(), pair.records.tolist()
    few = space.groups[:-1] if len(sizes) else ()
    filling = [group for group in few for _ in range(int(rng.choice(sizes)))]
    large = space.groups[len(few) :]
    filling += [large[number % len(large)] for number in range(len(means))]
    members = tuple(
        Member(shares=(Share(group=group, value=mean, records=count),))
        for group, mean, count in zip(filling, means, counts, strict=False)
    )
    stays = rng.random() < 0.5 or len(others) < len(places)
    return GroupPair(
        shape=pair.shape,
        members=members,
        before=held(pair.before, places),
        after=held(pair.after, places if stays else others[: len(places)]),
    )


def vary_group_pair(pair: GroupPair, space: GroupSearchSpace, rng: Generator) -> GroupPair:
    """Return a similar pair: a different change of the changed user, or one more or fewer user around it."""
    if rng.random() < 0.7 or not pair.members:
        before, after = space.changed(str(rng.choice(GROUP_SHAPES)), rng)
        if rng.random() < 0.5:  # keep the user before, change the user after
            before, after = (
                (pair.before, after) if space.neighbors is not Neighbors.ADD_REMOVE else (None, after)
            )
            if before is not None and after is not None and space.neighbors is Neighbors.REPLACE_VALUES:
                after = _with_as_many_records(before, after)
        return replace(pair, before=before, after=after)
    members = list(pair.members)
    if rng.random() < 0.5:
        members.append(members[int(rng.integers(len(members)))])
    else:
        members.pop(int(rng.integers(len(members))))
    return replace(pair, members=tuple(members))
