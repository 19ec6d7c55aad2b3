"""Mean squared error over the non-private mean's, epsilon = 1, thresholds tuned on separate draws.

    python -m accuracy.run [--quick] [--json FILE] [--markdown docs/evidence/accuracy.md]

Per law of records, number of users n and records per user m: the squared error of each mechanism against the true
mean, over that of the plain mean of user means, d sigma^2/(n m). All mechanisms see the same data sets. The luck of
those data sets is taken out by regression on the plain mean's own error, whose expectation is known; the ratio without
that, and the ratio to the plain mean's error on the same draws ("paired"), are reported as well. Standard errors are in
brackets. One process, one core.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from accuracy.contestants import (
    DELTA,
    IN_ONE_COLUMN,
    IN_SEVERAL,
    Choices,
    Contestant,
    Drawn,
    Judged,
)
from accuracy.draws import LAWS, Case
from accuracy.report import print_header, print_row, write_markdown
from accuracy.result import SEVERAL, Result, target_of
from common.ratios import adjusted, mean_and_error, paired_ratio

USERS = (100, 300, 1_000, 10_000)
RECORDS = (1, 10, 100)
COMPARED = ("uniform", "Gaussian", "Lomax(4)")  # laws
COLUMNS = 3  # of `propose-test-release`
TUNED_CHANCE = 0.995  # the same while tuning, less one standard error

COARSE = tuple(0.5 * 2 ** (step / 2) for step in range(11))
FINE = tuple(2 ** (step / 8) for step in (-2, 2))
_FINALISTS = 5
TUNING_STEP = 60  # draws at a time
PRECISE, PRECISE_CHANCE = 0.005, 0.0005  # standard errors at which no more draws are needed
TUNING_SEED, RUN_SEED, NOISE_SEED = 2, 4, 5


class Tuning:
    """The threshold, and share, of least error on the tuning draws: a coarse grid on a few of them, then finalists and
    their neighbors on as many as it takes to know the error to half a percent, or on all.

    A choice is rated by its error plus one standard error. With the error alone, a threshold so narrow that the answer
    is nearly a median would win too often by luck: it follows the plain mean least, so its estimate scatters most.
    """

    def __init__(self, contestant: Contestant, data: Sequence[Drawn]) -> None:
        self._contestant, self._data = contestant, data
        self._plain = np.array([one.plain_error for one in data])
        self._unit = len(data[0].truth) * contestant.spread**2 / len(data[0].means)
        self._judged: dict[float, list[dict[Choices, Judged]]] = {}

    def best(self) -> Choices:
        if not self._contestant.tunes:
            return Choices(factor=1.0)
        finalists = sorted(COARSE, key=lambda factor: self._rate(factor).rating)[:_FINALISTS]
        middle = min(finalists, key=lambda factor: self._rate_well(factor).rating)
        candidates = [*finalists, *(middle * step for step in FINE)]
        return min((self._rate_well(factor) for factor in candidates), key=lambda one: one.rating).choices

    def _rate_well(self, factor: float) -> Rated:
        rated = self._rate(factor)
        while not rated.precise and len(self._judged[factor]) < len(self._data):
            rated = self._rate(factor, more=TUNING_STEP)
        return rated

    def _rate(self, factor: float, *, more: int = 0) -> Rated:
        """The best share at this threshold; draws that were judged before are not judged again."""
        judged = self._judged.setdefault(factor, [])
        wanted = max(len(judged) + more, TUNING_STEP)
        judged.extend(self._contestant.judge_shares(factor, one) for one in self._data[len(judged) : wanted])
        rated = [self._rating(choices, [one[choices] for one in judged]) for choices in judged[0]]
        nothing = Choices(factor=factor, share=self._contestant.shares[0])
        return min(
            [*rated, Rated(rating=math.inf, choices=nothing, precise=True)], key=lambda one: one.rating
        )

    def _rating(self, choices: Choices, found: Sequence[Judged]) -> Rated:
        errors, chances = (np.array([getattr(one, name) for one in found]) for name in ("error", "chance"))
        chance, chance_error = mean_and_error(chances, np.ones(len(chances)))
        if chance - chance_error < TUNED_CHANCE:
            # Beyond any error, and less for more releases.
            return Rated(
                rating=1e100 * (2.0 - chance), choices=choices, precise=chance_error <= PRECISE_CHANCE
            )
        ratio, error = adjusted(errors, self._plain[: len(errors)], self._unit, chances)
        precise = error <= PRECISE * ratio and chance_error <= PRECISE_CHANCE
        return Rated(rating=ratio + error, choices=choices, precise=precise)


@dataclass(frozen=True, kw_only=True)
class Rated:
    """A choice, how good it looks on the tuning draws, and whether that is known well enough."""

    rating: float
    choices: Choices
    precise: bool


def run_case(case: Case, *, runs: int, tuning: int) -> Iterator[Result]:
    """All contestants of a case on the same draws; one column is the first of several."""
    key = [case.users, case.records, list(LAWS).index(case.law)]
    generators = [np.random.default_rng([seed, *key]) for seed in (TUNING_SEED, RUN_SEED)]
    groups = [(1, IN_ONE_COLUMN, 0.0)]
    if case.columns > 1:
        groups.append((case.columns, IN_SEVERAL, DELTA))
    samples = [case.draw(generators[0]) for _ in range(tuning)]
    field: list[tuple[int, Contestant, Choices]] = []
    for columns, kinds, delta in groups:
        data = [Drawn.of(means[:, :columns], truth[:columns]) for means, truth in samples]
        for kind in kinds:
            contestant = kind(data[0], case.spread, delta=delta, seed=NOISE_SEED)
            field.append((columns, contestant, Tuning(contestant, data).best()))
    plain = {columns: np.empty(runs) for columns, _, _ in groups}
    judged: list[list[Judged]] = [[] for _ in field]
    for run in range(runs):
        means, truth = case.draw(generators[1])
        fresh = {columns: Drawn.of(means[:, :columns], truth[:columns]) for columns, _, _ in groups}
        for columns, data_set in fresh.items():
            plain[columns][run] = data_set.plain_error
        for found, (columns, contestant, choices) in zip(judged, field, strict=True):
            found.append(contestant.judge(choices, fresh[columns]))
    for found, (columns, contestant, choices) in zip(judged, field, strict=True):
        yield _result(contestant, case, columns, choices, found, plain[columns])


def _result(
    contestant: Contestant,
    case: Case,
    columns: int,
    choices: Choices,
    found: Sequence[Judged],
    plain: np.ndarray,
) -> Result:
    errors, chances, drawn, total, far = (
        np.array([getattr(one, name) for one in found])
        for name in ("error", "chance", "drawn", "total", "far")
    )
    unit = columns * case.spread**2 / case.users
    seen = np.isfinite(drawn)
    ratio, error = adjusted(errors, plain, unit, chances)
    drawn_ratio, drawn_error = adjusted(drawn[seen], plain[seen], unit, np.ones(int(seen.sum())))
    paired, paired_error = paired_ratio(errors, plain, chances)
    formula, formula_error = mean_and_error(errors / unit, chances)
    return Result(
        mechanism=contestant.name,
        law=case.law,
        users=case.users,
        records=case.records,
        columns=columns,
        runs=len(plain),
        ratio=ratio,
        error=error,
        paired=paired,
        paired_error=paired_error,
        formula=formula,
        formula_error=formula_error,
        drawn=drawn_ratio,
        drawn_error=drawn_error,
        total=adjusted(total, plain, unit, chances)[0],
        far=float(far.mean()),
        chance=float(chances.mean()),
        factor=choices.factor if contestant.tunes else None,
        share=choices.share,
        target=target_of(contestant.name, case),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="data sets per case")
    parser.add_argument("--tuning-runs", type=int, default=300, help="separate data sets for tuning, at most")
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--laws", nargs="+", default=COMPARED, choices=list(LAWS))
    parser.add_argument("--quick", action="store_true", help="few draws: about a minute, rough")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--markdown", type=Path, help="write the page docs/evidence/accuracy.md to this file")
    options = parser.parse_args()
    runs, tuning = (30, 10) if options.quick else (options.runs, options.tuning_runs)
    print_header(runs, tuning)
    results: list[Result] = []
    started = time.perf_counter()
    for users in options.users:
        for law in options.laws:
            for records in options.records:
                columns = COLUMNS if users in SEVERAL else 1
                case = Case(law=law, users=users, records=records, columns=columns)
                row = list(run_case(case, runs=runs, tuning=tuning))
                print_row(row)
                results += row
    verdicts = [one.met for one in results if one.met is not None]
    minutes = (time.perf_counter() - started) / 60.0
    print(f"\n{sum(verdicts)} of {len(verdicts)} targets met; {minutes:.1f} minutes")
    if options.json:
        rows = [asdict(one) | {"met": one.met, "close": one.close} for one in results]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.markdown:
        write_markdown(options.markdown, results, runs=runs, tuning=tuning)


if __name__ == "__main__":
    main()
