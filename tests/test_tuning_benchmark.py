"""What the tuning benchmark computes by itself, against known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from draws import LAWS
from hubermean import Release
from hubermean.relations import Neighbors
from hubermean.release import Interval
from hubermean.spending import whole_budget
from ratios import median_ratio
from tuning_hostile import FAR_AWAY, HOSTILE_SHARE, Wildness, attacked
from tuning_runs import Answer, Asked, Place, Series
from tuning_unequal import LARGEST_SHARE, zipf_counts


@pytest.mark.parametrize("name", ["uniform", "Gaussian", "Lomax(4)", "log-normal(1)"])
def test_laws_are_centred_and_have_the_deviation_they_state(name: str) -> None:
    law = LAWS[name]
    records = law.user_means(np.random.default_rng(1), np.ones(400_000, dtype=np.int64))
    assert abs(records.mean()) < 5.0 * law.deviation / math.sqrt(len(records))
    assert records.std() == pytest.approx(law.deviation, rel=0.05)


@pytest.mark.parametrize("users", [2_000, 10_000])
def test_zipf_counts_give_the_first_user_the_share_and_the_last_one_record(users: int) -> None:
    counts = zipf_counts(users)
    assert len(counts) == users
    assert counts[-1] == 1
    assert counts[0] / counts.sum() == pytest.approx(LARGEST_SHARE, abs=0.005)


def test_upper_bound_without_any_wild_value_is_the_closed_form() -> None:
    none = Wildness(
        law="all", users=0, records=0, place="", answers=20_000, refused=0, refusal="", wild=0, largest=3.0
    )
    assert none.upper == pytest.approx(1.0 - 0.05 ** (1.0 / 20_000), rel=1e-9)


@pytest.mark.parametrize(("sides", "mean"), [("one", HOSTILE_SHARE * FAR_AWAY), ("both", 0.0)])
def test_hostile_users_lie_where_they_are_said_to(sides: str, mean: float) -> None:
    honest = np.zeros(1_000)
    assert attacked(honest, 0.0, 1.0, sides).mean() == pytest.approx(mean)
    assert not honest.any()


def test_ratio_of_medians_has_no_error_where_all_runs_agree() -> None:
    assert median_ratio(np.full(50, 3.0), np.full(50, 2.0)) == (1.5, 0.0)


class _Around:
    def at(self, level: float) -> Interval:
        return Interval(level=level, low=(8.0,), high=(16.0,), covers="noise and sampling")


@pytest.mark.parametrize("bounds", [[0.0, 20.0], [[0.0, 20.0]]])
def test_an_answer_is_counted_from_the_truth_in_the_unit(bounds: list[object]) -> None:
    release = Release(
        values=(12.0,),
        columns=("value",),
        epsilon=1.0,
        delta=0.0,
        neighbors=Neighbors.REPLACE_USER,
        mechanism="tuned",
        per="record",
        n_users=10,
        parameters={"bounds": bounds, "record_cap": 7},
        spent=whole_budget(1.0, 0.0),
        interval_rule=_Around(),
    )
    assert Answer.of(release, 10.0, 2.0) == Answer(
        error=1.0, low=-1.0, high=3.0, covers="noise and sampling", half_width=5.0, record_cap=7
    )


def test_a_series_of_refusals_is_given_up_and_the_place_does_not_change_an_answer() -> None:
    refused = Series(asked=Asked())
    for _ in range(30):
        refused.ask(np.zeros(5), np.ones(5), 0.0, unit=1.0, plain=0.0)  # far too few users
    assert refused.hopeless
    assert refused.released == 0.0
    assert len(refused.answers) < 30
    means = np.random.default_rng(2).standard_normal(2_000)
    moved = Series(asked=Asked(epsilon=1e6), place=Place(name="far", shift=1e3, scale=1e3))
    answer = moved.ask(means, np.ones(2_000), 0.0, unit=1.0, plain=0.0)
    assert answer is not None
    assert answer.error == pytest.approx(means.mean(), abs=0.05)
