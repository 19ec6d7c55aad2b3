"""All that was measured, in one file of JSON, so that parts can be measured one by one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from federated.attacks import ATTACKS, DIRECTED, NO_ATTACK
from federated.training import Rate, Setting


def judging_attacks(setting: Setting) -> tuple[str, ...]:
    return ATTACKS if setting.hostile else (NO_ATTACK,)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """How a contestant is run in a setting. `score` is its least accuracy while tuning; None if nothing was tuned."""

    setting: Setting
    contestant: str
    rate: Rate
    score: float | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Attributes:
    finals: accuracy after the last round, per seed.
    rounds: accuracy after each round, mean over seeds.
    broken: "" or why training ended early.
    """

    setting: Setting
    contestant: str
    attack: str
    finals: list[float]
    rounds: list[float]
    broken: str

    @property
    def mean(self) -> float:
        return statistics.fmean(self.finals)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return statistics.stdev(self.finals)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """How far a rule written down here is from the package that it describes, on random updates."""

    rule: str
    package: str
    cases: int
    difference: float


@dataclass(frozen=True, kw_only=True)
class WageRun:
    """The wage regression by one method; R^2 per seed."""

    method: str
    what: str
    scores: list[float]


@dataclass(kw_only=True)
class Results:
    tuned: list[Tuned] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    wages: list[WageRun] = field(default_factory=list)

    def settings(self) -> list[Setting]:
        return sorted({row.setting for row in self.measured}, key=lambda one: one.order)

    def of(self, setting: Setting, contestant: str) -> list[Measured]:
        return [row for row in self.measured if row.setting == setting and row.contestant == contestant]

    def missing(self, setting: Setting, contestant: str) -> list[str]:
        """Return the attacks under which a contestant was not judged."""
        found = {row.attack for row in self.of(setting, contestant)}
        return [attack for attack in judging_attacks(setting) if attack not in found]

    def choice(self, setting: Setting, contestant: str) -> Tuned | None:
        found = (row for row in self.tuned if (row.setting, row.contestant) == (setting, contestant))
        return next(found, None)

    def rate(self, setting: Setting, contestant: str) -> Rate | None:
        found = self.choice(setting, contestant)
        return None if found is None else found.rate

    def worst(self, setting: Setting, contestant: str, attacks: Sequence[str] = DIRECTED) -> Measured | None:
        """The one of these attacks that leaves the least accuracy, or the run without attack if there is none."""
        kept = [row for row in self.of(setting, contestant) if row.attack in (*attacks, NO_ATTACK)]
        return min(kept, key=lambda row: row.mean, default=None)

    def replace(self, tuned: Sequence[Tuned], measured: Sequence[Measured]) -> None:
        """Put rows in the place of older ones of the same settings and contestants."""
        new = {(row.setting, row.contestant) for row in tuned}
        self.tuned = [row for row in self.tuned if (row.setting, row.contestant) not in new] + [*tuned]
        kept = [row for row in self.measured if (row.setting, row.contestant) not in new]
        self.measured = [*kept, *measured]


_ROWS: dict[str, Any] = {"tuned": Tuned, "measured": Measured, "checked": Checked, "wages": WageRun}


def write(path: Path, results: Results) -> None:
    """One line per row, so that a change of one part is a small one of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"kind": kind} | asdict(row)) for kind in _ROWS for row in getattr(results, kind)]
    new = path.with_name(path.name + ".new")  # a run may be stopped here
    new.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    new.replace(path)


def read(path: Path) -> Results:
    results = Results()
    for row in json.loads(path.read_text()) if path.exists() else []:
        kind = row.pop("kind")
        if "setting" in row:
            row["setting"] = Setting(**row["setting"])
        if "rate" in row:
            row["rate"] = Rate(**row["rate"])
        getattr(results, kind).append(_ROWS[kind](**row))
    return results
