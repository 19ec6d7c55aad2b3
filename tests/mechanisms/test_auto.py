"""`auto`: predictions agree with what mechanisms do, the choice follows them, and neighbors get the same one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.neighbors import Records, iterate_neighbors, table_of
from helpers.public_numbers import facts, request
from hubermean.accounting.concentrated import largest_rho
from hubermean.data.user_table import UserTable
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, column_epsilon
from hubermean.mechanisms.propose_test_release.fallback import PreparedWithFallback
from hubermean.mechanisms.propose_test_release.mechanism import ProposeTestRelease as Certified
from hubermean.mechanisms.registry import Auto, PreparedAuto
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

CENTER = 4.0


def mechanisms(dimension: int, relation: Neighbors, n_users: int, cap: int | None = None) -> list[Mechanism]:
    """At a threshold of three deviations."""
    joint = 3.0 * math.sqrt(dimension)
    guess = None if relation.users_are_public else n_users
    found: list[Mechanism] = [
        Clipped(bounds=(-8.0, 8.0), max_records=cap),  # a prediction is for means anywhere in the bounds
        InverseSensitivity(threshold=3.0, radius=100.0, max_records=cap),
        Certified(threshold=joint, radius=1e6, max_records=cap),
        SmoothSensitivity(threshold=joint, radius=100.0, users=guess, max_records=cap),
    ]
    if relation.users_are_public and (cap is None or relation.counts_are_public):
        found.append(Winsorized(threshold=joint, radius=100.0, max_records=cap))
    return found


def noise_of(
    mechanism: Mechanism, wanted: Request, n_users: int, counts: Sequence[int] | None, runs: int
) -> float:
    """Root mean square of release minus the non-private answer, over Gaussian users and seeded noise."""
    generator, noise = np.random.default_rng(7), InsecureSeededNoise(8)
    errors = []
    for _ in range(runs):
        means = generator.normal(CENTER, 1.0, (n_users, len(wanted.columns)))
        table = UserTable.from_means(means, counts)
        weights = np.ones(n_users) if counts is None else np.asarray(counts, dtype=float)
        threshold = getattr(mechanism, "threshold", math.inf)
        if mechanism.name in ("clipped", "winsorized"):
            plain = np.average(means, axis=0, weights=weights)
        elif mechanism.name == "inverse-sensitivity":
            plain = np.array(
                [
                    huber_location(column, weights=weights, thresholds=threshold).point
                    for column in means.T.copy()
                ]
            ).ravel()
        else:
            plain = np.ravel(huber_location(means, weights=weights, thresholds=threshold).point)
        errors.append(np.array(release_user_table(table, wanted, mechanism, noise).values) - plain)
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize(
    "position",
    range(5),
    ids=["clipped", "inverse-sensitivity", "propose-test-release", "smooth-sensitivity", "winsorized"],
)
@pytest.mark.parametrize(
    ("dimension", "relation"),
    [(1, Neighbors.REPLACE_USER), (3, Neighbors.REPLACE_USER), (1, Neighbors.ADD_REMOVE)],
    ids=["one column", "three columns", "add-remove"],
)
def test_predictions_agree_with_simulation(dimension: int, relation: Neighbors, position: int) -> None:
    n_users = 3000
    candidates = mechanisms(dimension, relation, n_users)
    if position >= len(candidates):
        return
    mechanism = candidates[position]
    wanted = request(dimension, relation=relation)
    predicted = mechanism.prepare(wanted, facts(wanted, n_users)).predicted_noise()
    assert len(predicted) == dimension
    seen = noise_of(mechanism, wanted, n_users, None, runs=80 // dimension)
    assert predicted[0] == pytest.approx(seen, rel=0.35)


@pytest.mark.parametrize("relation", list(Neighbors))
def test_predictions_agree_where_users_weigh_their_records(relation: Neighbors) -> None:
    """Counts from 1 to 9 with a cap of 9: on average half the cap, as is expected where counts are private."""
    n_users = 2000
    counts = np.random.default_rng(9).integers(1, 10, n_users)
    wanted = request(1, relation=relation, per="record", delta=0.0)
    mechanism = InverseSensitivity(threshold=3.0, radius=100.0, max_records=9)
    public = facts(wanted, n_users)
    if relation.counts_are_public:
        public = dataclasses.replace(public, record_counts=counts)
    predicted = mechanism.prepare(wanted, public).predicted_noise()[0]
    assert predicted == pytest.approx(
        noise_of(mechanism, wanted, n_users, counts.tolist(), runs=50), rel=0.35
    )


@pytest.mark.parametrize("relation", [Neighbors.REPLACE_USER, Neighbors.ADD_REMOVE])
@pytest.mark.parametrize("epsilon", [1 / 3, 1.0, 5.0])
@pytest.mark.parametrize(("n_users", "radius"), [(30, 10.0), (100, 1e6), (1000, 1e6), (100_000, 10.0)])
def test_the_prediction_of_inverse_sensitivity_is_the_scale_of_its_distribution(
    n_users: int, radius: float, epsilon: float, relation: Neighbors
) -> None:
    """No simulation: the output distribution is known, far and rare outcomes included."""
    # A chance of e^-25 to be a million away: an error in the exponent shows.
    tolerance = 0.6 if (n_users, epsilon, radius) == (100, 1.0, 1e6) else 0.3
    wanted = request(1, delta=0.0, epsilon=epsilon, relation=relation)
    table = UserTable.from_means(np.random.default_rng(1).normal(0, 1, n_users))
    prepared = InverseSensitivity(threshold=3.0, radius=radius).prepare(wanted, facts(wanted, n_users))
    scores, sizes = prepared.level_sets(table, 0).runs()
    spacing = 2.0**prepared.grid.exponent
    chances = sizes * np.exp(-float(prepared.rate) * (scores - scores.min()))
    middles = (np.cumsum(sizes) - sizes / 2 - prepared.grid.radius) * spacing
    squares = (middles - middles[np.argmin(scores)]) ** 2 + (sizes * spacing) ** 2 / 12
    seen = math.sqrt(np.average(squares, weights=chances))
    assert prepared.predicted_noise()[0] == pytest.approx(seen, rel=tolerance)


def chosen(n_users: int, dimension: int, *, delta: float, radius: float = 1e6, threshold: float = 3.0) -> str:
    wanted = request(dimension, delta=delta)
    known = PublicParameters(threshold=threshold, radius=radius)
    return Auto.from_parameters(known).prepare(wanted, facts(wanted, n_users)).mechanism


@pytest.mark.parametrize(
    ("n_users", "dimension", "delta", "name"),
    [
        (100, 3, 1e-5, "inverse-sensitivity"),
        (10_000, 3, 1e-5, "propose-test-release"),
        (300, 10, 1e-5, "propose-test-release"),
        (100, 1, 1e-5, "inverse-sensitivity"),
        (10_000, 1, 1e-5, "inverse-sensitivity"),
        (1_000_000, 1, 1e-5, "inverse-sensitivity"),
        (10_000, 3, 0.0, "inverse-sensitivity"),
        (10_000, 100, 0.0, "inverse-sensitivity"),
    ],
)
def test_choices_in_clear_cases(n_users: int, dimension: int, delta: float, name: str) -> None:
    assert chosen(n_users, dimension, delta=delta) == name


def test_the_choice_is_the_better_one_in_simulation() -> None:
    """Where the choice matters, at n = 2,000 and three columns: `propose-test-release` is chosen, and beats
    `inverse-sensitivity`."""
    wanted, threshold = request(3), 3.0 * math.sqrt(3.0)
    assert chosen(2000, 3, delta=1e-5, radius=100.0, threshold=threshold) == "propose-test-release"
    errors = {
        mechanism.name: noise_of(mechanism, wanted, 2000, None, runs=30)
        for mechanism in (
            InverseSensitivity(threshold=threshold, radius=100.0),
            Certified(threshold=threshold, radius=100.0),
        )
    }
    assert errors["propose-test-release"] < errors["inverse-sensitivity"]


def test_a_release_names_what_was_chosen() -> None:
    means = np.random.default_rng(2).normal(0, 1, (2000, 3))
    joint = hm.mean_of_user_means(means, epsilon=1, delta=1e-5, threshold=5.2, radius=1e6)
    assert (joint.mechanism, joint.parameters["chosen_by"]) == ("propose-test-release", "auto")
    assert joint.interval() is not None
    pure = hm.mean_of_user_means(means, epsilon=1, threshold=5.2, radius=1e6)
    assert pure.mechanism == "inverse-sensitivity"
    clipped = hm.mean_of_user_means(means, epsilon=1, bounds=(-5, 5))
    assert (clipped.mechanism, clipped.parameters["chosen_by"]) == ("clipped", "auto")
    named = hm.mean_of_user_means(means, epsilon=1, bounds=(-5, 5), mechanism="clipped")
    assert "chosen_by" not in named.parameters


def test_under_add_remove_the_true_number_of_users_plays_no_part() -> None:
    """The public facts are the same for any number of users, and so is all that is prepared."""
    wanted = request(3, relation=Neighbors.ADD_REMOVE)
    auto = Auto.from_parameters(PublicParameters(threshold=5.2, radius=1e6))
    generator = np.random.default_rng(3)
    prepared = [
        auto.prepare(
            wanted, PublicFacts.of(UserTable.from_means(generator.normal(size=(n, 3))), wanted.neighbors)
        )
        for n in (3, 50, 5000)
    ]
    assert prepared[0] == prepared[1] == prepared[2]


CONTENTS: list[Records] = [(-50.0,), (0.4,), (float("nan"),), (-50.0, 50.0), (0.4,) * 5]
datasets = st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
@given(dataset=datasets)
@settings(max_examples=6, deadline=None)
def test_neighbors_get_the_same_choice(relation: Neighbors, per: str, dataset: tuple[Records, ...]) -> None:
    wanted = Request(columns=("v",), epsilon=1.0, delta=1e-3, neighbors=relation, per=per)  # type: ignore[arg-type]
    cap = 3 if per == "record" and not relation.counts_are_public else None
    auto = Auto.from_parameters(PublicParameters(threshold=1.0, radius=9.0, max_records=cap))

    def prepared(users: tuple[Records, ...]) -> PreparedAuto:
        return auto.prepare(wanted, PublicFacts.of(table_of(users), relation))

    # Replacing the only user's values by others, or removing it, leaves a data set that is answered as well.
    for other in list(iterate_neighbors(dataset, relation, CONTENTS))[:6]:
        if other or relation is Neighbors.ADD_REMOVE:
            assert prepared(dataset) == prepared(other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": 5, "radius": 5, "bounds": (0, 1)}, "threshold adds nothing to bounds"),
        ({"scale": 5, "bounds": (0, 1)}, "scale adds nothing to bounds"),
        ({"threshold": -1, "radius": 5}, "threshold must be"),
        ({"threshold": 1, "scale": 5}, "threshold and scale give the same information"),
        ({"scale": -1}, "scale must be"),
        ({"scale": [1, 2]}, "2 scales for 1 columns"),
        ({"radius": 0}, "radius must be"),
        ({"hostile": 1.5}, "hostile must be"),
        ({"n_users": 0, "neighbors": "add-remove"}, "n_users must be"),
        ({"n_users": 0, "neighbors": "replace-user"}, "n_users must be"),
        ({"max_records": 2**21}, "max_records may be at most"),
    ],
)
def test_refusals_say_what_to_give_before_data_is_read(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence):
        hm.mean("no-such-file.parquet", user="u", value="v", epsilon=1, delta=1e-6, **options)  # type: ignore[arg-type]


def test_what_no_mechanism_can_do_is_refused_in_one_sentence() -> None:
    table = pa.table({"u": [1, 2], "v": [1.0, 2.0]})
    with pytest.raises(hm.InputError, match="epsilon is too small"):
        hm.mean(
            table,
            user="u",
            value="v",
            epsilon=1e-6,
            per="user",
            neighbors="add-remove",
            threshold=1,
            radius=9,
        )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("columns", [1, 2, 5, 10, 100])
def test_columns_of_inverse_sensitivity_share_the_budget_and_no_more(
    epsilon: float, delta: float, columns: int
) -> None:
    each = column_epsilon(epsilon, delta, columns=columns)
    part = Fraction(epsilon) / columns
    assert each >= part
    if each > part:
        assert columns * each**2 / 8 <= Fraction(largest_rho(epsilon, delta))
    assert column_epsilon(epsilon, 0.0, columns=columns) == part


def test_many_columns_gain_by_delta() -> None:
    """At ten columns more than half as much again, and the release says so."""
    assert column_epsilon(1.0, 1e-5, columns=10) > Fraction(15, 100)
    means = np.zeros((500, 10))
    release = hm.mean_of_user_means(
        means, epsilon=1, delta=1e-5, mechanism="inverse-sensitivity", threshold=1, radius=10
    )
    assert release.parameters["epsilon_of_each_column"] == pytest.approx(0.15635, abs=1e-5)


def test_a_sample_of_inverse_sensitivity_is_as_concentrated_as_its_range_says() -> None:
    """Renyi divergences of one column's draw stay below order * e^2 / 8 (proofs/inverse-sensitivity.md, Theorem 2)."""
    wanted = request(1, delta=0.0, epsilon=0.8)
    prepared = InverseSensitivity(threshold=1.0, radius=9.0).prepare(wanted, facts(wanted, 3))
    pairs = [([0.4, 0.4, 50.0], [0.4, 0.4, -50.0]), ([50.0, -50.0, 50.0], [50.0, -50.0, -50.0])]
    worst = 0.0
    for pair in pairs:
        log_probabilities, lengths = [], None
        ends = {-prepared.grid.radius}
        runs = [prepared.level_sets(UserTable.from_means(np.array(means)), 0).runs() for means in pair]
        for _, sizes in runs:
            ends |= {int(end) - prepared.grid.radius for end in np.cumsum(sizes)}
        corners = np.array(sorted(ends))
        lengths = np.diff(corners).astype(float)
        for scores, sizes in runs:
            places = np.searchsorted(np.cumsum(sizes) - prepared.grid.radius, corners[:-1], side="right")
            weights = -float(prepared.rate) * scores[places]
            log_probabilities.append(weights - np.log(np.sum(lengths * np.exp(weights))))
        for first, second in (log_probabilities, log_probabilities[::-1]):
            for order in (1.5, 2.0, 4.0, 16.0):
                moment = np.sum(lengths * np.exp(order * first + (1 - order) * second))
                divergence = math.log(moment) / (order - 1)
                assert divergence <= order * 0.8**2 / 8
                worst = max(worst, divergence / (order * 0.8**2 / 8))
    assert worst > 0.3, "no pair comes near the bound: the search is blind"


SMALLER_THAN_PLANNED: list[tuple[str, str, int | None, int, int]] = [
    ("add-remove", "user", None, 100, 1),
    ("add-remove", "user", None, 150, 1),
    ("add-remove", "record", 10, 300, 3),
    ("replace-user", "record", 10, 1000, 1),
    ("replace-user", "record", 100, 3000, 5),
    ("replace-user", "record", 10, 3000, 2),
]


@pytest.mark.parametrize(("relation", "per", "cap", "n_users", "records"), SMALLER_THAN_PLANNED)
def test_auto_does_not_refuse_where_the_weight_is_less_than_it_planned_for(
    relation: str, per: str, cap: int | None, n_users: int, records: int
) -> None:
    """`propose-test-release` is chosen for a guessed weight; what is measured decides whether it may serve
    or `inverse-sensitivity` has to."""
    generator, noise = np.random.default_rng(4), InsecureSeededNoise(5)
    wanted = Request.checked(("a", "b", "c"), epsilon=1, delta=1e-6, per=per, neighbors=relation)
    auto = Auto.from_parameters(PublicParameters(threshold=3 * math.sqrt(3), radius=1e6, max_records=cap))
    makers = set()
    for _ in range(5):
        counts = 1 + generator.poisson(records - 1, n_users)
        table = UserTable.from_means(generator.normal(size=(n_users, 3)), counts)
        assert (
            auto.prepare(wanted, PublicFacts.of(table, wanted.neighbors)).mechanism == "propose-test-release"
        )
        release = release_user_table(table, wanted, auto, noise)
        makers.add(release.mechanism)
        assert release.parameters["chosen_by"] == "auto"
        assert release.parameters[f"{per}s_measured"] >= 0
    assert makers == ({"propose-test-release"} if records == 2 else {"inverse-sensitivity"})


def test_the_stages_of_auto_spend_what_was_given_and_no_more() -> None:
    wanted = request(3, relation=Neighbors.ADD_REMOVE, epsilon=0.7)
    inner = (
        Auto.from_parameters(PublicParameters(threshold=5.2, radius=1e6))
        .prepare(wanted, facts(wanted, 3000))
        .inner
    )
    assert isinstance(inner, PreparedWithFallback)
    weight_noise = inner.propose_test_release.weight_noise
    assert weight_noise is not None
    spent = 1 / Fraction(weight_noise.scale)  # of a weight that changes by at most one
    left = Fraction(inner.inverse_sensitivity.request.epsilon)
    assert left == Fraction(inner.propose_test_release.epsilon)
    assert spent + left <= Fraction(wanted.epsilon)
    assert inner.inverse_sensitivity.rate * 2 == column_epsilon(
        inner.propose_test_release.epsilon, wanted.delta, columns=3
    )


@pytest.mark.parametrize("users", [150, 450])
def test_auto_keeps_its_guarantee_on_either_side_of_the_measured_choice(users: int) -> None:
    found = hm.audit(
        "auto",
        epsilon=1,
        delta=1e-5,
        neighbors="add-remove",
        columns=2,
        threshold=1,
        radius=100,
        users=users,
        pairs=40,
    )
    assert found.kept, found
