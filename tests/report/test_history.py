"""Budgets over time, and refusals, on the page of a ledger."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import hubermean as hm
from hubermean.report.history import draw_history
from hubermean.report.ledger_export import export_ledger
from hubermean.report.ledger_page import ledger_page


def test_what_is_left_goes_down_with_each_charge_and_up_with_a_refund(tmp_path: Path) -> None:
    people = {"user": list(range(300)), "value": [float(one % 11) for one in range(300)]}
    pd = pytest.importorskip("pandas")
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        book.init("trips", epsilon=2.0, user="user")
        book.spend("trips", epsilon=0.5)
        with pytest.raises(hm.NotReleased):
            hm.mean(
                pd.DataFrame(people), user="user", value="value", epsilon=0.01, ledger=book, dataset="trips"
            )
        with pytest.raises(hm.BudgetExhausted):
            book.spend("trips", epsilon=1.9, note="too much", by_whom="ana")
        exported = export_ledger(book)
        left = float(book.dataset("trips").left.loss)
    spent = [Decimal(line["spent"]) for line in exported["history"]]
    assert spent[:3] == [0, Decimal("0.5"), Decimal("0.51")]
    assert float(2 - spent[3]) == left
    assert Decimal("0.5") < spent[3] < spent[2]
    assert all(line["at"] for line in exported["history"])  # that of its charge, for a refund
    (refusal,) = exported["refusals"]
    assert (refusal["by_whom"], refusal["what"], refusal["loss"]) == ("ana", "too much", "1.9")
    page = ledger_page(exported)
    assert page.count('class="chart history"') == 1
    assert "A release was refused once" in page
    assert "too much" in page


def test_a_history_that_cannot_be_drawn_is_left_out() -> None:
    one = ("2026-01-01T00:00:00+00:00", Decimal(1))
    assert draw_history([one], total=Decimal(2), name="a", title="left") == ""
    assert draw_history([one, ("once", Decimal(1))], total=Decimal(2), name="a", title="left") == ""
    drawn = draw_history([one, one, one], total=Decimal(2), name="a", title="<left>")
    assert "&lt;left&gt;" in drawn
    assert "nan" not in drawn.lower()
