"""A refusal costs what its steps cost that had run: never more than the charge, in the unit of the charge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.accounting.budget import PrivacyBudget, PrivacyCost
from hubermean.accounting.concentrated import epsilon_of_part, largest_rho
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.ledger.amounts import Cost
from hubermean.ledger.composition import COMPOSITIONS
from hubermean.mechanisms.base import Outcome, Prepared


def few_users(number: int = 6) -> pa.Table:
    return pa.table({"u": np.arange(number), "v": np.random.default_rng(1).normal(size=number)})


def opened(place: Any, composition: str = "basic", **total: Any) -> hm.Ledger:
    ledger = hm.Ledger(place)
    ledger.init("d", **{"epsilon": 10, "delta": 1e-3, "composition": composition, **total})
    return ledger


def refused(ledger: hm.Ledger, **how: Any) -> hm.NotReleased:
    asked = {"user": "u", "value": "v", "epsilon": 1.0, "per": "user", "question": "q"}
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean(how.pop("data", few_users()), ledger=ledger, dataset="d", **{**asked, **how})
    return caught.value


def contents(ledger: hm.Ledger) -> list[tuple[str, dict[str, Any]]]:
    return [(entry.kind, entry.content) for entry in ledger.entries()]


@dataclass(frozen=True)
class Refuses(Prepared):
    """A mechanism of one noisy sum that always refuses, and says what it spent."""

    epsilon: Any
    delta: Any = 0.0
    rho: Any = None
    whole: Fraction | None = None
    name = "refuses"

    def check(self, request: Any) -> None:
        pass

    def prepare(self, request: Any, facts: Any) -> Refuses:
        return self

    def concentrated(self) -> Fraction | None:
        return self.whole

    def distribution(self, table: Any) -> NoisySum:
        return NoisySum(position=[0], noise=NoiseDistribution(kind="laplace", scale=1.0))

    def outcome(self, sample: Any) -> Outcome:
        raise hm.NotReleased("no", epsilon=self.epsilon, delta=self.delta, rho=self.rho)


# --- what stays charged -----------------------------------------------------------------------------------------------


def test_a_refusal_is_charged_recorded_and_then_given_back(place: str) -> None:
    with opened(place) as ledger:
        refusal = refused(ledger)
        kinds = [kind for kind, _ in contents(ledger)]
        assert kinds == ["opened", "charged", "not-released", "refunded"]
        (_, charge), (_, outcome), (_, refund) = contents(ledger)[1:]
        assert charge["cost"] == {"loss": "1", "delta": "0"}
        used = Decimal(outcome["used"]["loss"])
        assert (
            used == Decimal(repr(refusal.epsilon)) == Decimal("0.06")
        )  # the number of users, and nothing else
        assert used + Decimal(refund["refund"]["loss"]) == 1
        assert ledger.dataset("d").spent == Cost(loss=used, delta=Decimal(0))
        assert "at" not in refund
        assert ledger.verify().sound
        # The question has its answer: nothing more is charged.
        assert refused(ledger).epsilon == 0.0
        assert ledger.dataset("d").spent.loss == used


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_refunds_add_up(tmp_path: Path, composition: str) -> None:
    with opened(tmp_path / "l.sqlite", composition, epsilon=20) as ledger:
        expected = Cost(loss=Decimal(0), delta=Decimal(0))
        generator = np.random.default_rng(3)
        for number in range(40):
            epsilon, delta = float(generator.uniform(0.1, 1.0)), float(generator.choice([0.0, 1e-6]))
            refusal = refused(ledger, epsilon=epsilon, delta=delta, question=f"q{number}")
            whole = PrivacyCost(epsilon=epsilon, delta=delta)
            used = PrivacyCost(epsilon=refusal.epsilon, delta=refusal.delta)
            expected += COMPOSITIONS[composition].cost_of_part(whole, used, 1)
            assert ledger.dataset("d").spent == expected
        assert ledger.verify().sound


def test_a_concentrated_release_gives_back_in_rho(tmp_path: Path) -> None:
    """Not in epsilon: half of the epsilon of a concentrated budget is far from half of its rho."""
    whole = Fraction(1, 8)
    for part in (Fraction(0), Fraction(1, 1000), Fraction(1, 16), whole):
        with opened(tmp_path / f"{part.denominator}.sqlite", "concentrated") as ledger:
            mechanism = Refuses(epsilon=0.9, delta=1e-6, rho=part, whole=whole)
            refused(ledger, mechanism=mechanism, delta=1e-6)
            assert ledger.dataset("d").spent == Cost(loss=Decimal(part.numerator) / part.denominator, delta=0)
            assert ledger.verify().sound


@pytest.mark.parametrize("whole", [None, Fraction(1, 2)])
def test_nothing_is_given_back_of_a_concentrated_budget_in_another_unit_than_it_was_charged_in(
    tmp_path: Path, whole: Fraction | None
) -> None:
    """proofs/ledger.md, Lemma 8: what each end is bounded by in epsilon says too little of the divergence."""
    rho = Fraction(1, 10**6) if whole is None else None
    with opened(tmp_path / "l.sqlite", "concentrated") as ledger:
        refused(ledger, mechanism=Refuses(epsilon=1e-9, rho=rho, whole=whole), delta=1e-6)
        assert ledger.dataset("d").spent.loss == Decimal("0.5")
        assert [kind for kind, _ in contents(ledger)][-1] == "not-released"


@pytest.mark.parametrize(
    "stated",
    [(2.0, 0.0), (math.inf, 0.0), (math.nan, 0.0), (-1.0, 0.0), (0.5, 5.0), (1.0, 0.0), ("a lot", 0.0)],
)
def test_nothing_is_given_back_for_what_is_no_part_of_the_charge(
    tmp_path: Path, stated: tuple[Any, float]
) -> None:
    epsilon, delta = stated
    with opened(tmp_path / "l.sqlite") as ledger:
        refused(ledger, mechanism=Refuses(epsilon=epsilon, delta=delta), delta=1e-6)
        spent = ledger.dataset("d").spent
        assert spent.delta == (Decimal("1e-6") if delta or epsilon not in (2.0, 1.0) else 0)
        assert spent.loss == (Decimal("0.5") if epsilon == 0.5 else 1)
        assert ledger.verify().sound


def test_two_changes_cost_twice_the_steps_and_the_delta_at_the_whole_epsilon(tmp_path: Path) -> None:
    with opened(tmp_path / "l.sqlite", neighbors="replace-user") as ledger:
        refused(ledger, mechanism=Refuses(epsilon=0.25, delta=1e-7), delta=1e-6)
        spent = ledger.dataset("d").spent
        assert spent.loss == Decimal("0.5")
        assert 0 <= Fraction(spent.delta) - Fraction(1 + math.e) / 10**7 < Fraction(1, 10**20)


def test_an_error_while_reading_costs_everything(tmp_path: Path) -> None:
    """Whether it occurs may depend on one user."""
    frame = pl.LazyFrame({"u": [1, 2], "t": ["1", "a word"]}).with_columns(v=pl.col("t").cast(pl.Int64))
    with opened(tmp_path / "l.sqlite") as ledger:
        refusal = refused(ledger, data=frame)
        assert "counts as spent" in str(refusal)
        assert ledger.dataset("d").spent.loss == 1
        assert [kind for kind, _ in contents(ledger)][-1] == "not-released"


def test_a_refusal_that_could_depend_on_data_costs_everything(tmp_path: Path) -> None:
    """Only what is decided by a sample may give anything back."""

    class Peeks(Refuses):
        def distribution(self, table: Any) -> NoisySum:
            raise hm.NotReleased("there are few", epsilon=0.0, delta=0.0, rho=Fraction(0))

    with opened(tmp_path / "l.sqlite") as ledger:
        assert refused(ledger, mechanism=Peeks(epsilon=0.0)).epsilon == 1.0
        assert ledger.dataset("d").spent.loss == 1


def test_too_few_users_where_their_number_is_public_cost_nothing(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(few_users(), tmp_path / "d.parquet")
    with opened(tmp_path / "l.sqlite", neighbors="replace-user") as ledger:
        for by in ({}, {"by": "g", "keys": [1]}):
            data = str(tmp_path / "d.parquet")
            if by:
                data = str(tmp_path / "g.parquet")
                pq.write_table(few_users().append_column("g", pa.array([1] * 6)), data)
            refusal = refused(ledger, data=data, neighbors="replace-user", **by, question=repr(by))
            assert "there are 6" in str(refusal)
            assert "nothing was spent" in str(refusal)
        assert ledger.dataset("d").spent == Cost(loss=Decimal(0), delta=Decimal(0))
        assert ledger.verify().sound


def test_a_refund_that_cannot_be_written_leaves_the_whole_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "l.sqlite") as ledger:

        def lost(*_: Any, **__: Any) -> Any:
            raise hm.LedgerUnavailable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(type(ledger), "conclude", lost)
            refusal = refused(ledger)
        assert refusal.epsilon == 1.0
        assert "all of the charge stands" in str(refusal)
        assert ledger.dataset("d").spent.loss == 1
        assert ledger.verify().sound


# --- the guarantee, by complete enumeration ---------------------------------------------------------------------------


def transcripts(
    totals: Callable[[float], float], bits: dict[int, int]
) -> Iterator[tuple[float, tuple[Any, ...]]]:
    """(probability, transcript) of an analyst against a ledger, for users with these bits.

    The total is 1. A release is charged 1 for two steps: randomized response about bit 0 with epsilon 0.4, which ends
    the release on an answer of 0, then one about bit 1 with 0.6. With whatever a refusal leaves of the total, as
    `totals` says of what was spent, the analyst asks about bit 2.
    """

    def answers(bit: int, epsilon: float) -> Iterator[tuple[float, int]]:
        truth = 1.0 / (1.0 + math.exp(-epsilon))
        yield truth, bit
        yield 1.0 - truth, 1 - bit

    for first_chance, first in answers(bits[0], 0.4):
        if first == 1:
            for second_chance, second in answers(bits[1], 0.6):
                yield first_chance * second_chance, (first, second)
        else:
            for third_chance, third in answers(bits[2], totals(0.4)):
                yield first_chance * third_chance, (first, "refused", third)


def worst_loss(totals: Callable[[float], float]) -> float:
    worst = 0.0
    sides = list(itertools.product((0, 1), repeat=3))
    for here, there in itertools.product(sides, sides):  # one user may have any bits
        one, other = (
            {transcript: chance for chance, transcript in transcripts(totals, dict(enumerate(bits)))}
            for bits in (here, there)
        )
        worst = max(worst, *(abs(math.log(one[said] / other[said])) for said in one))
    return worst


def test_an_analyst_who_spends_refunds_stays_within_the_total() -> None:
    left = Cost(loss=Decimal(1), delta=Decimal(0))
    whole = PrivacyCost(epsilon=1.0, delta=0.0)

    def by_ledger(used: float) -> float:
        stays = COMPOSITIONS["basic"].cost_of_part(whole, PrivacyCost(epsilon=used, delta=0.0), 1)
        return float((left - stays).loss)

    assert worst_loss(by_ledger) == pytest.approx(1.0)
    assert worst_loss(lambda used: 1.0) > 1.35  # a refund of the whole charge would be found


# --- concentrated budgets in epsilon ----------------------------------------------------------------------------------


def test_the_epsilon_of_a_part_bounds_all_ends_together() -> None:
    """Two Gaussian steps, the second only if the first is low; the hockey stick with the epsilon of each end."""
    epsilon, delta = 1.0, 1e-4
    rho = largest_rho(epsilon, delta)
    grid = np.linspace(-12.0, 14.0, 52_001)
    step = grid[1] - grid[0]
    for share in (0.05, 0.3, 0.6, 0.95):
        ends = [float(epsilon_of_part(epsilon, delta, Fraction(part))) for part in (share * rho, rho)]
        assert share * rho < ends[0] < ends[1] == epsilon
        first, second = (math.sqrt(2.0 * part * rho) for part in (share, 1.0 - share))
        for stop in (-1.0, 0.0, first, 2.0, 3.5):
            p, q = (np.exp(-((grid - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (first, 0.0))
            low = grid < stop
            ended = np.maximum(p - math.exp(ends[0]) * q, 0.0)[~low].sum() * step
            # Those who go on have one more Gaussian: their loss is that of one step with both shifts.
            loss = first * (grid[low] - first / 2)
            rest = (epsilon - loss) / second - second / 2 if second else np.where(loss > epsilon, -40.0, 40.0)
            upper = np.array([0.5 * math.erfc(one / math.sqrt(2)) for one in rest])
            shifted = np.array([0.5 * math.erfc((one + second) / math.sqrt(2)) for one in rest])
            went_on = (p[low] * upper - math.exp(epsilon) * q[low] * shifted).sum() * step
            assert ended + went_on <= delta * 1.0001


def test_the_epsilon_of_a_part_is_between_what_conversion_costs_and_the_whole() -> None:
    for epsilon, delta in itertools.product((0.01, 0.5, 1.0, 8.0), (1e-9, 1e-5, 1e-2)):
        rho = largest_rho(epsilon, delta)
        parts = [float(epsilon_of_part(epsilon, delta, Fraction(rho) * k / 8)) for k in range(9)]
        assert parts == sorted(parts)
        assert 0 <= parts[0] < parts[-1] == epsilon
        budget = PrivacyBudget.concentrated(epsilon, delta)
        whole = PrivacyCost(epsilon=epsilon, delta=delta)
        assert budget.used_by(Fraction(0), whole) == PrivacyCost(epsilon=0.0, delta=0.0, rho=Fraction(0))
        half = budget.used_by(budget.total / 2, whole)
        assert half.delta == delta
        assert parts[4] <= half.epsilon <= min(epsilon, parts[4] * 1.00001)
        assert half.rho == budget.total / 2


def test_steps_in_a_concentrated_budget_give_back_half_of_epsilon_at_most(tmp_path: Path) -> None:
    """Many columns: their steps are accounted for in rho; a ledger of epsilons keeps what conversion costs."""
    columns = [f"v{number}" for number in range(12)]
    values = np.random.default_rng(5).normal(size=(150, len(columns)))
    data = pa.table({"u": np.arange(150), **{name: values[:, k] for k, name in enumerate(columns)}})
    spent = {}
    for composition in COMPOSITIONS:
        with opened(tmp_path / f"{composition}.sqlite", composition) as ledger:
            refusal = refused(ledger, data=data, value=columns, delta=1e-6)
            assert refusal.rho is not None
            spent[composition] = ledger.dataset("d").spent
            assert ledger.verify().sound
            if composition == "concentrated":
                assert Fraction(spent[composition].loss) >= refusal.rho
                assert spent[composition].delta == 0
                assert Fraction(spent[composition].loss) < Fraction(largest_rho(1.0, 1e-6)) / 10
            else:
                assert Decimal("0.4") < spent[composition].loss < Decimal("0.6")
                assert spent[composition].delta == Decimal("1e-6")
