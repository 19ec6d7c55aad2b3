"""A sample of the hopeless requests of `benchmarks/realdata/refusals.py`: what they cost adds up."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import hubermean as hm
from realdata.refusals import cases, run


def test_hopeless_requests_cost_what_they_state(tmp_path: Path) -> None:
    chosen = list(cases())
    assert len(chosen) >= 300
    with hm.Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.init("d", epsilon=1e6, delta=0.5)
        ledger.init("d, users public", epsilon=1e6, delta=0.5, neighbors="replace-user")
        ended = [run(case, ledger, str(number)) for number, case in enumerate(chosen[::13])]
        assert ledger.verify().sound
        spent = sum((one.spent.loss for one in ledger.datasets()), Decimal(0))
    assert spent == sum((Decimal(repr(one.spent)) for one in ended), Decimal(0))
    assert {one.outcome for one in ended} == {"refused", "ended early", "released"}
    # Where their number is public or estimated, too few users are refused before the charge.
    known = [one for one in ended if "n_users" in one.how or "replace-user" in one.how]
    assert not any("too few" in one.reason for one in known if one.outcome == "ended early")
    assert sum(one.spent for one in ended if one.outcome == "ended early") < 0.8 * sum(
        one.epsilon for one in ended if one.outcome == "ended early"
    )
