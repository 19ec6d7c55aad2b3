"""`winsorized` on users in parts: the bins and sums of the same users in one table."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.partitioned import POPULATIONS, PartedTable, plain, populations, record_counts
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.winsorized import bins
from hubermean.mechanisms.winsorized.mechanism import PreparedWinsorized, Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import PublicFacts, Request


def winsorized(table: UserTable, *, threshold: float) -> PreparedWinsorized:
    request = Request.checked(table.columns, epsilon=1.0, delta=1e-6, per="user", neighbors="replace-user")
    mechanism = Winsorized(threshold=threshold, radius=1e6)
    return mechanism.prepare(request, PublicFacts.of(table, request.neighbors))


@pytest.mark.parametrize("few", [None, 20])
@pytest.mark.parametrize("population", POPULATIONS)
def test_parts_have_the_bins_of_one_table(
    population: str, few: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so few users are brought together that their bins are closed in on by several passes."""
    if few is not None:
        monkeypatch.setattr(bins, "_FEW", few)
        monkeypatch.setattr(bins, "_FINENESS", 4)
    rng = np.random.default_rng(1)
    for size, number in ((2, 3), (60, 2), (3_000, 7), (3_000, 50)):
        table = UserTable.from_means(populations(size, rng)[population], record_counts(size, rng))
        for threshold in (5e-3, 3.0):
            prepared = winsorized(table, threshold=threshold)
            parts = PartedTable.of(table, number, rng)
            distributions = [prepared.distribution(users).then(0) for users in (table, parts)]
            assert plain(distributions[0]) == plain(distributions[1])
            assert parts.passes <= (3 if few is None else 11)


def test_the_same_noise_makes_the_same_release_of_parts() -> None:
    rng = np.random.default_rng(2)
    table = UserTable.from_means(rng.normal(size=(3_000, 3)), record_counts(3_000, rng))
    prepared = winsorized(table, threshold=3.0)
    released = prepared.run(table, InsecureSeededNoise(3)).values
    assert prepared.run(PartedTable.of(table, 7, rng), InsecureSeededNoise(3)).values == released


def test_answers_stay_small_however_many_users_there_are() -> None:
    rng = np.random.default_rng(4)
    for size, number in ((2_000, 2), (200_000, 60)):
        table = UserTable.from_means(rng.uniform(-1e5, 1e5, size))
        prepared = winsorized(table, threshold=0.01)
        parts = PartedTable.of(table, number, rng)
        distributions = [prepared.distribution(users).then(0) for users in (table, parts)]
        assert plain(distributions[0]) == plain(distributions[1])
        assert parts.largest_answer < 2**20
        assert parts.passes <= 11
