"""The page of a run: what the paper claims, what was found, panel by panel, and how it was done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubermean.ingest.incomes import IncomeRecords
from hubermean.reproduce.figures.claims import claims
from hubermean.reproduce.figures.method_notes import method_notes
from hubermean.reproduce.figures.methods import NON_PRIVATE
from hubermean.reproduce.figures.panels import SETTINGS, Effort
from hubermean.reproduce.figures.point import Row
from hubermean.reproduce.figures.results import Results
from hubermean.reproduce.figures.slopes import slopes
from hubermean.reproduce.figures.summary_tables import (
    claim_details,
    conditions_table,
    fair_numbers,
    panel_table,
    privacy_table,
    prose,
    slope_table,
    table,
    tuning_table,
    verdict_words,
)

PRECISE = 0.10
"""The relative standard error that a full run is to stay below."""

_DIFFERENT = 1.05  # errors of the two ways of tuning that differ by more are counted
_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the summary is about."""

    results: Results
    effort: Effort
    seed: int
    incomes: Mapping[str, IncomeRecords]
    household: bool

    def markdown(self) -> str:
        parts = [
            *self._opening(),
            *self._verdicts(),
            *self._real_privacy(),
            *self._figures(),
            *self._slopes(),
            *self._panels(),
            *self._tuning(),
            *self._precision(),
            *method_notes(self.effort, self.incomes, household=self.household),
        ]
        return "\n\n".join(parts) + "\n"

    def _opening(self) -> list[str]:
        parts = [
            "# The paper's figures, run again",
            prose(
                f"""Zhao, Lai, Shen, Li, Wu & Liu, "A Huber Loss Minimization Approach to Mean Estimation under
                User-level Differential Privacy", NeurIPS 2024, compares its estimator (HLM) with the winsorized mean
                estimator (WME) of Levy et al. (2021) in twelve panels. This page was written by `hubermean
                reproduce`, seed {self.seed}. It has both methods as they are printed, both made private in fact, and
                what the paper leaves out: the plain mean, a clipped mean whose bounds are known, and `auto`, which is
                told nothing. The CSV files beside it hold every number; docs/reproduction.md says what a full run
                shows."""
            ),
        ]
        if self.effort.name != "full":
            parts.append("**This is a quick run: few points, few draws. Its numbers are rough.**")
        return parts

    def _verdicts(self) -> list[str]:
        found = list(claims(self.results))
        if not found:
            return []
        rows = [[one.name, one.says, verdict_words(one), fair_numbers(one)] for one in found]
        details = "\n\n".join(claim_details(one) for one in found)
        return [
            "## What holds",
            prose(
                """Each claim is measured on three pairs. *Printed*: HLM and WME as printed. *Local*: HLM with noise
                for its local sensitivity alone, which is not private, beside WME as printed. *Real*: the Huber
                location with a proof that covers the code (`exact` for one column, `tested` for several) beside
                `winsorized`, which is WME with its budget divided and composed tightly."""
            ),
            prose(
                """A claim **holds** if it does for the real pair, in the fair setting (the true mean is drawn at
                random), with every number of users. It **holds only with the printed constants** if that is not so,
                but it does for the printed pair with some number of users in some setting. Otherwise it **does not
                hold**. "Yes" and "no" say whether a number bears the claim out."""
            ),
            table(["panel", "the paper says", "verdict", "in the fair setting"], rows),
            f"<details><summary>All numbers of the claims, both settings</summary>\n\n{details}\n\n</details>",
        ]

    def _real_privacy(self) -> list[str]:
        return [
            "## What privacy the printed methods have",
            prose(
                """Epsilon is 1. The delta of HLM is that of its printed constants, its sensitivity bound granted; for
                one column there are data sets that reach it (docs/paper.md, item 1)."""
            ),
            privacy_table(self.results),
            prose(
                """S(D), to which HLM scales its noise, is a maximum over k. From about k = n/4 for equal users and k
                = n/(8 gamma) for unequal ones its terms are 2 R_c e^(-beta k). Unless n is large these decide, and
                the noise follows the radius R_c in place of the spread of the data. The theorems ask for such n; a
                radius that is larger beside T asks for more than this:"""
            ),
            conditions_table(self.results),
        ]

    def _figures(self) -> list[str]:
        parts = [
            "## The figures",
            prose(
                """*Fair* setting: the true mean is drawn at random for every data set. *Paper* setting: it is where
                the paper has it, at 0 for the symmetric laws. The bins of WME lie symmetric about 0. If their number
                is odd, the middle one is centred on the answer before any data are seen, and tuning finds such a
                number: means are clipped to a narrow interval around the truth. WME then beats the plain mean, by
                luck."""
            ),
        ]
        for figure in ("1", "2"):
            rows = [row for row in self.results.all_rows() if row.panel[0] == figure]
            for users in sorted({row.users for row in rows}, reverse=True):
                for setting in reversed(SETTINGS):
                    stem = f"figure{figure}-{setting.name}-{users}"
                    parts.append(f"![figure {figure}, {setting.name} setting, n = {users:,}]({stem}.svg)")
        return parts

    def _slopes(self) -> list[str]:
        found = [one for one in slopes(self.results) if not math.isnan(one.bound)]
        parts = []
        for variable, title in (("m", "records per user m"), ("gamma", "gamma"), ("n", "users n")):
            if group := [one for one in found if one.variable == variable]:
                parts += [f"### Against {title}", slope_table(group)]
        if not parts:
            return []
        return [
            "## Slopes",
            prose(
                """Of the logarithm of the error, by least squares, beside the slope of the theorem's bound over the
                same points (every constant 1; p = 8 for the Gaussian law, and 4, the limit of what it has, for Lomax;
                4 for incomes). A bound holds up to constants, and its terms have slopes of their own: an error that
                falls less steeply than its bound, as the plain mean's does, breaks nothing. A method that could not
                serve at every point has no slope. In n the slope is that between two numbers of users; in figure 2
                the number of records grows with n."""
            ),
            *parts,
        ]

    def _panels(self) -> list[str]:
        parts = [
            "## Panel by panel",
            prose(
                """Cells are errors over the non-private one, with standard errors; the first row is the non-private
                mean squared error itself. A percentage says how often a method released, where not always."""
            ),
        ]
        for panel in self.results.panels:
            parts += [f"### {panel.title}", f"![panel {panel.name}]({panel.name}.svg)"]
            for users in self.results.users(panel.name):
                for setting in reversed(SETTINGS):
                    parts.append(panel_table(self.results, panel, users, setting.name))
        return parts

    def _tuning(self) -> list[str]:
        gains = {
            row: row.mse / row.same_draws_mse
            for row in self.results.all_rows()
            if row.mse is not None and row.same_draws_mse is not None
        }
        if not gains:
            return []
        apart = sorted((row for row in gains if gains[row] > _DIFFERENT), key=lambda row: -gains[row])
        limit = f"{100 * (_DIFFERENT - 1):.0f}%"
        better = f"{100 * (sum(gains.values()) / len(gains) - 1):.1f}%"
        parts = [
            "## Two ways of tuning",
            prose(
                f"""The paper tunes T, A and tau "optimally for each case", it seems on the draws that it reports.
                Here thresholds are chosen from {len(self.effort.thresholds)} values on draws of their own; the least
                error that any remaining candidate has on the reported draws is kept beside it. Over {len(gains):,}
                tuned points the paper's way looks better by at least {better} on average (candidates that were
                clearly worse on the separate draws were not run again), and by more than {limit} at {len(apart)}."""
            ),
        ]
        if edges := self._edges():
            parts.append(edges)
        if apart:
            parts += [
                "Those that differ most, as errors over the non-private one:",
                tuning_table(apart[:_LISTED]),
            ]
        return parts

    def _edges(self) -> str:
        """Where tuning would have gone on."""
        least, largest = self.effort.thresholds[0], self.effort.thresholds[-1]
        rows = [row for row in self.results.all_rows() if row.factor is not None]
        at = Counter(
            f"{row.method}, {row.setting} setting"
            for row in rows
            if row.factor is not None and not least * 1.1 < row.factor < largest / 1.1
        )
        if not at:
            return ""
        listed = "; ".join(f"{name}: {number}" for name, number in at.most_common())
        return prose(
            f"""The threshold chosen is the least or the largest on offer at {at.total()} points ({listed}). For WME in
            the paper setting narrower would be better still: the answer is where a bin is. For HLM and `smooth` with
            few users the noise follows the radius, whatever the threshold."""
        )

    def _precision(self) -> list[str]:
        rows = [row for row in self.results.all_rows() if row.mse is not None]
        private = [row for row in rows if row.method != NON_PRIVATE]
        if not private:
            return []
        loose = sorted((row for row in rows if _relative(row) > PRECISE), key=_relative, reverse=True)
        worst = max(private, key=_relative)
        listed = "; ".join(f"{_where(row)}: {100 * _relative(row):.1f}%" for row in loose[:_LISTED])
        named = f" ({listed})" if loose else ""
        fewest, most = min(row.runs for row in rows), max(row.runs for row in rows)
        largest, limit = f"{100 * _relative(worst):.1f}%", f"{100 * PRECISE:.0f}%"
        return [
            "## How precise this is",
            prose(
                f"""Every point rests on at least {fewest:,} data sets, the same for all methods, and on up to
                {most:,} where errors scatter more. The largest standard error of a method is {largest} of its error
                ({_where(worst)}); {len(loose)} of {len(rows):,} are above {limit}{named}. What a method adds at
                random is averaged out exactly where its law has a simple form, and the luck of the data sets is taken
                out by regression on the plain mean's error, whose expectation is known. The plain mean itself is
                measured without that, as a check: {_check(rows)}"""
            ),
        ]


def _relative(row: Row) -> float:
    assert row.mse is not None
    assert row.mse_error is not None
    return row.mse_error / row.mse


def _where(row: Row) -> str:
    return f"{row.method}, panel {row.panel}, {row.setting} setting, n = {row.users:,}, x = {row.x}"


def _check(rows: Sequence[Row]) -> str:
    found = [row.mse / row.non_private for row in rows if row.method == NON_PRIVATE and row.mse is not None]
    mean = sum(found) / len(found)
    return f"its measured error is {mean:.3f} times the formula's on average, {min(found):.2f} to {max(found):.2f}."
