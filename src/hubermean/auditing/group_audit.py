"""Audits of grouped releases: records, reader, mechanisms and output distributions as in a release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from hubermean.auditing.compare import make_repeatable
from hubermean.auditing.containers import MAX_RECORDS, ContainerRoundTrip
from hubermean.auditing.effort import Effort
from hubermean.auditing.group_neighbors import (
    GROUP,
    GROUP_SHAPES,
    GroupPair,
    GroupSearchSpace,
    make_group_pair,
    spread_over_groups,
    vary_group_pair,
)
from hubermean.auditing.neighbors import USER, VALUE, SearchSpace, make_directed_pair
from hubermean.auditing.search import Finding, PairEvaluator, search_worst
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import OutputDistribution
from hubermean.errors import InputError, parameter
from hubermean.ingest.reading import group_table
from hubermean.mechanisms.base import Mechanism, Prepared
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.partition_selection import PartitionSelection
from hubermean.mechanisms.groups.resolution import prepare_groups, resolve_group_mechanism, uses_rows
from hubermean.mechanisms.groups.row_selection import RowSelection
from hubermean.types.request import Neighbors, PublicFacts, Request

_USUAL_SIZES = (0, 1, 3)
_LEAST_GROUPS = 2
_POOLS = (400, 1000, 3000, 10_000, 100_000)
_FURTHER = 1.5  # times the users that exercise all steps, to exercise the search over groups
_MOST_RECORDS = 100  # of one user: more than any other user has


class GroupEvaluator(PairEvaluator[GroupPair]):
    """Evaluates pairs of tables in groups, read and prepared as in a release."""

    def __init__(
        self,
        mechanism: Mechanism,
        request: Request,
        space: GroupSearchSpace,
        *,
        public_keys: bool,
        counting: bool = False,
        round_trip: ContainerRoundTrip | None = None,
    ) -> None:
        super().__init__(request)
        self.group_split = GroupBudgetSplit.of(
            request,
            max_groups=space.max_groups,
            groups=len(space.groups) if public_keys else None,
            delta_for="keys" if counting else "all",
        )
        self._mechanism = resolve_group_mechanism(mechanism, self.group_split)
        self._space = space
        self._round_trip = round_trip
        self._keys = [(group,) for group in space.groups] if public_keys else None

    def distributions(
        self, pair: GroupPair
    ) -> tuple[OutputDistribution, OutputDistribution, Mapping[str, float]] | bool:
        if self._round_trip is None:
            return self._distributions(*pair.records())
        with self._round_trip.of(*pair.columns(self._round_trip)) as data:
            return self._distributions(*data)

    def _distributions(
        self, *data: Any
    ) -> tuple[OutputDistribution, OutputDistribution, Mapping[str, float]] | bool:
        first, second = (self._distribution(records) for records in data)
        if first is None or second is None:
            return first is second
        return first, second, {}

    def users_to_audit(self) -> int | None:
        """Return how many users an adaptive mechanism needs so that all its steps are exercised."""
        if not uses_rows(self._mechanism, self.group_split):
            return None
        tuning = self.group_split.estimation
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

    def _distribution(self, records: Any) -> OutputDistribution | None:
        reader = partial(
            group_table,
            user=[USER],
            value=[VALUE],
            by=[GROUP],
            keys=self._keys,
            max_groups=self._space.max_groups,
        )
        table = reader(records) if self._round_trip is None else self._round_trip.read(reader, records)
        if table is None:
            return None
        facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
        public = self.group_split.estimation.neighbors.users_are_public
        try:
            return make_repeatable(
                prepare_groups(
                    self._mechanism, self.group_split, facts, table.n_owners if public else None
                ).distribution(table)
            )
        except InputError:
            return None


def find_worst_group_pair(
    mechanism: Mechanism,
    request: Request,
    *,
    groups: int,
    max_groups: int | None,
    public_keys: bool,
    center: float,
    reach: float,
    max_records: int,
    counting: bool,
    per_group: int | None,
    round_trip: ContainerRoundTrip | None,
    effort: Effort,
    seed: int,
) -> tuple[Finding[GroupPair], int]:
    """Return the worst pair found among changes of one user in groups, and how many pairs were evaluated."""
    if groups < _LEAST_GROUPS:
        raise InputError(
            f"{parameter('groups')} must be at least {_LEAST_GROUPS}, or nobody could move between them"
        )
    most = _MOST_RECORDS if round_trip is None else MAX_RECORDS
    space = GroupSearchSpace(
        neighbors=request.neighbors,
        groups=tuple(f"g{number}" for number in range(groups)),
        max_groups=max_groups,
        center=center,
        reach=reach,
        counts=tuple(
            sorted({min(count, most) for count in (1, 2, max_records, max_records + 1, 4 * max_records)})
        ),
        sizes=_USUAL_SIZES,
        per_group=per_group or 0,
    )
    evaluate = GroupEvaluator(
        mechanism, request, space, public_keys=public_keys, counting=counting, round_trip=round_trip
    )
    users = evaluate.users_to_audit()
    adaptive = users is not None
    if per_group is None and users is not None:
        per_group = -(-users // groups)
    if per_group is not None:
        space = _with_sizes(space, (per_group,))
    elif evaluate.group_split.selection is not None:
        space = _with_sizes(space, (*_USUAL_SIZES, *list_selection_sizes(evaluate.group_split.selection)))
    rng = np.random.default_rng(seed)
    datasets = None
    if adaptive and per_group is not None:
        datasets = SearchSpace(
            neighbors=request.neighbors,
            n_users=per_group * groups,
            dimension=1,
            lengths=(reach,),
            center=np.array([center]),
            units=np.ones(1),
            caps=(1, 2, most),
            adaptive=True,
        )

    edges = (
        () if evaluate.group_split.selection is None else list_selection_sizes(evaluate.group_split.selection)
    )

    def shapes() -> Iterator[GroupPair]:
        for number in range(max(effort.pairs // 2, 1)):
            if effort.is_late(0.5):
                break
            if datasets is not None and number % 3:
                yield spread_over_groups(make_directed_pair(number, datasets, rng), space, rng, edges)
            else:
                shape = number if datasets is None else number // 3  # every shape has its turn
                yield make_group_pair(GROUP_SHAPES[shape % len(GROUP_SHAPES)], space, rng)

    return search_worst(evaluate, shapes(), lambda pair: vary_group_pair(pair, space, rng), effort, rng)


def list_selection_sizes(selection: PartitionSelection | RowSelection) -> tuple[int, ...]:
    """Return group sizes at which one user more or less affects whether the group is selected."""
    if isinstance(selection, RowSelection):
        return tuple(sorted({0, 1, selection.usual_users // 2, selection.usual_users}))
    usual, last = selection.usual_users, len(selection.passes) - 1
    return tuple(sorted({0, 1, usual // 2, usual, (usual + last) // 2, last - 1}))


def _with_sizes(space: GroupSearchSpace, sizes: tuple[int, ...]) -> GroupSearchSpace:
    from dataclasses import replace

    return replace(space, sizes=tuple(sorted(set(sizes))))
