"""Audits of grouped releases: the same records, reader, mechanisms and laws as a release, on neighbouring tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hubermean.auditing.compare import readable
from hubermean.auditing.group_worlds import (
    GROUP,
    SHAPES,
    USER,
    VALUE,
    GroupPair,
    GroupScene,
    group_pair,
    varied_group_pair,
)
from hubermean.auditing.search import AnyJudge, Finding, worst_of
from hubermean.errors import InputError
from hubermean.groups import Division, needs_pool, prepare_groups, settled
from hubermean.ingest import group_table
from hubermean.laws import Law
from hubermean.mechanisms import Mechanism, PublicFacts, Request
from hubermean.relations import Neighbors

_USUAL_SIZES = (0, 1, 3)
_LEAST_GROUPS = 2


class GroupJudge(AnyJudge[GroupPair]):
    """What a pair of tables in groups gives away, read and prepared as a release would be."""

    def __init__(
        self, mechanism: Mechanism, request: Request, scene: GroupScene, *, public_keys: bool
    ) -> None:
        super().__init__(request)
        self.division = Division.of(request, max_groups=scene.max_groups, public_keys=public_keys)
        self._mechanism = settled(mechanism, self.division)
        self._scene = scene
        self._keys = [(group,) for group in scene.groups] if public_keys else None

    def laws(self, pair: GroupPair) -> tuple[Law, Law, Mapping[str, float]] | bool:
        first, second = (self._law(records) for records in pair.records())
        if first is None or second is None:
            return first is second
        return first, second, {}

    def _law(self, records: Any) -> Law | None:
        table = group_table(
            records,
            user=[USER],
            value=[VALUE],
            by=[GROUP],
            keys=self._keys,
            max_groups=self._scene.max_groups,
            pooled=needs_pool(self._mechanism),
        )
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
    per_group: int | None,
    pairs: int,
    seed: int,
    progress: Callable[[int], None] | None,
) -> tuple[Finding[GroupPair], int]:
    """The worst pair found among moves of one user between groups, and how many pairs were judged."""
    if groups < _LEAST_GROUPS:
        raise InputError(f"groups must be at least {_LEAST_GROUPS}, or nobody could move between them")
    scene = GroupScene(
        neighbors=request.neighbors,
        groups=tuple(f"g{number}" for number in range(groups)),
        max_groups=max_groups,
        centre=centre,
        reach=reach,
        counts=tuple(sorted({1, 2, record_cap, record_cap + 1, 4 * record_cap})),
        sizes=_USUAL_SIZES,
        per_group=per_group or 0,
    )
    judge = GroupJudge(mechanism, request, scene, public_keys=public_keys)
    if per_group is not None:
        scene = _with_sizes(scene, (per_group,))
    elif judge.division.selection is not None:
        usual = judge.division.selection.usual_users
        last = len(judge.division.selection.passes) - 1
        scene = _with_sizes(scene, (*_USUAL_SIZES, usual // 2, usual, (usual + last) // 2, last - 1))
    rng = np.random.default_rng(seed)
    first = (group_pair(SHAPES[number % len(SHAPES)], scene, rng) for number in range(max(pairs // 2, 1)))
    return worst_of(judge, first, lambda pair: varied_group_pair(pair, scene, rng), pairs, rng, progress)


def _with_sizes(scene: GroupScene, sizes: tuple[int, ...]) -> GroupScene:
    from dataclasses import replace

    return replace(scene, sizes=tuple(sorted(set(sizes))))
