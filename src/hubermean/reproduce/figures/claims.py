"""The paper's claims about its figures, one by one, each with numbers and a verdict.

A claim compares the Huber location with the two-stage estimator. Three pairs stand for them:

- *printed*: HLM and WME as printed;
- *local*: HLM with noise for its local sensitivity alone, which is not private, beside WME as printed;
- *real*: `exact` or `tested` beside `winsorized`: the same two ideas, each with a proof that covers the code and a
  budget that is divided and composed as tightly as we know how.

The verdict rests on the fair setting: *holds* if it does for the real pair with every number of users that was run;
*holds only with the printed constants* if it does for the printed pair with some number of users in some setting; else
it *does not hold*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hubermean.reproduce.constants import imbalanced_users_suffice, printed_constants
from hubermean.reproduce.figures.curves import Curve
from hubermean.reproduce.figures.estimate import Estimate, words
from hubermean.reproduce.figures.panels import DELTA, EPSILON, FAIR, PANELS, RECORDS_PER_USER, SETTINGS
from hubermean.reproduce.figures.results import Results

HOLDS, PRINTED_ONLY, FAILS = "holds", "holds only with the printed constants", "does not hold"

ALIKE = 1.25  # "nearly the same": errors within this factor; more is a difference
STEEPER = 0.05  # slopes that differ by less are alike

PRINTED, LOCAL, REAL = "printed", "local", "real"
PAIRS = (PRINTED, LOCAL, REAL)


@dataclass(frozen=True, kw_only=True)
class Number:
    """What one pair shows in one setting with one number of users; `true` whether the claim does hold there."""

    panel: str
    pair: str
    setting: str
    users: int
    value: str
    true: bool


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, what was measured for it, and the verdict."""

    name: str
    says: str
    measured: str
    numbers: Sequence[Number] = field(repr=False)

    @property
    def verdict(self) -> str:
        if self._all(REAL, FAIR.name):
            return HOLDS
        return PRINTED_ONLY if self._printed_somewhere() else FAILS

    @property
    def qualifier(self) -> str:
        """What the verdict would hide, where it would hide something."""
        if self.verdict == HOLDS and not self._all(PRINTED, FAIR.name):
            return "for the Huber location made private; HLM as printed does not bear it out"
        if self.verdict == FAILS and self._all(LOCAL, FAIR.name):
            return "it would with noise for the local sensitivity alone, which is not private"
        return ""

    def _all(self, pair: str, setting: str) -> bool:
        mine = [one.true for one in self.numbers if (one.pair, one.setting) == (pair, setting)]
        return bool(mine) and all(mine)

    def _printed_somewhere(self) -> bool:
        """With one number of users in one setting, for every panel of the claim."""
        printed = [one for one in self.numbers if one.pair == PRINTED]
        cases = {(one.setting, one.users) for one in printed}
        return any(all(one.true for one in printed if (one.setting, one.users) == case) for case in cases)


def claims(results: Results) -> Iterator[Claim]:
    """Those that the panels at hand can tell about."""
    yield from _alike(results)
    yield from _heavy_tails(results)
    yield from _more_columns(results)
    yield from _imbalance(results)


def pair_of(panel: str, pair: str) -> tuple[str, str]:
    """(Huber location, two-stage)."""
    ours = "exact" if PANELS[panel].columns == 1 else "tested"
    return {
        PRINTED: ("HLM as printed", "WME as printed"),
        LOCAL: ("HLM, local noise", "WME as printed"),
        REAL: (ours, "winsorized"),
    }[pair]


def _alike(results: Results) -> Iterator[Claim]:
    for panel in ("1a", "1b"):
        if results.has(panel):
            law = PANELS[panel].law
            yield Claim(
                name=panel,
                says=f"On the {law} law, d = 1, HLM has nearly the same performance as the two-stage method.",
                measured=f"error of HLM over that of WME, geometric mean over m; alike is 1/{ALIKE:g} to {ALIKE:g}",
                numbers=list(_compare(results, panel, lambda found: 1 / ALIKE <= found <= ALIKE)),
            )


def _heavy_tails(results: Results) -> Iterator[Claim]:
    about = {
        "1c": "On the Lomax law, d = 1,",
        "1f": "On the Lomax law, d = 3,",
        "1g": "On total income, which has a heavy tail,",
        "1h": "On salaries, which have a heavy tail,",
    }
    for panel, start in about.items():
        if results.has(panel):
            yield Claim(
                name=panel,
                says=f"{start} HLM is better than the two-stage method.",
                measured=f"error of HLM over that of WME, geometric mean over m; better is below 1/{ALIKE:g}",
                numbers=list(_compare(results, panel, lambda found: found < 1 / ALIKE)),
            )
    if results.has("1c"):
        yield Claim(
            name="1c, rate",
            says="On the Lomax law HLM converges significantly faster than the two-stage method.",
            measured=f"slope in m of HLM less that of WME; faster is below -{STEEPER:g}",
            numbers=list(_steeper(results, "1c")),
        )


def _more_columns(results: Results) -> Iterator[Claim]:
    for one, three in (("1a", "1d"), ("1b", "1e"), ("1c", "1f")):
        if results.has(one, three):
            law = PANELS[one].law
            yield Claim(
                name=f"{three} beside {one}",
                says=f"On the {law} law the advantage of HLM is more obvious in d = 3 than in d = 1.",
                measured=(
                    f"error of WME over that of HLM in d = 3, with that in d = 1; more obvious is better in d = 3, "
                    f"and by more than {ALIKE:g} times as much"
                ),
                numbers=list(_advantages(results, one, three)),
            )


def _imbalance(results: Results) -> Iterator[Claim]:
    for panel in ("2a", "2b", "2c", "2d"):
        if results.has(panel):
            law = PANELS[panel].law
            yield Claim(
                name=panel,
                says=f"With gamma, on {law} records, the two-stage method degrades while HLM is much more stable.",
                measured=(
                    "growth of the error from the least to the largest gamma, of HLM and of WME; stable is less "
                    f"than 1/{ALIKE:g} of a growth that is above {ALIKE:g}"
                ),
                numbers=list(_growths(results, panel)),
            )


def _cases(results: Results, *panels: str) -> Iterator[tuple[str, str, int]]:
    users = set.intersection(*(set(results.users(panel)) for panel in panels))
    for pair in PAIRS:
        for setting in SETTINGS:
            for number in sorted(users):
                yield pair, setting.name, number


def _curves(results: Results, panel: str, pair: str, setting: str, users: int) -> tuple[Curve, Curve]:
    huber, two_stage = pair_of(panel, pair)
    return results.curve(panel, huber, setting, users), results.curve(panel, two_stage, setting, users)


def _compare(results: Results, panel: str, true: Callable[[float], bool]) -> Iterator[Number]:
    for pair, setting, users in _cases(results, panel):
        huber, two_stage = _curves(results, panel, pair, setting, users)
        found = huber.over(two_stage)
        yield Number(
            panel=panel, pair=pair, setting=setting, users=users, value=words(found), true=true(found.value)
        )


def _steeper(results: Results, panel: str) -> Iterator[Number]:
    for pair, setting, users in _cases(results, panel):
        mine, theirs = (curve.slope() for curve in _curves(results, panel, pair, setting, users))
        gap = Estimate(value=mine.value - theirs.value, error=math.hypot(mine.error, theirs.error))
        yield Number(
            panel=panel,
            pair=pair,
            setting=setting,
            users=users,
            value=words(gap, digits=2),
            true=gap.value + 2.0 * gap.error < -STEEPER,
        )


def _advantages(results: Results, one: str, three: str) -> Iterator[Number]:
    for pair, setting, users in _cases(results, one, three):
        narrow, wide = (
            two_stage.over(huber)
            for huber, two_stage in (_curves(results, panel, pair, setting, users) for panel in (one, three))
        )
        yield Number(
            panel=three,
            pair=pair,
            setting=setting,
            users=users,
            value=f"{words(wide)}; d = 1: {words(narrow)}",
            true=wide.value > max(1.0, ALIKE * narrow.value),
        )


def _growths(results: Results, panel: str) -> Iterator[Number]:
    for pair, setting, users in _cases(results, panel):
        huber, two_stage = _curves(results, panel, pair, setting, users)
        mine, theirs = huber.growth(), two_stage.growth()
        value = f"{words(mine)}; WME: {words(theirs)}"
        if pair == PRINTED:
            value += _where_the_theorem_applies(huber, two_stage)
        yield Number(
            panel=panel,
            pair=pair,
            setting=setting,
            users=users,
            value=value,
            true=theirs.value > ALIKE and mine.value < theirs.value / ALIKE,
        )


def _where_the_theorem_applies(huber: Curve, two_stage: Curve) -> str:
    """The growth up to the largest gamma for which Thm mseunb has enough users, where that is not all."""
    beta = printed_constants(EPSILON, DELTA, dimension=1).beta
    records = RECORDS_PER_USER * huber.users
    enough = [
        gamma
        for gamma in huber.x
        if imbalanced_users_suffice(huber.users, total_records=records, gamma=gamma, beta=beta)
    ]
    if not enough:
        return "; Thm mseunb asks for more users at every gamma"
    if len(enough) == len(huber.x):
        return ""
    mine, theirs = (words(curve.up_to(enough[-1]).growth()) for curve in (huber, two_stage))
    return f"; up to gamma = {enough[-1]}, as far as Thm mseunb applies: {mine}; WME: {theirs}"
