"""`inverse-sensitivity`, `clipped` and `count` on users in parts: the law of the same users in one table, in
few small passes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from helpers.partitioned import POPULATIONS, PartedTable, plain, populations, record_counts
from hubermean.data.user_table import UserTable
from hubermean.distributed import level_sets
from hubermean.errors import InputError
from hubermean.mechanisms.base import Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.counts.mechanism import Count
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import PublicFacts, Request

RELATIONS = ("replace-user", "add-remove")
PERS = ("user", "record")
WAYS = (*PERS, "record 0.5", "record 1")
CAP = 40


def exact(table: UserTable, neighbors: str, per: str, *, epsilon: float = 1.0) -> Prepared:
    """`per` is "user", "record", or "record" with the power by which thresholds shrink."""
    per, _, power = per.partition(" ")
    request = Request.checked(table.columns, epsilon=epsilon, delta=0.0, per=per, neighbors=neighbors)
    cap = CAP if per == "record" and power != "1" else None
    mechanism = InverseSensitivity(
        threshold=2.0, radius=1e6, max_records=cap, threshold_power=float(power) if power else None
    )
    return mechanism.prepare(request, PublicFacts.of(table, request.neighbors))


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few points a pass that few users take as many passes as very many do otherwise."""
    monkeypatch.setattr(level_sets, "FINENESS", 8)
    monkeypatch.setattr(level_sets, "MOST_POINTS", 64)


@pytest.mark.fair_sample(0.25)
@pytest.mark.parametrize("per", WAYS)
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("population", POPULATIONS)
def test_parts_have_the_shells_of_one_table(population: str, neighbors: str, per: str) -> None:
    rng = np.random.default_rng(1)
    for size, number in ((1, 1), (3, 7), (40, 2), (3_000, 1), (3_000, 7), (3_000, 50)):
        table = UserTable.from_means(populations(size, rng)[population], record_counts(size, rng))
        prepared = exact(table, neighbors, per)
        parts = PartedTable.of(table, number, rng)
        assert plain(prepared.distribution(parts)) == plain(prepared.distribution(table))
        assert parts.passes <= 6


@pytest.mark.fair_sample(0.25)
@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("per", WAYS)
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("population", POPULATIONS)
def test_closing_in_by_many_passes_ends_at_the_same_shells(population: str, neighbors: str, per: str) -> None:
    rng = np.random.default_rng(2)
    for size in (300, 4_000):
        table = UserTable.from_means(populations(size, rng)[population], record_counts(size, rng))
        prepared = exact(table, neighbors, per, epsilon=3.0)
        parts = PartedTable.of(table, 5, rng)
        assert plain(prepared.distribution(parts)) == plain(prepared.distribution(table))


@pytest.mark.fair_sample(0.2)
@pytest.mark.parametrize("per", WAYS)
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    "population", ["normal", "two far clusters", "heavy tails", "most tie", "at the brink"]
)
def test_passes_and_answers_stay_small_however_many_users_there_are(
    population: str, neighbors: str, per: str
) -> None:
    rng = np.random.default_rng(3)
    for size, number in ((2_000, 2), (200_000, 60)):
        table = UserTable.from_means(populations(size, rng)[population], record_counts(size, rng))
        prepared = exact(table, neighbors, per)
        parts = PartedTable.of(table, number, rng)
        assert plain(prepared.distribution(parts)) == plain(prepared.distribution(table))
        assert parts.passes <= 6
        assert parts.largest_answer < 3 * 2**20
        assert parts.largest_question < 2**20


def test_nobody_is_in_parts_as_in_one_table() -> None:
    table = UserTable.from_means(np.empty(0))
    prepared = exact(table, "add-remove", "user")
    parts = PartedTable([table, table])
    assert plain(prepared.distribution(parts)) == plain(prepared.distribution(table))


def test_every_column_has_its_shells() -> None:
    rng = np.random.default_rng(4)
    table = UserTable.from_means(rng.normal(size=(500, 3)) * [1.0, 100.0, 0.01], record_counts(500, rng))
    prepared = exact(table, "replace-user", "record")
    assert plain(prepared.distribution(PartedTable.of(table, 7, rng))) == plain(prepared.distribution(table))


@pytest.mark.parametrize("per", PERS)
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_sums_of_parts_are_the_sums_of_all(neighbors: str, per: str) -> None:
    rng = np.random.default_rng(5)
    cap = CAP if per == "record" else None
    clipped = Clipped(bounds=(-3.0, 5.0), max_records=cap)
    mechanisms: list[Any] = [clipped, Count(max_records=cap)]
    table = UserTable.from_means(rng.standard_cauchy((900, 2)), record_counts(900, rng))
    for mechanism in mechanisms:
        request = Request.checked(table.columns, epsilon=1.0, delta=1e-6, per=per, neighbors=neighbors)
        prepared = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
        for number in (1, 7, 50):
            parts = PartedTable.of(table, number, rng)
            assert plain(prepared.distribution(parts)) == plain(prepared.distribution(table))
            assert parts.passes <= 1


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_same_noise_makes_the_same_release_of_parts(neighbors: str) -> None:
    rng = np.random.default_rng(6)
    table = UserTable.from_means(rng.normal(size=2_000), record_counts(2_000, rng))
    prepared = exact(table, neighbors, "record")
    released = prepared.run(table, InsecureSeededNoise(7)).values
    assert prepared.run(PartedTable.of(table, 7, rng), InsecureSeededNoise(7)).values == released


def test_public_counts_are_refused_of_parts() -> None:
    table = UserTable.from_means(np.arange(9.0))
    request = Request.checked(table.columns, epsilon=1, delta=0, per="user", neighbors="replace-values")
    with pytest.raises(InputError, match="one machine"):
        PublicFacts.of(PartedTable([table]), request.neighbors)


@pytest.mark.parametrize("mechanism", ["inverse-sensitivity", "propose-test-release"])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_what_parts_are_asked_shows_nothing_of_the_data(
    mechanism: str, neighbors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions hold places that follow from the users, and an error or a log may show a question.

    What they show is the same for users of whom nothing is the same, whatever was asked more often.
    """
    map_partitions, shown = PartedTable.map_partitions, []
    for middle, size in ((3.0, 4000), (-41.0, 4001 if neighbors == "add-remove" else 4000)):
        asked: set[str] = set()

        def noted(self: PartedTable, look: Any, asked: set[str] = asked) -> list[Any]:
            asked.add(re.sub("0x[0-9a-f]+", "", repr(look)))
            return map_partitions(self, look)

        monkeypatch.setattr(PartedTable, "map_partitions", noted)
        means = np.random.default_rng(1).normal(middle, 1.0 + abs(middle), size)
        table = PartedTable.of(UserTable.from_means(means), 3, np.random.default_rng(2))
        request = Request.checked(("mean",), epsilon=2.0, delta=1e-6, per="user", neighbors=neighbors)
        chosen = resolve_mechanism(mechanism, PublicParameters.from_keywords(threshold=200.0, radius=1000.0))
        prepared = chosen.prepare(request, PublicFacts.of(table, request.neighbors))
        prepared.distribution(table).sample(InsecureSeededNoise(3))
        shown.append(asked)
    assert shown[0]
    assert shown[0] == shown[1]
