"""Audits of grouped releases: the same records, reader, mechanisms and laws as a release, on neighbouring tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from hubermean.auditing.compare import readable
from hubermean.auditing.directed import directed_pair
from hubermean.auditing.group_worlds import (
    GROUP,
    SHAPES,
    GroupPair,
    GroupScene,
    group_pair,
    in_groups,
    varied_group_pair,
)
from hubermean.auditing.handover import MOST_RECORDS, Handover
from hubermean.auditing.search import AnyJudge, Finding, worst_of
from hubermean.auditing.worlds import USER, VALUE, Scene
from hubermean.errors import InputError
from hubermean.groups import Division, needs_pool, prepare_groups, settled
from hubermean.groups.selection import KeySelection
from hubermean.ingest import group_table
from hubermean.laws import Law
from hubermean.mechanisms import Mechanism, Prepared, PublicFacts, Request
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable

_USUAL_SIZES = (0, 1, 3)
_LEAST_GROUPS = 2
_POOLS = (400, 1000, 3000, 10_000, 100_000)
_FURTHER = 1.5  # times the users that show the steps of an adaptive mechanism show its search for all groups
_MOST_RECORDS = 100  # of one user: more than anybody else has


class GroupJudge(AnyJudge[GroupPair]):
    """What a pair of tables in groups gives away, read and prepared as a release would be."""

    def __init__(
        self,
        mechanism: Mechanism,
        request: Request,
        scene: GroupScene,
        *,
        public_keys: bool,
        counting: bool = False,
        handover: Handover | None = None,
    ) -> None:
        super().__init__(request)
        self.division = Division.of(
            request,
            max_groups=scene.max_groups,
            public_keys=public_keys,
            delta_for="keys" if counting else "all",
        )
        self._mechanism = settled(mechanism, self.division)
        self._scene = scene
        self._handover = handover
        self._keys = [(group,) for group in scene.groups] if public_keys else None

    def laws(self, pair: GroupPair) -> tuple[Law, Law, Mapping[str, float]] | bool:
        if self._handover is None:
            return self._laws(*pair.records())
        with self._handover.of(*pair.columns(self._handover)) as data:
            return self._laws(*data)

    def _laws(self, *data: Any) -> tuple[Law, Law, Mapping[str, float]] | bool:
        first, second = (self._law(records) for records in data)
        if first is None or second is None:
            return first is second
        return first, second, {}

    def users_to_audit(self) -> int | None:
        """How many users an adaptive mechanism takes to be seen at work, its search for all groups included."""
        if not needs_pool(self._mechanism):
            return None
        tuning = self.division.tuning
        for size in _POOLS:
            table = UserTable.from_means(np.zeros((size, 1)))
            with suppress(InputError):
                prepared = self._mechanism.prepare(tuning, PublicFacts.of(table, tuning.neighbors))
                return (
                    math.ceil(_FURTHER * prepared.users_to_audit())
                    if isinstance(prepared, Prepared)
                    else None
                )
        return _POOLS[-1]

    def _law(self, records: Any) -> Law | None:
        reader = partial(
            group_table,
            user=[USER],
            value=[VALUE],
            by=[GROUP],
            keys=self._keys,
            max_groups=self._scene.max_groups,
            pooled=needs_pool(self._mechanism),
        )
        table = reader(records) if self._handover is None else self._handover.read(reader, records)
        if table is None:
            return None
        facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
        pool = None if table.pool is None else PublicFacts.of(table.pool, self.division.tuning.neighbors)
        try:
            return readable(prepare_groups(self._mechanism, self.division, facts, pool).law(table))
        except InputError:
            return None


def worst_group_pair(
    mechanism: Mechanism,
    request: Request,
    *,
    groups: int,
    max_groups: int,
    public_keys: bool,
    centre: float,
    reach: float,
    record_cap: int,
    counting: bool,
    per_group: int | None,
    handover: Handover | None,
    pairs: int,
    seed: int,
    progress: Callable[[int], None] | None,
) -> tuple[Finding[GroupPair], int]:
    """The worst pair found among moves of one user between groups, and how many pairs were judged."""
    if groups < _LEAST_GROUPS:
        raise InputError(f"groups must be at least {_LEAST_GROUPS}, or nobody could move between them")
    most = _MOST_RECORDS if handover is None else MOST_RECORDS
    scene = GroupScene(
        neighbors=request.neighbors,
        groups=tuple(f"g{number}" for number in range(groups)),
        max_groups=max_groups,
        centre=centre,
        reach=reach,
        counts=tuple(
            sorted({min(count, most) for count in (1, 2, record_cap, record_cap + 1, 4 * record_cap)})
        ),
        sizes=_USUAL_SIZES,
        per_group=per_group or 0,
    )
    judge = GroupJudge(
        mechanism, request, scene, public_keys=public_keys, counting=counting, handover=handover
    )
    users = judge.users_to_audit()
    adaptive = users is not None
    if per_group is None and users is not None:
        per_group = -(-users // groups)
    if per_group is not None:
        scene = _with_sizes(scene, (per_group,))
    elif judge.division.selection is not None:
        scene = _with_sizes(scene, (*_USUAL_SIZES, *selection_sizes(judge.division.selection)))
    rng = np.random.default_rng(seed)
    worlds = None
    if adaptive and per_group is not None:
        worlds = Scene(
            neighbors=request.neighbors,
            n_users=per_group * groups,
            dimension=1,
            lengths=(reach,),
            centre=np.array([centre]),
            units=np.ones(1),
            caps=(1, 2, most),
            adaptive=True,
        )

    edges = () if judge.division.selection is None else selection_sizes(judge.division.selection)

    def shapes() -> Iterator[GroupPair]:
        for number in range(max(pairs // 2, 1)):
            if worlds is not None and number % 3:
                yield in_groups(directed_pair(number, worlds, rng), scene, rng, edges)
            else:
                yield group_pair(SHAPES[number % len(SHAPES)], scene, rng)

    first = shapes()
    return worst_of(judge, first, lambda pair: varied_group_pair(pair, scene, rng), pairs, rng, progress)


def selection_sizes(selection: KeySelection) -> tuple[int, ...]:
    """Numbers of users of a group at which one user more or less matters to whether it appears."""
    usual, last = selection.usual_users, len(selection.passes) - 1
    return tuple(sorted({0, 1, usual // 2, usual, (usual + last) // 2, last - 1}))


def _with_sizes(scene: GroupScene, sizes: tuple[int, ...]) -> GroupScene:
    from dataclasses import replace

    return replace(scene, sizes=tuple(sorted(set(sizes))))
