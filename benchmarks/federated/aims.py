"""What is aimed at, and whether it was reached; and where the Huber center is ahead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from federated.attacks import ATTACKS, DIRECTED
from federated.contestants import DEFAULT, PRIVATE_BASELINES
from federated.results import Measured, Results
from federated.training import Setting

CENTRAL = ("MNIST", "softmax", "iid")
NO_ATTACK_AIM, ATTACK_AIM, ATTACK_SHARE = 0.895, 0.868, 0.2
WITHIN = 0.01
WAGE_AIM = 0.33
TUNED = ("hubermean, small clip", "hubermean, Huber center", "hubermean, adaptive")
OURS = (DEFAULT, *TUNED)
HUBER = "hubermean, Huber center"
SMALL = "hubermean, small clip"
_TIE = 0.002
"""Differences below a fifth of a point are called a tie, whatever their error."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    aim: str
    found: str
    word: str


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two contestants under the worst directed attack of each, on the same seeds."""

    difference: float
    error: float

    @classmethod
    def of(cls, one: Measured, other: Measured) -> Compared:
        gaps = [a - b for a, b in zip(one.finals, other.finals, strict=True)]
        return cls(difference=statistics.fmean(gaps), error=statistics.stdev(gaps) / math.sqrt(len(gaps)))

    @property
    def word(self) -> str:
        if abs(self.difference) <= max(_TIE, 2.0 * self.error):
            return "ties"
        return "ahead" if self.difference > 0.0 else "behind"

    def __str__(self) -> str:
        return f"{self.word} ({100 * self.difference:+.1f} ± {100 * self.error:.1f})"


def best_of(
    results: Results, setting: Setting, names: Sequence[str], attacks: Sequence[str] = DIRECTED
) -> Measured | None:
    """The contestant with the most accuracy under its worst attack."""
    rows = [row for name in names if (row := results.worst(setting, name, attacks)) is not None]
    return max(rows, key=lambda row: row.mean, default=None)


def compare(results: Results, setting: Setting, one: str, others: Sequence[str]) -> Compared | None:
    """Compare one contestant with the best of others."""
    first, second = results.worst(setting, one), best_of(results, setting, others)
    return Compared.of(first, second) if first and second else None


def percent(row: Measured) -> str:
    return f"{row.mean:.1%} ± {row.spread:.1%}"


def verdicts(results: Results) -> list[Verdict]:
    central = {
        one.hostile: one for one in results.settings() if (one.images, one.model, one.split) == CENTRAL
    }
    found = []
    for share, aim, what in (
        (0.0, NO_ATTACK_AIM, "no attack"),
        (ATTACK_SHARE, ATTACK_AIM, f"{ATTACK_SHARE:.0%} hostile, worst attack"),
    ):
        if share in central:
            found += [
                _at_least(f"MNIST, softmax, iid, {what}: {name}", row, aim)
                for name in OURS
                if (row := results.worst(central[share], name, ATTACKS)) is not None
            ]
    found += [_not_behind(results, one) for one in results.settings() if _is_hard(one)]
    found.append(_near_tuned(results))
    private = [row for row in results.wages if row.method == DEFAULT]
    for row in private:
        mean = statistics.fmean(row.scores)
        found.append(
            Verdict(
                aim=f"wages, epsilon = 1: R² at least {WAGE_AIM}",
                found=f"{mean:.3f} ± {statistics.stdev(row.scores):.3f}",
                word=_word(mean >= WAGE_AIM),
            )
        )
    return found


def _word(met: bool) -> str:
    return "met" if met else "**missed**"


def _at_least(what: str, row: Measured, aim: float) -> Verdict:
    attack = "" if row.attack == "none" else f" ({row.attack})"
    return Verdict(
        aim=f"{what}: at least {aim:.1%}", found=f"{percent(row)}{attack}", word=_word(row.mean >= aim)
    )


def _is_hard(setting: Setting) -> bool:
    return setting.split == "two-shard" or setting.hostile >= 0.4


def _not_behind(results: Results, setting: Setting) -> Verdict:
    best = best_of(results, setting, TUNED)
    against = compare(results, setting, best.contestant, PRIVATE_BASELINES) if best else None
    aim = f"{setting.name}: not behind the best private baseline"
    if best is None or against is None:
        return Verdict(aim=aim, found="not measured", word="")
    return Verdict(
        aim=aim, found=f"{best.contestant}: {against} points", word=_word(against.word != "behind")
    )


def behind_tuned(results: Results, setting: Setting) -> float | None:
    """Return how far the defaults are behind the best tuned contestant of ours, both under their worst attack."""
    if any(results.worst(setting, name) is None for name in TUNED):
        return None  # the best may be the one that is missing
    untuned, best = results.worst(setting, DEFAULT), best_of(results, setting, TUNED)
    return best.mean - untuned.mean if untuned and best else None


def _near_tuned(results: Results) -> Verdict:
    gaps = [gap for one in results.settings() if (gap := behind_tuned(results, one)) is not None]
    near = sum(gap <= WITHIN for gap in gaps)
    return Verdict(
        aim=f"{DEFAULT}: within {100 * WITHIN:g} point of the best tuned in every setting",
        found=f"in {near} of {len(gaps)} settings; at most {100 * max(gaps, default=0.0):.1f} points behind",
        word=_word(near == len(gaps)) if gaps else "",
    )
