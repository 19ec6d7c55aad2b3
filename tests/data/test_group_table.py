"""Totals of users over their groups: exact, whatever their size, and in whatever order entries come."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hubermean.data.encoding import BINARY, whole_numbers
from hubermean.data.fixed_point import ExactIntegers, ExactSums
from hubermean.data.group_table import GroupTable, Membership
from hubermean.data.user_table import UserTable
from hubermean.errors import InputError


def group_table(
    sums: ExactSums, owners: list[int], n_owners: int, counts: list[int] | None = None
) -> GroupTable:
    held = np.array(counts or [1] * len(owners), dtype=np.int64)
    return GroupTable(
        by=("g",),
        keys=(("a",),),
        members=UserTable(columns=("v",), sums=(sums,), counts=held, records=held),
        membership=Membership(groups=np.zeros(len(owners), dtype=np.int64), size=1),
        owners=np.array(owners, dtype=np.int64),
        n_owners=n_owners,
    )


def totals(table: GroupTable) -> list[tuple[Fraction, int]]:
    users = table.users()
    return [(users.sums[0].fraction(owner), count) for owner, count in enumerate(users.counts.tolist())]


SIZES = [1, 2**20, 2**52, 2**53, 2**61, 2**62 - 1, 2**63 - 1, 2**80, 2**100]


@pytest.mark.parametrize("most", SIZES)
def test_totals_of_integers_are_exact_whatever_their_size(most: int) -> None:
    rng = np.random.default_rng(most % 1009)
    owners = rng.integers(0, 40, 500).tolist()
    numbers = [
        int(sign) * (most - int(less))
        for sign, less in zip(rng.choice([-1, 1], 500), rng.integers(0, 2, 500), strict=True)
    ]
    sums = ExactSums(encoding=whole_numbers(), low=ExactIntegers.from_integers(numbers))
    wanted = [
        sum(number for number, own in zip(numbers, owners, strict=True) if own == owner)
        for owner in range(41)
    ]
    assert totals(group_table(sums, owners, 41)) == [
        (Fraction(total), owners.count(owner)) for owner, total in enumerate(wanted)
    ]


@pytest.mark.parametrize("bits", [10, 60, 61, 90, 110, 120])
def test_totals_of_doubles_are_those_of_one_sum_and_represented_alike(bits: int) -> None:
    """So what is computed from them does not show over how many groups records were spread."""
    rng = np.random.default_rng(bits)
    units = [
        int(sign) * (2**bits + int(more))
        for sign, more in zip(rng.choice([-1, 1], 60), rng.integers(0, 99, 60), strict=True)
    ]
    owners = rng.integers(0, 9, 60).tolist()

    def words(numbers: list[int]) -> ExactSums:
        low = np.array([number & (2**64 - 1) for number in numbers], dtype=np.uint64).view(np.int64)
        high = np.array([number >> 64 for number in numbers], dtype=np.int64)
        return ExactSums.from_binary_words([(low, high)])

    table = group_table(words(units), owners, 9)
    found = table.users().sums[0]
    whole = [
        sum(number for number, own in zip(units, owners, strict=True) if own == owner) for owner in range(9)
    ]
    assert [found.integer(owner) for owner in range(9)] == whole
    assert found.encoding == BINARY
    assert found.high is not None
    assert found.low.small.min() >= 0
    assert found.low.small.max() < BINARY.radix
    order = rng.permutation(60)
    again = group_table(
        words([units[place] for place in order]), [owners[place] for place in order], 9
    ).users()
    own = again.sums[0]
    assert own.high is not None
    assert (own.low.small.tolist(), own.high.small.tolist()) == (
        found.low.small.tolist(),
        found.high.small.tolist(),
    )
    assert (own.low.large, own.high.large) == (found.low.large, found.high.large)


def test_a_user_in_no_group_has_no_usable_records() -> None:
    sums = ExactSums(encoding=whole_numbers(), low=ExactIntegers.from_integers([5, -5]))
    table = group_table(sums, [2, 2], 4, counts=[3, 4])
    assert totals(table) == [(0, 0), (0, 0), (0, 7), (0, 0)]
    assert totals(table.pad_users(5)) == [(0, 0), (0, 0), (0, 7), (0, 0), (0, 0)]
    with pytest.raises(InputError, match="more users than"):
        table.pad_users(3)


def test_an_empty_table_has_no_totals() -> None:
    sums = ExactSums(encoding=whole_numbers(), low=ExactIntegers.from_integers([]))
    assert totals(group_table(sums, [], 0)) == []
    assert totals(group_table(sums, [], 2)) == [(0, 0), (0, 0)]
