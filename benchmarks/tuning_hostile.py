"""The tuning benchmark's parts `hostile` and `wild`: how far off an answer can be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from draws import LAWS, Case, Floats
from page import number, percent, with_error
from ratios import with_resampling
from tuning_part import Column, Effort, Part
from tuning_runs import AS_IS, CASE_COLUMNS, HEAVY, LIGHT, RELEASED, SHIFTED, WILD, Asked, Series, run_case

USERS = (1_000, 10_000)
HOSTILE_SHARE, FAR_AWAY = 0.05, 1_000.0
SIDES = ("one", "both")
_HOSTILE_SEED, _WILD_SEED = 11, 12
_HOSTILE_RUNS = 2  # times the runs of other parts, since a quantile of 99.9% is asked for


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Hostile users in one case; distances in deviations of a user mean, from the mean of the honest users.

    Attributes:
        honest: the median distance without hostile users: noise, and what clipping does to the honest.
        median, far: the median and the 99.9% quantile with them.
        bound: the median, over releases, of what so many users can do within the bounds chosen there.
        beyond: the share of releases further off than their own bound.
    """

    law: str
    users: int
    records: int
    sides: str
    runs: int
    released: float
    refusal: str
    honest: float
    median: float
    median_error: float
    far: float
    bound: float
    beyond: float


def attacked(means: Floats, truth: float, spread: float, sides: str) -> Floats:
    """The first users replaced by hostile ones far away, above, or every other below."""
    hostile = round(HOSTILE_SHARE * len(means))
    found = means.copy()
    found[:hostile] = truth + FAR_AWAY * spread
    if sides == "both":
        found[1:hostile:2] = truth - FAR_AWAY * spread
    return found


def attacks(effort: Effort) -> Iterator[Attack]:
    for users in USERS:
        for law in ("Gaussian", "Lomax(4)"):
            yield from _attack(Case(law=law, users=users, records=10, columns=1), _HOSTILE_RUNS * effort.runs)


def _attack(case: Case, runs: int) -> Iterator[Attack]:
    generator = np.random.default_rng([_HOSTILE_SEED, case.users, list(LAWS).index(case.law)])
    counts = np.full(case.users, case.records)
    series = {sides: Series(asked=Asked()) for sides in ("none", *SIDES)}
    for _ in range(runs):
        drawn, (truth,) = case.draw(generator)
        means = drawn[:, 0]
        honest_mean = float(means.mean())
        for sides, one in series.items():
            data = means if sides == "none" else attacked(means, truth, case.spread, sides)
            # Counted from the honest users' own mean: what sampling did to them is no attack.
            one.ask(data, counts, honest_mean, unit=case.spread, plain=0.0)
    honest = _median(series["none"].distances)[0]
    hostile = round(HOSTILE_SHARE * case.users)
    for sides in SIDES:
        shifts = series[sides].distances
        bounds = hostile * 2.0 * series[sides].of("half_width") / case.users
        known = len(bounds) > 0 and bool(np.isfinite(bounds).all())
        median, median_error = _median(shifts)
        yield Attack(
            law=case.law,
            users=case.users,
            records=case.records,
            sides=sides,
            runs=len(series[sides].answers),
            released=series[sides].released,
            refusal=series[sides].refusal,
            honest=honest,
            median=median,
            median_error=median_error,
            far=float(np.quantile(shifts, 0.999)) if len(shifts) else math.nan,
            bound=float(np.median(bounds)) if known else math.nan,
            beyond=float((shifts > bounds).mean()) if known else math.nan,
        )


def _median(values: Floats) -> tuple[float, float]:
    return with_resampling(lambda drawn: np.median(drawn, axis=-1), values)


def _says_of_attacks(found: Sequence[Attack]) -> Iterable[str]:
    known = [one for one in found if math.isfinite(one.bound)]
    if not known:
        yield "The releases do not tell their bounds, so there is no bound to compare the shifts with."
    else:
        worst = max(known, key=lambda one: one.far / one.bound)
        yield (
            f"Five per cent of hostile users a thousand deviations away move the answer by at most "
            f"{number(worst.far / worst.bound)} of what the bounds allow so many users, in 99.9% of releases."
        )
    if found:
        most = max(found, key=lambda one: one.far)
        yield (
            f"The largest 99.9% quantile of that shift is {number(most.far)} deviations of a user mean "
            f"(n = {most.users:,}, {most.law}, {most.sides}), where the plain mean would move by up to "
            f"{HOSTILE_SHARE * FAR_AWAY:g}."
        )


ATTACKS = Part(
    name="hostile",
    title="Hostile users",
    notes="""
Five per cent of the users lie a thousand deviations of a user mean away, all on one side or half on each. The shift is
the distance of the answer from the mean of the honest users, noise included; in deviations of a user mean. The bound
is (hostile users) x 2T/(users) for the bounds of half width T that the release chose.""",
    columns=[
        *CASE_COLUMNS,
        Column(heading="sides", cell=lambda row: row.sides, left=True),
        Column(heading="without, median", cell=lambda row: number(row.honest)),
        Column(heading="shift, median", cell=lambda row: with_error(row.median, row.median_error), width=16),
        Column(heading="shift, 99.9%", cell=lambda row: number(row.far)),
        Column(heading="bound, median", cell=lambda row: number(row.bound)),
        Column(heading="beyond bound", cell=lambda row: percent(row.beyond)),
        Column(heading="runs", cell=lambda row: f"{row.runs:,}", width=6),
        RELEASED,
    ],
    rows=attacks,
    says=_says_of_attacks,
)


@dataclass(frozen=True, kw_only=True)
class Wildness:
    """Releases more than `WILD` standard errors from the truth; the last row is the sum, for no case of its own."""

    law: str
    users: int
    records: int
    place: str
    answers: int
    refused: int
    refusal: str
    wild: int
    largest: float

    @property
    def upper(self) -> float:
        """Clopper and Pearson (1934): with a larger probability, so few would be seen in less than 5% of cases."""
        return (
            float(beta.ppf(0.95, self.wild + 1, self.answers - self.wild))
            if self.answers > self.wild
            else 1.0
        )


def wildness(effort: Effort) -> Iterator[Wildness]:
    cases = [
        Case(law=law, users=users, records=records, columns=1)
        for users in USERS
        for law in (*LIGHT, *HEAVY)
        for records in (1, 10)
    ]
    places = (AS_IS, SHIFTED)
    rows = []
    for case in cases:
        series = [Series(asked=Asked(), place=place) for place in places]
        run_case(case, series, runs=math.ceil(effort.wild / len(cases) / len(places)), seed=_WILD_SEED)
        for one in series:
            distances = one.distances
            rows.append(
                Wildness(
                    law=case.law,
                    users=case.users,
                    records=case.records,
                    place=one.place.name,
                    answers=len(distances),
                    refused=len(one.answers) - len(distances),
                    refusal=one.refusal,
                    wild=one.wild,
                    largest=float(distances.max(initial=0.0)),
                )
            )
            yield rows[-1]
    yield Wildness(
        law="all",
        users=0,
        records=0,
        place="",
        answers=sum(row.answers for row in rows),
        refused=sum(row.refused for row in rows),
        refusal="",
        wild=sum(row.wild for row in rows),
        largest=max(row.largest for row in rows),
    )


def _says_of_wildness(found: Sequence[Wildness]) -> Iterable[str]:
    *_, all_of_them = found
    yield (
        f"Further than {WILD:g} standard errors of the plain mean from the truth: {all_of_them.wild} of "
        f"{all_of_them.answers:,} releases, the largest distance being {number(all_of_them.largest)}; the probability "
        f"of one is at most {all_of_them.upper:.2g} with 95% confidence, in this mix of cases."
    )


WILDNESS = Part(
    name="wild",
    title="Wild values",
    notes=f"""
Releases further than {WILD:g} standard errors of the plain mean, sigma/sqrt(n m), from the truth. `at most` is the
exact one-sided 95% upper bound of Clopper and Pearson on their probability; in the last row, for the mix of all
cases.""",
    columns=[
        *CASE_COLUMNS,
        Column(heading="place", cell=lambda row: row.place, width=6, left=True),
        Column(heading="answers", cell=lambda row: f"{row.answers:,}"),
        Column(heading="refused", cell=lambda row: f"{row.refused:,}"),
        Column(heading="wild", cell=lambda row: f"{row.wild:,}", width=5),
        Column(heading="largest distance", cell=lambda row: number(row.largest)),
        Column(heading="at most", cell=lambda row: f"{row.upper:.2g}", width=8),
    ],
    rows=wildness,
    says=_says_of_wildness,
)
