"""No bit of an answer tells neighbors apart: whatever one data set can lead to, its neighbor can too, bit for bit.

Mironov (2012), "On significance of the least significant bits for differential privacy": where noise is added in
floating point, many sums can only come from one of two neighbors. `reachable` says how that is looked for here.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.reachable import ScriptedNoise, UnreachableError, bits, noise_toward, shown, some_sample
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.ingest.reading import ReadRequest
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.resolution import prepare_groups, resolve_group_mechanism
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.release.grouped import Grouping, release_groups
from hubermean.release.path import release_user_table
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

NASTY = (
    *(
        0.1 + 0.2,
        1 / 3,
        -1 / 3,
        1e-300,
        -1e-300,
        5e-324,
        0.0,
        -0.0,
        1.0 + 2.0**-52,
        2.0**-60,
        0.49999999999999994,
    ),
    *(1e300, -1e300, math.inf, -math.inf, math.nan, 8e12, 2.0**53 + 2.0, 1e-17, 3.0000000000000004, -7.3e-5),
)
values = st.one_of(st.sampled_from(NASTY), st.floats(width=64), st.floats(-3, 3))
RELATIONS = tuple(relation.value for relation in Neighbors)
COLUMNS = ("v", "w")
User = list[tuple[float, float, str]]
NAN_USER, THIRD_USER = (math.nan, 1.0, "a"), (1 / 3, 1.0, "a")


records = st.tuples(values, values, st.sampled_from(["a", "b", "c"]))
changed_users = st.lists(records, min_size=1, max_size=4)


def ordinary(n_users: int) -> list[User]:
    """Users such as a mechanism is made for, of one to three records, with values that no float holds exactly."""
    rng = random.Random(n_users)
    return [
        [(rng.gauss(0.3, 0.7), rng.gauss(-1.1, 0.7), "ab"[number % 2]) for _ in range(1 + number % 3)]
        for number in range(n_users)
    ]


def iterate_neighbors(
    others: list[User], one: User, other: User, relation: str
) -> tuple[list[User], list[User]]:
    if relation == "add-remove":
        return [*others, one], others
    if relation == "replace-values":
        other = list(itertools.islice(itertools.cycle(other), len(one)))
    return [*others, one], [*others, other]


def as_table(users: Sequence[User]) -> pa.Table:
    rows = [(number, *record) for number, of_user in enumerate(users) for record in of_user]
    types = (("u", pa.int64()), ("v", pa.float64()), ("w", pa.float64()), ("g", pa.string()))
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(types)})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A release: the mechanism by name, what is known, and how many ordinary users it takes."""

    mechanism: str
    known: dict[str, Any] = field(default_factory=dict)
    columns: int = 1
    per: str = "user"
    epsilon: float = 1.0
    delta: float = 0.0
    users: int = 6
    relations: tuple[str, ...] = RELATIONS
    by: bool = False
    keys: tuple[str, ...] | None = None
    max_groups: int = 1

    def __str__(self) -> str:
        parts = [self.mechanism, *("by" * self.by).split(), f"{self.columns} columns", self.per]
        return " ".join(
            [*parts, *(f"{name}={given}" for name, given in self.known.items()), f"delta={self.delta}"]
        )

    def made(self) -> Mechanism:
        if self.mechanism == "count":
            return Count(**self.known)
        return (
            AdaptiveCount()
            if self.mechanism == "tuned count"
            else resolve_mechanism(self.mechanism, PublicParameters.from_keywords(**self.known))
        )

    @property
    def statistic(self) -> str:
        return "count" if "count" in self.mechanism else "mean"

    @property
    def value(self) -> tuple[str, ...]:
        return COLUMNS[: self.columns]

    def request(self, relation: str) -> Request:
        columns = ("users",) if self.statistic == "count" else self.value
        return Request.checked(
            columns, epsilon=self.epsilon, delta=self.delta, per=self.per, neighbors=relation
        )

    def reading(self) -> ReadRequest:
        return ReadRequest(user=["u"], value=self.value, threads=1)


class Side:
    """One of the two neighbors: the law of its release, and its release with given noise."""

    def __init__(self, case: Case, relation: str, users: Sequence[User]) -> None:
        self._case, self._request = case, case.request(relation)
        data = as_table(users)
        if case.by:
            self._open_groups(data)
        else:
            self._mechanism = case.made()
            with case.reading().open(data) as opened:
                self._table = opened.read_users(records=self._request.neighbors.counts_are_public)
            facts = PublicFacts.of(self._table, self._request.neighbors)
            self._prepared: Any = self._mechanism.prepare(self._request, facts)

    def _open_groups(self, data: pa.Table) -> None:
        case = self._case
        grouping = Grouping.from_keywords("g", case.keys, case.max_groups)
        assert grouping is not None
        self._grouping = grouping
        group_split = GroupBudgetSplit.of(
            self._request,
            max_groups=grouping.max_groups,
            groups=None if grouping.keys is None else len(grouping.keys),
            delta_for="keys" if case.statistic == "count" else "all",
        )
        self._mechanism = resolve_group_mechanism(case.made(), group_split)
        with case.reading().open(data, by=grouping.by) as opened:
            self._opened = opened
            self._table: Any = opened.read_groups(
                keys=grouping.keys,
                max_groups=grouping.max_groups,
            )
        facts = PublicFacts.of(self._table.members, Neighbors.ADD_REMOVE)
        public = group_split.estimation.neighbors.users_are_public
        n_users = self._table.n_owners if public else None
        self._prepared = prepare_groups(self._mechanism, group_split, facts, n_users)

    @contextlib.contextmanager
    def open(self, data: Any, *, by: Sequence[str]) -> Iterator[Any]:
        """In place of `Reading`, which would read the same again."""
        assert tuple(by) == self._opened.by
        yield self

    def read_groups(self, **asked: Any) -> Any:
        return self._table

    def __getattr__(self, name: str) -> Any:
        """Of data that were opened: columns, limits and the like."""
        return getattr(self.__dict__["_opened"], name)

    def distribution(self) -> Any:
        return self._prepared.distribution(self._table)

    def shown_at(self, sample: Any) -> tuple[Any, ...]:
        """All that is shown of the release that the sample leads to, by the path of every release."""
        noise = ScriptedNoise(noise_toward(self.distribution(), sample))

        def release() -> Any:
            if self._case.by:
                return release_groups(
                    None,
                    self,  # type: ignore[arg-type]
                    self._grouping,
                    self._request,
                    self._case.made(),
                    noise,
                    statistic=self._case.statistic,
                )
            return release_user_table(
                self._table, self._request, self._mechanism, noise, statistic=self._case.statistic
            )

        made = shown(release)
        assert noise.spent()
        return made


def assert_same_answers(one: Side, other: Side, rng: random.Random, *, delta: float, draws: int = 3) -> int:
    """What the first can lead to, the second can too, and the other way round; returns how many were released."""
    released = 0
    for here, there in ((one, other), (other, one)):
        for _ in range(draws):
            sample = some_sample(here.distribution(), rng)
            answer = here.shown_at(sample)
            try:
                same = there.shown_at(sample)
            except UnreachableError as reason:
                # Whether anything is released, and of which groups, may differ by what delta pays for.
                if reason.by_delta and delta > 0.0:
                    continue
                raise AssertionError("an answer of one that the other cannot give") from reason
            assert answer == same
            released += answer[0] != "not released"
    return released


KNOWN = {"threshold": 2.0, "radius": 50.0}
CASES = [
    Case(mechanism="clipped", known={"bounds": (-5, 5)}),
    Case(mechanism="clipped", known={"bounds": (-5, 5), "max_records": 2}, per="record", columns=2),
    Case(mechanism="clipped", known={"bounds": (-1e-3, 2e9)}, columns=2, delta=1e-6),
    Case(mechanism="inverse-sensitivity", known=KNOWN),
    Case(mechanism="inverse-sensitivity", known={**KNOWN, "max_records": 3}, per="record", columns=2),
    Case(mechanism="inverse-sensitivity", known=KNOWN, columns=2, delta=1e-6),
    Case(mechanism="propose-test-release", known=KNOWN, columns=2, epsilon=30.0, delta=1e-2, users=40),
    Case(
        mechanism="propose-test-release",
        known={**KNOWN, "max_records": 2},
        per="record",
        epsilon=30.0,
        delta=1e-2,
        users=60,
    ),
    Case(mechanism="smooth-sensitivity", known=KNOWN, epsilon=5.0, delta=1e-3, users=40),
    Case(
        mechanism="smooth-sensitivity",
        known={**KNOWN, "max_records": 2},
        columns=2,
        per="record",
        delta=1e-3,
        users=40,
    ),
    Case(mechanism="winsorized", known=KNOWN, relations=RELATIONS[:2]),
    Case(mechanism="winsorized", known=KNOWN, columns=2, delta=1e-6, relations=RELATIONS[:2]),
    Case(mechanism="winsorized", known=KNOWN, per="record", relations=("replace-values",)),
    Case(mechanism="adaptive", epsilon=60.0, users=60),
    Case(mechanism="adaptive", epsilon=200.0, per="record", users=60),
    Case(mechanism="adaptive", epsilon=90.0, columns=2, delta=1e-3, users=60),
    Case(mechanism="auto", known=KNOWN, columns=2, epsilon=30.0, delta=1e-2, users=60),
    Case(mechanism="count"),
    Case(mechanism="count", known={"max_records": 2}, per="record"),
    Case(mechanism="tuned count", per="record", epsilon=60.0, users=60),
    Case(
        mechanism="clipped", known={"bounds": (-5, 5)}, by=True, keys=("b", "a", "z"), max_groups=2, columns=2
    ),
    Case(mechanism="clipped", known={"bounds": (-5, 5)}, by=True, epsilon=20.0, delta=1e-2, users=20),
    Case(mechanism="adaptive", by=True, keys=("a", "b"), epsilon=200.0, users=80),
    Case(
        mechanism="inverse-sensitivity",
        known=KNOWN,
        by=True,
        keys=("a", "b"),
        users=12,
        relations=RELATIONS[1:],
    ),
    Case(
        mechanism="smooth-sensitivity",
        known=KNOWN,
        by=True,
        keys=("a", "b"),
        epsilon=5.0,
        delta=1e-3,
        users=30,
        columns=2,
    ),
    Case(mechanism="count", by=True, keys=("a", "c"), max_groups=2),
    Case(mechanism="tuned count", per="record", by=True, epsilon=200.0, delta=1e-2, users=80),
]


ALL = pytest.mark.parametrize(
    ("case", "relation"), [(case, relation) for case in CASES for relation in case.relations], ids=str
)


def check(case: Case, relation: str, one: User, other: User, seed: int) -> int:
    first, second = iterate_neighbors(ordinary(case.users), one, other, relation)
    sides = Side(case, relation, first), Side(case, relation, second)
    return assert_same_answers(*sides, random.Random(seed), delta=case.delta)


@pytest.mark.fair_sample(0.25)
@ALL
@given(one=changed_users, other=changed_users, seed=st.integers(0, 2**32))
@settings(max_examples=3, deadline=None)
def test_neighbors_lead_to_the_same_answers_to_the_last_bit(
    case: Case, relation: str, one: User, other: User, seed: int
) -> None:
    check(case, relation, one, other, seed)


@pytest.mark.slow
@ALL
@given(one=changed_users, other=changed_users, seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_neighbors_lead_to_the_same_answers_to_the_last_bit_at_length(
    case: Case, relation: str, one: User, other: User, seed: int
) -> None:
    check(case, relation, one, other, seed)


@pytest.mark.fair_sample(0.4)
@ALL
def test_what_was_compared_are_answers_and_not_refusals_alone(case: Case, relation: str) -> None:
    ((one, other),) = zip(ordinary(8)[5:6], ordinary(9)[8:9], strict=True)
    assert any(check(case, relation, one, other, seed) > 0 for seed in range(12))


# --- the comparison is not blind ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FloatSum:
    """A sum in floating point plus noise in floating point, as one would write it down."""

    total: float
    unit: float

    def sample(self, noise: Any) -> float:
        return self.total + self.unit * noise.discrete_laplace(1.0, 1)[0]

    def some_sample(self, rng: random.Random) -> float:
        return self.total + self.unit * rng.randint(-(2**30), 2**30)

    def noise_toward(self, sample: float) -> list[tuple[str, int]]:
        about = round((sample - self.total) / self.unit)
        for number in range(about - 3, about + 4):
            if bits([self.total + self.unit * number]) == bits([sample]):
                return [("noise", number)]
        raise UnreachableError("a float")


class Wrong(Prepared):
    """Each of these is private on paper, for real numbers."""

    def __init__(self, how: str) -> None:
        self.how = how

    def distribution(self, table: UserTable) -> Any:
        means = table.means.reshape(-1, table.n_users)[0]
        total = float(np.clip(means[np.isfinite(means)], -5.0, 5.0).sum())
        if self.how == "adds floats":
            return FloatSum(total, 10.0 * 2.0**-30)
        self.negative = total < 0.0
        return NoisySum(position=[round(total)], noise=NoiseDistribution(kind="laplace", scale=10.0))

    def outcome(self, sample: Any) -> Outcome:
        if self.how == "adds floats":
            return Outcome(values=(sample,))
        # What the answer is rounded to, or its sign at zero, comes from the data and not from the sample.
        value = float(sample[0])
        if self.negative:
            value = math.copysign(0.0, -1.0) if self.how == "signs zero" and value == 0.0 else value
            value = math.nextafter(value, math.inf) if self.how == "distributed_solver" else value
        return Outcome(values=(value,))


@dataclass(frozen=True)
class WrongMechanism:
    how: str
    name = "wrong"

    def check(self, request: Request) -> None: ...

    def prepare(self, request: Request, facts: PublicFacts) -> Prepared:
        return Wrong(self.how)


@dataclass(frozen=True, kw_only=True)
class WrongCase(Case):
    def made(self) -> Mechanism:
        return WrongMechanism(self.mechanism)


@pytest.mark.parametrize("how", ["adds floats", "distributed_solver", "signs zero"])
def test_bits_that_come_from_the_data_would_be_seen(how: str) -> None:
    users: tuple[User, User] = [(1 / 3, 0.0, "a")], [(-5.0, 0.0, "a")]
    sides = [Side(WrongCase(mechanism=how), "replace-user", [*ordinary(3), user]) for user in users]
    with pytest.raises(AssertionError):
        assert_same_answers(*sides, random.Random(1), delta=0.0, draws=400)


def textbook_laplace(total: float, scale: float) -> set[bytes]:
    """All that a float Laplace mechanism can say, for a uniform number of 14 bits and a sign."""
    uniforms = (np.arange(2**14) + 0.5) / 2**14
    noise = -scale * np.log(uniforms)
    return set(bits(np.concatenate([total + noise, total - noise])))


def test_the_textbook_mechanism_gives_neighbors_away_where_ours_has_one_set_of_answers() -> None:
    """The sets themselves, over noise that covers the same window of draws."""
    first, second = textbook_laplace(0.1 + 0.2, 1.0), textbook_laplace(1.3, 1.0)
    assert len(first & second) < 0.01 * len(first)

    case = Case(mechanism="clipped", known={"bounds": (-5, 5)})
    sides = [Side(case, "replace-user", [*ordinary(3), user]) for user in ([NAN_USER], [THIRD_USER])]
    positions = [side.distribution().position for side in sides]
    assert positions[0] != positions[1]
    middle = [sum(pair) // 2 for pair in zip(*positions, strict=True)]
    windows = [[place + shift for place in middle] for shift in range(-500, 501)]
    sets = [{side.shown_at(sample)[0] for sample in windows} for side in sides]
    assert sets[0] == sets[1]
    assert len(sets[0]) > 400
