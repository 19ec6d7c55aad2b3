"""The ledger: every release is charged first, charges never pass the total, and the same question costs nothing."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import math
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from hubermean.ledger import store
from hubermean.ledger.amounts import Cost, as_written, exponential, parsed, plain, upward
from hubermean.ledger.composition import COMPOSITIONS, changes_between
from hubermean.ledger.recorded import kept_as, restored
from hubermean.mechanisms import Clipped, Outcome
from hubermean.privacy import largest_rho
from hubermean.relations import Neighbors
from hubermean.spending import Price, not_above

TRIPS = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0], "city": ["a", "b", "a", "b"]})
ASK: dict[str, Any] = {"user": "rider", "value": "fare", "bounds": (0, 100), "per": "user"}


@pytest.fixture
def ledger(place: str) -> Iterator[hm.Ledger]:
    with hm.Ledger(place) as made:
        made.init("trips", epsilon=1.0, delta=1e-5)
        yield made


def ask(ledger: Any, epsilon: float = 0.25, **more: Any) -> Any:
    data = more.pop("data", TRIPS)
    return hm.mean(data, **{**ASK, "ledger": ledger, "dataset": "trips", "epsilon": epsilon, **more})


def kinds(ledger: hm.Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def spent(ledger: hm.Ledger) -> Decimal:
    return ledger.dataset("trips").spent.loss


# --- charging ---------------------------------------------------------------------------------------------------------


def test_a_release_is_charged_and_recorded(ledger: hm.Ledger) -> None:
    release = ask(ledger, 0.25)
    assert kinds(ledger) == ["opened", "charged", "released"]
    assert spent(ledger) == Decimal("0.25")
    assert release.receipt.charged == "epsilon = 0.25"
    assert release.receipt.left == "epsilon = 0.75, delta = 1e-05"
    assert json.loads(release.to_json())["ledger"]["entry"] == 3
    assert "0.25 charged" in repr(release)
    assert ledger.verify().sound


def test_ten_tenths_are_one(ledger: hm.Ledger) -> None:
    for number in range(10):
        ask(ledger, 0.1, question=f"number {number}")
    assert spent(ledger) == 1
    with pytest.raises(hm.BudgetExhausted, match="nothing more can be released"):
        ask(ledger, 1e-9)


def test_what_does_not_fit_is_refused_before_the_data_is_read(ledger: hm.Ledger) -> None:
    ask(ledger, 0.75)

    class Unread:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise AssertionError("the data was read")

    with pytest.raises(
        hm.BudgetExhausted, match=r"has epsilon = 0\.25, .* left, and epsilon = 0\.5 was"
    ) as error:
        ask(ledger, 0.5, data=Unread())
    assert (error.value.exit_code, error.value.epsilon, error.value.delta) == (3, 0.25, 1e-5)
    assert kinds(ledger)[-1] == "refused"
    assert spent(ledger) == Decimal("0.75")
    assert ask(ledger, 0.25, question="what is left").receipt.left.startswith("epsilon = 0,")
    assert ledger.verify().sound


def test_delta_is_a_budget_of_its_own(ledger: hm.Ledger) -> None:
    ask(ledger, 0.1, delta=8e-6)
    with pytest.raises(hm.BudgetExhausted):
        ask(ledger, 0.1, delta=3e-6)
    ask(ledger, 0.1, delta=2e-6)


def test_the_charge_is_on_disk_before_the_mechanism_runs(place: str) -> None:
    """Looked at from another connection, while the mechanism runs."""
    seen: list[list[str]] = []

    class Watching(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            inner = super().prepare(request, facts)

            class Run:
                def run(self, table: Any, noise: Any) -> Any:
                    with hm.Ledger(place) as other:
                        seen.append(kinds(other))
                    return inner.run(table, noise)

            return Run()

    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=1)
        hm.mean(
            TRIPS,
            user="rider",
            value="fare",
            per="user",
            epsilon=1,
            mechanism=Watching(bounds=(0, 1)),
            ledger=ledger,
            dataset="trips",
        )
        assert seen == [["opened", "charged"]]
        assert kinds(ledger) == ["opened", "charged", "released"]


class Failing(Clipped):
    error: BaseException = RuntimeError("inner")

    def prepare(self, request: Any, facts: Any) -> Any:
        error = self.error

        class Run:
            def run(self, table: Any, noise: Any) -> Any:
                raise error

        return Run()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("a value: 12.5"), "failed"),
        (KeyboardInterrupt(), "failed"),
        (hm.NotReleased("no; raise epsilon", epsilon=0.5, delta=0.0), "not-released"),
    ],
)
def test_what_fails_or_is_refused_costs_what_it_was_charged(
    ledger: hm.Ledger, error: BaseException, kind: str
) -> None:
    mechanism = Failing(bounds=(0, 1))
    object.__setattr__(mechanism, "error", error)
    with pytest.raises(type(error)):
        ask(ledger, 0.5, mechanism=mechanism, bounds=None)
    assert kinds(ledger) == ["opened", "charged", kind]
    assert spent(ledger) == Decimal("0.5")
    assert not any("12.5" in entry.body for entry in ledger.entries())
    assert ledger.verify().sound


def test_bad_input_costs_nothing(ledger: hm.Ledger, tmp_path: Path) -> None:
    for changed in (
        {"value": "nothing"},
        {"bounds": (1, 0)},
        {"epsilon": -1},
        {"data": str(tmp_path / "none.csv")},
        {"neighbors": "friends"},
    ):
        with pytest.raises(hm.InputError):
            ask(ledger, **changed)  # type: ignore[arg-type]
    assert kinds(ledger) == ["opened"]


# --- the same question ------------------------------------------------------------------------------------------------


def test_the_same_question_is_answered_from_the_record(ledger: hm.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "trips.parquet"
    pq.write_table(TRIPS, path)
    first = ask(ledger, data=path)
    again = ask(ledger, data=str(path))
    assert again == first
    assert again.interval() == first.interval()
    assert again.interval(0.9) == first.interval(0.9)
    assert again.receipt.again
    assert "nothing was charged" in repr(again)
    assert spent(ledger) == Decimal("0.25")
    with pytest.raises(hm.InputError, match=r"levels 0\.5, 0\.8, 0\.9, 0\.95, 0\.99 alone"):
        again.interval(0.123)
    assert ask(ledger, data=path, fresh=True).receipt.again is False
    assert spent(ledger) == Decimal("0.5")


def test_the_record_answers_without_the_data(ledger: hm.Ledger, tmp_path: Path) -> None:
    """Not even whether the file has changed may decide, since that would tell about what is in it."""
    path = tmp_path / "trips.parquet"
    pq.write_table(TRIPS, path)
    first = ask(ledger, data=path)
    path.unlink()
    assert ask(ledger, data=path) == first


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.2},
        {"delta": 1e-9},
        {"value": "rider", "user": "fare"},
        {"bounds": (0, 101)},
        {"neighbors": "replace-values"},
        {"non_finite": "clamp"},
        {"resolution": 0.5},
        {"by": "city", "keys": ["a"], "mechanism": "clipped"},
        {"mechanism": "clipped"},
        {"question": "another"},
        {"data": TRIPS.slice(1)},
        {"data": TRIPS.slice(0)},
    ],
    ids=str,
)
def test_another_question_is_charged(place: str, changed: dict[str, Any]) -> None:
    with hm.Ledger(place) as ledger:
        # About values, so that all relations may ask.
        ledger.init("trips", epsilon=5, delta=1e-5, neighbors="replace-values")
        ask(ledger)
        if "user" in changed:
            with pytest.raises(hm.InputError, match="a user is told by rider"):
                ask(ledger, **changed)
            return
        other = ask(ledger, **changed)
        assert not other.receipt.again
        assert kinds(ledger).count("charged") == 2


def test_frames_are_the_same_while_they_are_the_same_object_or_named(ledger: hm.Ledger) -> None:
    frame = pl.from_arrow(TRIPS)
    first = ask(ledger, data=frame)
    assert ask(ledger, data=frame) == first
    assert not ask(ledger, data=pl.from_arrow(TRIPS)).receipt.again
    named = ask(ledger, data=pl.from_arrow(TRIPS), question="all trips")
    assert ask(ledger, data=frame, question="all trips") == named


@dataclass(frozen=True)
class Rounding:
    """A number whose repr does not tell it from others near it, like those in an array or a series."""

    number: float

    def __iter__(self) -> Iterator[float]:
        return iter((0.0, self.number))

    def __repr__(self) -> str:
        return f"{self.number:.3f}"


@dataclass(frozen=True)
class Own(Clipped):
    """A mechanism of the caller's own, whose code may be another tomorrow."""


@pytest.mark.parametrize(
    "nearly_the_same",
    [
        lambda end: {"bounds": [np.array([0.0, end])]},
        lambda end: {"bounds": (Fraction(0), Fraction(end))},
        lambda end: {"bounds": pd.Series([0.0, end]).to_numpy()},
        lambda end: {"bounds": [pd.Series([0.0, end])]},
        lambda end: {"bounds": Rounding(end)},
        lambda end: {"bounds": None, "mechanism": Clipped(bounds=np.array([0.0, end]))},  # type: ignore[arg-type]
        lambda end: {"bounds": None, "mechanism": Clipped(bounds=(0.0, end))},
        lambda end: {"bounds": None, "mechanism": Own(bounds=(0.0, 100.0))},
    ],
)
def test_questions_that_only_look_the_same_are_charged(
    ledger: hm.Ledger, nearly_the_same: Callable[[float], dict[str, Any]]
) -> None:
    for end in (100.0, 100.0000000001):
        try:
            release = ask(ledger, **nearly_the_same(end))
        except hm.InputError:  # no bounds at all: just as well
            continue
        assert not release.receipt.again


def test_a_mechanism_is_the_same_if_it_says_all_there_is_to_it_or_is_the_same_object(
    ledger: hm.Ledger,
) -> None:
    own = Own(bounds=(0.0, 100.0))
    for first, second in ((Clipped(bounds=(0, 100)), Clipped(bounds=(0, 100))), (own, own)):
        assert not ask(ledger, bounds=None, mechanism=first).receipt.again
        assert ask(ledger, bounds=None, mechanism=second).receipt.again


def test_user_means_are_charged_too(ledger: hm.Ledger) -> None:
    options: dict[str, Any] = {"epsilon": 0.5, "bounds": (0, 10), "ledger": ledger, "dataset": "trips"}
    means = np.array([1.0, 2.0, 3.0])
    first = hm.mean_of_user_means(means, **options)
    assert hm.mean_of_user_means(means, **options) == first
    assert hm.mean_of_user_means([1.0, 2.0], **options).receipt.left.startswith("epsilon = 0,")  # type: ignore[union-attr]


def test_other_counts_of_the_same_means_are_another_question(ledger: hm.Ledger) -> None:
    means, counts = np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1])
    options: dict[str, Any] = {"epsilon": 0.25, "bounds": (0, 10), "record_cap": 9, "per": "record"}

    def asked(counts: Any) -> bool:
        release = hm.mean_of_user_means(means, counts, ledger=ledger, dataset="trips", **options)
        assert release.receipt is not None
        return release.receipt.again

    assert [asked(counts), asked(counts)] == [False, True]
    assert not asked(np.array([1, 1, 9]))
    assert not asked(None)


def test_a_recorded_refusal_is_given_again_at_no_cost(ledger: hm.Ledger) -> None:
    far = np.where(np.arange(500) % 2, 1e3, -1e3)
    options: dict[str, Any] = {
        "mechanism": "tested",
        "threshold": 1.0,
        "radius": 1e4,
        "epsilon": 0.5,
        "delta": 1e-6,
        "ledger": ledger,
        "dataset": "trips",
    }
    with pytest.raises(hm.NotReleased) as first:
        hm.mean_of_user_means(far, **options)
    with pytest.raises(hm.NotReleased, match="recorded in entry 3") as again:
        hm.mean_of_user_means(far, **options)
    assert str(first.value) in str(again.value)
    assert (again.value.epsilon, spent(ledger)) == (0.0, Decimal("0.5"))


def test_many_threads_that_ask_the_same_get_one_answer_afterwards(place: str) -> None:
    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=0.5)
        results: list[Any] = []

        def work() -> None:
            try:
                results.append(ask(ledger, 0.125, question="the same"))
            except hm.BudgetExhausted as error:
                results.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8
        assert spent(ledger) <= Decimal("0.5")
        assert ledger.verify().sound


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
    cost = COMPOSITIONS["basic"].cost(Price(epsilon=0.7, delta=1e-6), 2)
    assert cost.loss == Decimal("1.4")
    true = Fraction(1, 10**6) * (1 + sum(Fraction(7, 10) ** k / math.factorial(k) for k in range(60)))
    assert true <= Fraction(cost.delta) <= true * (1 + Fraction(1, 10**15))
    assert COMPOSITIONS["basic"].cost(Price(epsilon=1e6, delta=1e-6), 2).delta == 1
    assert changes_between(Neighbors.ADD_REMOVE, Neighbors.REPLACE_VALUES) == 2


def test_who_is_a_user_is_decided_once(tmp_path: Path) -> None:
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=9, user=["rider"])
        ledger.init("later", epsilon=9)
        for name in ("trips", "later"):
            if name == "later":
                ask(ledger, dataset=name)
            with pytest.raises(hm.InputError, match="a user is told by rider"):
                ask(ledger, user="city", dataset=name)
            with pytest.raises(hm.InputError, match="a user is told by rider"):
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
        total = total + COMPOSITIONS["basic"].cost(Price(epsilon=epsilon, delta=delta), 1)
    assert Fraction(total.loss) == sum(Fraction(repr(epsilon)) for epsilon, _ in costs)
    assert Fraction(total.delta) == sum(Fraction(repr(delta)) for _, delta in costs)
    assert Cost.read(json.loads(json.dumps(total.to_dict()))) == total


@given(amounts)
def test_a_mechanism_is_tuned_to_no_more_than_is_charged(epsilon: float) -> None:
    assert Fraction(not_above(epsilon)) <= Fraction(as_written(epsilon))
    assert not_above(epsilon) in (epsilon, math.nextafter(epsilon, 0))


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
    price = Price(epsilon=1.23456789, delta=1.98765e-7, rho=rho)

    def worked_out() -> list[Any]:
        limit, cost = how.limit(9.8765432, 1.98765e-5), how.cost(price, changes)
        left = cost.left_of(limit)
        return [limit, cost, left, how.epsilon_left(left), how.as_epsilon(cost, limit), cost.to_dict()]

    expected = worked_out()
    with decimal.localcontext(careless()):
        assert worked_out() == expected


def test_a_release_is_charged_in_full_whatever_the_decimals_of_the_caller(ledger: hm.Ledger) -> None:
    with decimal.localcontext(careless()):
        assert ask(ledger, 0.26789).receipt.charged == "epsilon = 0.26789"
        assert ask(ledger, 0.1234, delta=1e-9, neighbors="add-remove").value is not None
        assert ledger.verify().sound
    assert spent(ledger) == Decimal("0.26789") + 2 * Decimal("0.1234")


@pytest.mark.parametrize("text", ["", "-1", "1e5", "01", "1.0", "NaN", "Infinity", " 1", "1_0", "٣", 1, None])
def test_amounts_are_read_in_one_spelling_only(text: object) -> None:
    with pytest.raises(hm.LedgerDamaged):
        parsed(text)
    assert parsed(plain(Decimal("1e-7"))) == Decimal("1e-7")


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
    from hubermean.mechanisms import Known, PublicFacts, Request, choose
    from hubermean.user_table import UserTable

    generator = np.random.default_rng(3)
    table = UserTable.from_means(generator.normal(size=(20_000, 12)), None)
    request = Request.checked(table.columns, epsilon=1, delta=1e-6, per="user", neighbors="replace-user")
    facts = PublicFacts.of(table, request.neighbors)
    told: dict[str, Known] = {
        "clipped": Known(bounds=(-5.0, 5.0)),
        "tuned": Known(),
        "winsorized": Known(threshold=8.0, radius=1e6),
        "exact": Known(threshold=8.0, radius=100.0),
        "auto": Known(),
    }
    composition = COMPOSITIONS["concentrated"]
    generic = composition.cost(Price(epsilon=1, delta=1e-6), 1)
    for name, known in told.items():
        rho = choose(name, known).prepare(request, facts).concentrated()
        assert rho is not None, name
        cost = composition.cost(Price(epsilon=1, delta=1e-6, rho=rho), 1)
        assert cost.delta == 0
        assert cost.loss < generic.loss / 2
        # What it is charged does pay for the promise: such a rho implies (epsilon, delta).
        if name != "exact":
            assert rho <= Fraction(1.25 * largest_rho(1.0, 1e-6)), name
        four = composition.cost(Price(epsilon=1, delta=1e-6, rho=rho), 2)
        assert four.loss == pytest.approx(4 * cost.loss, rel=Decimal("1e-15"))
    for name, known in {"tested": Known(threshold=8.0, radius=100.0)}.items():
        assert choose(name, known).prepare(request, facts).concentrated() is None


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


# --- what is kept -----------------------------------------------------------------------------------------------------


def releases() -> Iterator[tuple[str, Callable[[], Any]]]:
    generator = np.random.default_rng(5)
    means = generator.normal(5.0, 1.0, (5_000, 2))
    table = pa.table(
        {
            "u": np.arange(4_000),
            "v": generator.normal(size=4_000),
            "day": [datetime.date(2024, 1, 1 + k % 3) for k in range(4_000)],
            "n": generator.integers(0, 3, 4_000),
        }
    )
    yield "one", lambda: hm.mean_of_user_means(means[:, 0], epsilon=1)
    yield "two", lambda: hm.mean_of_user_means(means, epsilon=1, delta=1e-6)
    yield (
        "exact",
        lambda: hm.mean_of_user_means(means[:, 0], epsilon=1, mechanism="exact", threshold=5, radius=100),
    )
    yield "count", lambda: hm.count(table, user="u", epsilon=1)
    common: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 5.0, "bounds": (-3, 3), "per": "user"}
    yield "dates", lambda: hm.mean(table, by="day", delta=1e-6, **common)
    yield "numbers", lambda: hm.mean(table, by="n", keys=[0, 1, 7], **common)
    yield "both", lambda: hm.mean(table, by=["n", "day"], delta=1e-6, **common)
    yield "none", lambda: hm.mean(table.slice(0, 3), by="day", delta=1e-6, **common)


@pytest.mark.parametrize(
    ("name", "make"), list(releases()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_release_comes_back_to_the_last_bit(name: str, make: Callable[[], Any]) -> None:
    release = make()
    back = restored(kept_as(release))
    assert back.to_dict() == json.loads(release.to_json())
    assert repr(back) == repr(release)
    assert back.to_json() == release.to_json()
    if isinstance(release, hm.ReleaseTable):
        assert back.keys == release.keys  # type: ignore[union-attr]
        assert release.to_arrow().equals(back.to_arrow())  # type: ignore[union-attr]


def test_every_kind_of_key_comes_back() -> None:
    from hubermean.ledger.recorded import _key, _restored_key

    for key in ("a", 3, True, 10**30, datetime.date(2024, 2, 29), Decimal("1.50"), uuid.uuid4()):
        back = _restored_key(json.loads(json.dumps(_key(key))))
        assert back == key
        assert type(back) is type(key)


@pytest.mark.parametrize("kept", [{}, {"columns": 3}, {"columns": ["a"], "epsilon": "x"}, {"by": None}])
def test_what_is_no_release_is_damage(kept: dict[str, Any]) -> None:
    with pytest.raises(hm.LedgerDamaged):
        restored(kept)


def test_a_release_that_cannot_be_recorded_is_handed_over_with_a_warning(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise hm.LedgerUnavailable("the disk is full")

    monkeypatch.setattr(ledger, "conclude", full)
    with pytest.warns(hm.NotRecorded, match="entry 2"):
        release = ask(ledger)
    assert math.isfinite(release.value)
    assert kinds(ledger) == ["opened", "charged"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hm.NotRecorded)
        assert not ask(ledger).receipt.again


@pytest.mark.parametrize(
    ("values", "parameters"),
    [
        ((1.5,), {"a": {"b": [1, None, "c", True]}}),
        ((1.5,), {"a": (1, 2)}),
        ((2**60 + 1,), {}),
        ((math.nan,), {}),
        ((1.5,), {"a": {1, 2}}),
        ((1.5,), {"a": [[[[[[1]]]]]]}),
        ((1.5, 2.5), {}),
    ],
    ids=str,
)
def test_what_a_mechanism_of_ones_own_makes_never_damages_a_ledger(
    ledger: hm.Ledger, values: Any, parameters: Any
) -> None:
    """It comes back as it is, or is handed over with a warning that it was not kept."""

    class Odd(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            class Run:
                def run(self, table: Any, noise: Any) -> Any:
                    return Outcome(values=values, parameters=parameters)

            return Run()

    mechanism = Odd(bounds=(0, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = ask(ledger, mechanism=mechanism, bounds=None)
        kept = not caught
        assert first.values is values
        again = ask(ledger, mechanism=mechanism, bounds=None)
    assert again.receipt.again is kept
    if kept:
        assert again.values == first.values
        assert json.loads(again.to_json())["parameters"] == json.loads(json.dumps(parameters))
    assert ledger.verify().sound


# --- looking while others write ---------------------------------------------------------------------------------------


def test_a_ledger_can_be_used_while_its_entries_are_looked_at(ledger: hm.Ledger, place: str) -> None:
    """In the same thread, in another, and by somebody else; also if the rest is never looked at."""
    looking = ledger.entries()
    assert next(looking).kind == "opened"
    ask(ledger, 0.25, question="one")
    thread = threading.Thread(target=ask, args=(ledger, 0.25), kwargs={"question": "two"})
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    with hm.Ledger(place) as other:
        other.spend("trips", epsilon=0.25)
    assert [entry.kind for entry in looking] == ["charged", "released", "charged", "released", "spent"]
    assert ledger.verify().sound


def test_entries_are_read_in_blocks_that_can_be_held(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        ledger.spend("trips", epsilon=0.01, note=f"number {number}")
    everything = list(ledger.entries())
    longest = max(len(entry.body) for entry in everything)
    for characters, held in ((1, [1]), (2 * longest, [2, 3]), (10**9, [len(everything)])):
        monkeypatch.setattr(store, "BLOCK_CHARACTERS", characters)
        with ledger._store.reading() as rows:
            assert len(rows.block(0)) in held
            assert list(rows.entries()) == everything
        assert list(ledger.entries()) == everything
        assert ledger.verify().sound


# --- names, places and the like ---------------------------------------------------------------------------------------


def test_a_total_stays_as_it_is(ledger: hm.Ledger) -> None:
    with pytest.raises(hm.InputError, match="take another name"):
        ledger.init("trips", epsilon=100)
    assert ledger.dataset("trips").epsilon == 1.0


def test_data_sets_do_not_mix(ledger: hm.Ledger) -> None:
    ledger.init("others", epsilon=2.0)
    first = ask(ledger, 1.0)
    other = ask(ledger, 1.0, dataset="others")
    assert not other.receipt.again
    assert [one.name for one in ledger.datasets()] == ["trips", "others"]
    assert first.receipt.left.startswith("epsilon = 0,")
    assert other.receipt.left == "epsilon = 1"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "x" * 201, 3, None, "\u202ecilbup"])
def test_names_are_printable(ledger: hm.Ledger, name: Any) -> None:
    with pytest.raises(hm.InputError):
        ledger.init(name, epsilon=1)
    with pytest.raises(hm.InputError):
        ask(ledger, dataset=name)


@pytest.mark.parametrize("note", [3, None, "x" * 201, "a\nb", b"a"])
def test_a_note_is_a_short_text(ledger: hm.Ledger, note: Any) -> None:
    with pytest.raises(hm.InputError, match="note must be a text"):
        ledger.spend("trips", epsilon=0.1, note=note)
    ledger.spend("trips", epsilon=0.1)


@pytest.mark.parametrize("user", [[], (), "", 3, [3], [""]])
def test_a_user_is_told_by_columns(ledger: hm.Ledger, user: Any) -> None:
    with pytest.raises(hm.InputError):
        ledger.init("others", epsilon=1, user=user)


def test_ledger_and_dataset_go_together(ledger: hm.Ledger) -> None:
    for half in ({"ledger": None}, {"dataset": None}, {"ledger": None, "dataset": None, "fresh": True}):
        with pytest.raises(hm.InputError, match="go together"):
            hm.mean(TRIPS, **{**ASK, "epsilon": 1, "ledger": ledger, "dataset": "trips", **half})
    with pytest.raises(hm.InputError, match="there is no data set 'trip'"):
        ask(ledger, dataset="trip")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("mysql://host/db", "not at mysql://"),
        ("sqlite:///x.sqlite", "without sqlite://"),
        ("postgresql://user:secret@host:notaport/db", "cannot be read"),
        ("postgresql://user:the@secret@host/db", "with %40 for an @"),
        ("postgresql:/user:secret@host/db", "cannot be read"),
        ("Postgres:user:secret@host/db", "cannot be read"),
        (" postgresql://user:secret@host/db", "cannot be read"),
        ("jdbc:postgresql://user:secret@host/db", "cannot be read"),
        ("host=here user=me password=secret", "cannot be read"),
        ("", "a file name or a URL"),
        ("a\x00b", "a file name or a URL"),
        (7, "a file name or a URL"),
    ],
)
def test_places_that_are_none(given: Any, sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence) as error:
        hm.Ledger(given)
    assert "secret" not in str(error.value)


def test_a_password_is_never_shown(postgres: Any) -> None:
    ledger = hm.Ledger(
        f"postgresql://somebody:hunter2@127.0.0.1:{postgres.port}/nowhere?application_name=hunter3"
    )
    assert "hunter" not in repr(ledger)
    with pytest.raises(hm.LedgerUnavailable) as error:
        ledger.datasets()
    assert "hunter" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("my notes, " * 1000)
    for path in (other, text):
        before = path.read_bytes()
        with pytest.raises(hm.HubermeanError):
            hm.Ledger(path).init("trips", epsilon=1)
        with pytest.raises(hm.LedgerDamaged):
            hm.Ledger(path).datasets()
        assert path.read_bytes() == before
    with pytest.raises(hm.InputError, match="there is no ledger"):
        hm.Ledger(tmp_path / "none.sqlite").datasets()
    with pytest.raises(hm.InputError, match="there is no folder"):
        hm.Ledger(tmp_path / "no" / "l.sqlite").init("trips", epsilon=1)
    with pytest.raises(hm.InputError, match="is no file"):
        hm.Ledger(tmp_path).init("trips", epsilon=1)


def test_a_ledger_survives_a_fork(ledger: hm.Ledger) -> None:
    """A connection from before a fork must not be shared by parent and child."""
    ask(ledger, 0.25)
    child = os.fork()
    if child == 0:
        try:
            ledger.spend("trips", epsilon=0.25)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    ledger.spend("trips", epsilon=0.25)
    assert spent(ledger) == Decimal("0.75")
    assert ledger.verify().sound


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


def test_a_query_does_not_make_public_how_many_users_it_finds(ledger: hm.Ledger, tmp_path: Path) -> None:
    """Who is in the result of a query depends on what they hold, so that their number is not public there."""
    pq.write_table(TRIPS, tmp_path / "t.parquet")
    query = hm.sql("select * from t where fare > 11", files=[tmp_path / "t.parquet"])
    for relation in ("replace-user", "replace-values"):
        for call in (
            lambda relation=relation: ask(ledger, data=query, neighbors=relation),
            lambda relation=relation: hm.count(
                query, user="rider", epsilon=0.1, neighbors=relation, ledger=ledger, dataset="trips"
            ),
        ):
            with pytest.raises(hm.InputError, match="takes neighbors='add-remove'"):
                call()
    assert kinds(ledger) == ["opened"]
    release = ask(ledger, 0.25, data=query, neighbors="add-remove")
    assert release.n_users is None
    assert spent(ledger) == Decimal("0.5")


def test_where_warnings_are_errors_the_receipt_says_that_nothing_was_recorded(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise hm.LedgerUnavailable("the disk is full")

    monkeypatch.setattr(ledger, "conclude", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = ask(ledger)
    assert release.receipt.recorded is False
    assert "could not be recorded: keep it" in repr(release)


def test_what_was_spent_is_never_shown_as_more_than_the_total(tmp_path: Path) -> None:
    """The orders of the accountant are few, so that its number may lie above the total it follows from."""
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("trips", epsilon=1, delta=1e-100, composition="concentrated")
        standing = ledger.dataset("trips")
        ledger.spend("trips", epsilon=math.sqrt(2 * float(standing.limit.loss)) * (1 - 1e-9))
        assert ledger.dataset("trips").spent_as_epsilon[0] <= 1


def test_one_ledger_for_all_who_connect_to_a_database(postgres: Any) -> None:
    """A schema of one's own name comes first for that user; the ledger is the same all the same."""
    url = postgres.new_database("schemas")
    with hm.Ledger(url) as ledger:
        ledger.init("trips", epsilon=1)
        with ledger._store.writing() as rows:
            rows.execute(f'CREATE SCHEMA "{postgres.user}"')
    with hm.Ledger(url) as ledger:
        ledger.spend("trips", epsilon=1)
        with pytest.raises(hm.BudgetExhausted):
            ledger.spend("trips", epsilon=1)
