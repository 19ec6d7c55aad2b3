"""What releases cost and how costs add up: exactly, upward, and never past the total."""

from __future__ import annotations

import contextlib
import decimal
import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.ledger_asks import ask, kinds, spent
from hubermean.accounting.budget import PrivacyCost, not_above
from hubermean.accounting.concentrated import largest_rho
from hubermean.ledger.amounts import Cost, as_written, exponential, parse_amount, plain, upward
from hubermean.ledger.composition import COMPOSITIONS, changes_between
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.types.request import Neighbors

# --- relations and users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "release", "factor"),
    [
        ("replace-user", "replace-user", 1),
        ("replace-user", "add-remove", 2),
        ("replace-user", "replace-values", None),
        ("replace-values", "replace-user", 1),
        ("replace-values", "replace-values", 1),
        ("replace-values", "add-remove", 2),
        ("add-remove", "add-remove", 1),
        ("add-remove", "replace-user", None),
        ("add-remove", "replace-values", None),
    ],
)
def test_a_release_pays_for_what_the_total_is_about(
    tmp_path: Path, dataset: str, release: str, factor: int | None
) -> None:
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=1, neighbors=dataset)
        if factor is None:
            with pytest.raises(hm.InputError, match=f"use neighbors='{dataset}'"):
                ask(ledger, 0.25, neighbors=release)
            assert kinds(ledger) == ["opened"]
        else:
            ask(ledger, 0.25, neighbors=release)
            assert spent(ledger) == factor * Decimal("0.25")


def test_two_changes_cost_what_group_privacy_says() -> None:
    """delta (1 + e^epsilon), worked out in exact rationals here."""
    cost = COMPOSITIONS["basic"].cost(PrivacyCost(epsilon=0.7, delta=1e-6), 2)
    assert cost.loss == Decimal("1.4")
    true = Fraction(1, 10**6) * (1 + sum(Fraction(7, 10) ** k / math.factorial(k) for k in range(60)))
    assert true <= Fraction(cost.delta) <= true * (1 + Fraction(1, 10**15))
    assert COMPOSITIONS["basic"].cost(PrivacyCost(epsilon=1e6, delta=1e-6), 2).delta == 1
    assert changes_between(Neighbors.ADD_REMOVE, Neighbors.REPLACE_VALUES) == 2


def test_who_is_a_user_is_decided_once(tmp_path: Path) -> None:
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=9, user=["rider"])
        ledger.init("later", epsilon=9)
        for name in ("trips", "later"):
            if name == "later":
                ask(ledger, dataset=name)
            with pytest.raises(hm.InputError, match="identifies users by rider"):
                ask(ledger, user="city", dataset=name)
            with pytest.raises(hm.InputError, match="identifies users by rider"):
                ask(ledger, user=["rider", "city"], dataset=name)
            assert ledger.dataset(name).users == ("rider",)


def test_what_was_asked_for_in_vain_does_not_decide_who_is_a_user(ledger: hm.Ledger) -> None:
    with pytest.raises(hm.BudgetExhausted):
        ask(ledger, 5.0, user="city")
    assert ledger.dataset("trips").users is None
    ask(ledger, 0.5)
    assert ledger.dataset("trips").users == ("rider",)
    assert ledger.verify().sound


# --- composition ------------------------------------------------------------------------------------------------------

amounts = st.floats(min_value=1e-9, max_value=1e9)
deltas = st.one_of(st.just(0.0), st.floats(min_value=1e-100, max_value=0.9))


@given(st.lists(st.tuples(amounts, deltas), max_size=20))
def test_sums_are_exact(costs: list[tuple[float, float]]) -> None:
    total = Cost(loss=Decimal(0), delta=Decimal(0))
    for epsilon, delta in costs:
        total = total + COMPOSITIONS["basic"].cost(PrivacyCost(epsilon=epsilon, delta=delta), 1)
    assert Fraction(total.loss) == sum(Fraction(repr(epsilon)) for epsilon, _ in costs)
    assert Fraction(total.delta) == sum(Fraction(repr(delta)) for _, delta in costs)
    assert Cost.read(json.loads(json.dumps(total.to_dict()))) == total


@given(amounts)
def test_a_mechanism_is_tuned_to_no_more_than_is_charged(epsilon: float) -> None:
    assert Fraction(not_above(epsilon)) <= Fraction(as_written(epsilon))
    assert not_above(epsilon) in (epsilon, math.nextafter(epsilon, 0))


def test_what_a_mechanism_is_told_is_no_more_than_what_is_charged() -> None:
    """0.1 as a float is a little more than a tenth."""
    told: list[Any] = []

    class Told(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            told.append(request)
            return super().prepare(request, facts)

    data = pa.table({"u": [1, 2, 3], "v": [1.0, 2.0, 3.0], "g": ["a", "a", "b"]})
    common: dict[str, Any] = {"user": "u", "value": "v", "per": "user", "epsilon": 0.1, "delta": 1e-3}
    assert Fraction(0.1) > Fraction("0.1")
    assert Fraction(1e-3) > Fraction("0.001")
    release = hm.mean(data, mechanism=Told(bounds=(0.0, 9.0)), **common)
    assert (release.epsilon, release.delta) == (0.1, 1e-3)
    hm.mean(data, by="g", keys=["a", "b"], max_groups=1, mechanism=Told(bounds=(0.0, 9.0)), **common)
    assert len(told) == 2
    for request in told:
        assert Fraction(request.epsilon) <= Fraction("0.1")
        assert Fraction(request.delta) <= Fraction("0.001")


@given(st.fractions(min_value=0, max_value=10**6))
def test_rounding_is_upward(exact: Fraction) -> None:
    assert exact <= Fraction(upward(exact)) <= exact * (1 + Fraction(1, 10**18))
    power = upward(min(exact, Fraction(700)))
    assert float(exponential(power)) >= math.exp(float(power)) * (1 - 1e-13)


@pytest.mark.parametrize("composition", list(COMPOSITIONS))
@given(charge=st.floats(1e-9, 0.9), tiny=st.floats(0, 1e-9))
@settings(max_examples=25, deadline=None)
def test_what_a_refusal_says_is_left_can_be_spent(
    tmp_path_factory: pytest.TempPathFactory, composition: str, charge: float, tiny: float
) -> None:
    with hm.Ledger(tmp_path_factory.mktemp("l") / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=1, delta=1e-5, composition=composition)
        with contextlib.suppress(hm.BudgetExhausted):
            ledger.spend("trips", epsilon=charge, delta=tiny / 1e4)
            ledger.spend("trips", epsilon=tiny)
        with pytest.raises(hm.BudgetExhausted) as refused:
            ledger.spend("trips", epsilon=100)
        ledger.spend("trips", epsilon=refused.value.epsilon)
        with pytest.raises(hm.BudgetExhausted) as refused:
            ledger.spend("trips", epsilon=0, delta=0.9)
        ledger.spend("trips", epsilon=0, delta=refused.value.delta)
        assert ledger.verify().sound


def test_sums_of_amounts_that_no_request_has_are_damage() -> None:
    long = Cost(loss=Decimal("9" * 990), delta=Decimal(0))
    fine = Cost(loss=Decimal("1e-900"), delta=Decimal(0))
    with pytest.raises(hm.LedgerDamaged):
        long + fine
    with pytest.raises(hm.LedgerDamaged):
        long.left_of(fine)


def careless() -> decimal.Context:
    """What a caller may have set for sums of its own."""
    return decimal.Context(prec=2, rounding=decimal.ROUND_DOWN, traps=[decimal.FloatOperation])


@pytest.mark.parametrize("composition", list(COMPOSITIONS))
@pytest.mark.parametrize("changes", [1, 2])
@pytest.mark.parametrize("rho", [None, Fraction(1, 7)])
def test_what_is_charged_does_not_depend_on_the_decimals_of_the_caller(
    composition: str, changes: int, rho: Fraction | None
) -> None:
    how = COMPOSITIONS[composition]
    privacy_cost = PrivacyCost(epsilon=1.23456789, delta=1.98765e-7, rho=rho)

    def worked_out() -> list[Any]:
        limit, cost = how.limit(9.8765432, 1.98765e-5), how.cost(privacy_cost, changes)
        left = cost.left_of(limit)
        return [limit, cost, left, how.epsilon_left(left), how.as_epsilon(cost, limit), cost.to_dict()]

    expected = worked_out()
    with decimal.localcontext(careless()):
        assert worked_out() == expected


def test_a_release_is_charged_in_full_whatever_the_decimals_of_the_caller(ledger: hm.Ledger) -> None:
    with decimal.localcontext(careless()):
        assert ask(ledger, 0.26789).receipt.charged == "epsilon = 0.26789"
        assert ask(ledger, 0.1234, delta=1e-9).value is not None
        ledger.init("replaced", epsilon=1.0, delta=1e-5, neighbors="replace-user")
        assert ask(ledger, 0.1234, delta=1e-9, dataset="replaced").value is not None
        assert ledger.verify().sound
    assert spent(ledger) == Decimal("0.26789") + Decimal("0.1234")
    assert ledger.dataset("replaced").spent.loss == 2 * Decimal("0.1234")


@pytest.mark.parametrize("text", ["", "-1", "1e5", "01", "1.0", "NaN", "Infinity", " 1", "1_0", "٣", 1, None])
def test_amounts_are_read_in_one_spelling_only(text: object) -> None:
    with pytest.raises(hm.LedgerDamaged):
        parse_amount(text)
    assert parse_amount(plain(Decimal("1e-7"))) == Decimal("1e-7")


def test_concentrated_budgets_go_further_and_hold(tmp_path: Path) -> None:
    """Many small releases: more than basic composition allows, and no more than dp-accounting's own conversion does."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=4, delta=1e-6, composition="concentrated")
        made = 0
        with contextlib.suppress(hm.BudgetExhausted):
            for made in range(100):
                ledger.spend("trips", epsilon=0.1, note=f"number {made}")
        assert 40 < made < 80
        with pytest.raises(hm.BudgetExhausted, match="a pure epsilon of"):
            ledger.spend("trips", epsilon=0.1)
        accountant = RdpAccountant().compose(dp_event.ZCDpEvent(rho=0.005), made)
        assert accountant.get_epsilon(5e-7) <= 4
        assert RdpAccountant().compose(dp_event.ZCDpEvent(rho=0.005), made + 1).get_epsilon(5e-7) > 3.99
        standing = ledger.dataset("trips")
        epsilon, delta = standing.composition.as_epsilon(standing.spent, standing.limit)
        assert epsilon == pytest.approx(Decimal(accountant.get_epsilon(5e-7)), rel=Decimal("1e-6"))
        assert delta == Decimal("5e-7")


def test_the_law_of_a_mechanism_is_charged_where_it_is_known() -> None:
    """Gaussian noise and concentrated steps at their rho, which is less than (epsilon, delta) tells of itself."""
    from hubermean.data.user_table import UserTable
    from hubermean.mechanisms.registry import resolve_mechanism
    from hubermean.types.options import PublicParameters
    from hubermean.types.request import PublicFacts, Request

    generator = np.random.default_rng(3)
    table = UserTable.from_means(generator.normal(size=(20_000, 12)), None)
    request = Request.checked(table.columns, epsilon=1, delta=1e-6, per="user", neighbors="replace-user")
    facts = PublicFacts.of(table, request.neighbors)
    told: dict[str, PublicParameters] = {
        "clipped": PublicParameters(bounds=(-5.0, 5.0)),
        "adaptive": PublicParameters(),
        "norm-clipping": PublicParameters(),
        "winsorized": PublicParameters(threshold=8.0, radius=1e6),
        "inverse-sensitivity": PublicParameters(threshold=8.0, radius=100.0),
        "auto": PublicParameters(),
    }
    composition = COMPOSITIONS["concentrated"]
    generic = composition.cost(PrivacyCost(epsilon=1, delta=1e-6), 1)
    for name, known in told.items():
        rho = resolve_mechanism(name, known).prepare(request, facts).concentrated()
        assert rho is not None, name
        cost = composition.cost(PrivacyCost(epsilon=1, delta=1e-6, rho=rho), 1)
        assert cost.delta == 0
        assert cost.loss < generic.loss / 2
        # What it is charged does pay for the guarantee: such a rho implies (epsilon, delta).
        if name != "inverse-sensitivity":
            assert rho <= Fraction(1.25 * largest_rho(1.0, 1e-6)), name
        four = composition.cost(PrivacyCost(epsilon=1, delta=1e-6, rho=rho), 2)
        assert four.loss == pytest.approx(4 * cost.loss, rel=Decimal("1e-15"))


@pytest.mark.parametrize(("neighbors", "generic_share"), [("replace-user", 0.2), ("add-remove", 0.45)])
def test_propose_test_release_is_charged_its_rho_and_delta(neighbors: str, generic_share: float) -> None:
    """Far less than half the square of epsilon, and at least what the noise costs; two changes cost what they did."""
    from hubermean.data.user_table import UserTable
    from hubermean.mechanisms.registry import resolve_mechanism
    from hubermean.types.options import PublicParameters
    from hubermean.types.request import PublicFacts, Request

    table = UserTable.from_means(np.zeros((20_000, 12)), None)
    request = Request.checked(table.columns, epsilon=1, delta=1e-6, per="user", neighbors=neighbors)
    known = PublicParameters(threshold=8.0, radius=100.0)
    prepared: Any = resolve_mechanism("propose-test-release", known).prepare(
        request, PublicFacts.of(table, request.neighbors)
    )
    plan = prepared.plan_at(20_000)
    composition = COMPOSITIONS["concentrated"]
    booked = PrivacyCost(
        epsilon=1, delta=1e-6, rho=prepared.concentrated(), rho_delta=prepared.concentrated_delta()
    )
    generic = PrivacyCost(epsilon=1, delta=1e-6)
    cost = composition.cost(booked, 1)
    assert cost.delta == as_written(1e-6)
    assert Fraction(plan.test.alpha) ** 2 / 2 <= Fraction(cost.loss)
    assert cost.loss <= Decimal(generic_share) * composition.cost(generic, 1).loss
    assert composition.cost(booked, 2) == composition.cost(generic, 2)
    part = PrivacyCost(epsilon=0.04, delta=0.0, rho=Fraction(8, 10_000))
    assert composition.cost_of_part(booked, part, 1).delta == 0
    assert composition.cost_of_part(booked, part, 2) == composition.cost(replace(part, rho=None), 2)


@pytest.mark.parametrize("rho", [Fraction(-1), -1, 0.5, math.nan, math.inf, "1", Decimal(1)])
def test_a_mechanism_cannot_pay_less_than_nothing(tmp_path: Path, rho: Any) -> None:
    class Own(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            prepared = super().prepare(request, facts)
            object.__setattr__(prepared, "concentrated", lambda: rho)
            return prepared

    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=1, delta=1e-6, composition="concentrated")
        with pytest.raises(hm.InputError, match="must return a Fraction of 0 or more"):
            ask(ledger, 0.1, mechanism=Own(bounds=(0, 1)), bounds=None)
        assert kinds(ledger) == ["opened"]


def test_concentrated_needs_a_delta(tmp_path: Path) -> None:
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        with pytest.raises(hm.InputError, match="total delta > 0"):
            ledger.init("trips", epsilon=1, composition="concentrated")
        with pytest.raises(hm.InputError, match="composition must be"):
            ledger.init("trips", epsilon=1, composition="advanced")


@settings(max_examples=30, deadline=None)
@given(
    charges=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1e-4)), max_size=12),
    total=st.floats(0.1, 5),
)
def test_no_order_of_charges_passes_the_total(
    tmp_path_factory: pytest.TempPathFactory, charges: list[tuple[float, float]], total: float
) -> None:
    with hm.Ledger(tmp_path_factory.mktemp("l") / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=total, delta=1e-4)
        loss, delta = Fraction(0), Fraction(0)
        for epsilon, more in charges:
            fits = loss + Fraction(repr(epsilon)) <= Fraction(repr(total)) and delta + Fraction(
                repr(more)
            ) <= Fraction("1e-4")
            try:
                ledger.spend("trips", epsilon=epsilon, delta=more)
                assert fits
                loss, delta = loss + Fraction(repr(epsilon)), delta + Fraction(repr(more))
            except hm.BudgetExhausted:
                assert not fits
        assert Fraction(spent(ledger)) == loss
        assert ledger.verify().sound


def test_what_was_spent_is_never_shown_as_more_than_the_total(tmp_path: Path) -> None:
    """The orders of the accountant are few, so that its number may lie above the total it follows from."""
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=1, delta=1e-100, composition="concentrated")
        standing = ledger.dataset("trips")
        ledger.spend("trips", epsilon=math.sqrt(2 * float(standing.limit.loss)) * (1 - 1e-9))
        assert ledger.dataset("trips").spent_as_epsilon[0] <= 1
