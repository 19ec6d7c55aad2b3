"""The results page of a run: claims and verdicts, results by panel, precision and method."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubermean_experiments.figures.claims import check_claims
from hubermean_experiments.figures.curves import Results, fit_slopes
from hubermean_experiments.figures.methods import NON_PRIVATE
from hubermean_experiments.figures.panels import SETTINGS, Effort
from hubermean_experiments.figures.rows import ResultRow
from hubermean_experiments.figures.summary_tables import (
    claim_details,
    conditions_table,
    format_fair_measurements,
    format_verdict,
    markdown_table,
    panel_table,
    privacy_table,
    slope_table,
    tuning_table,
    wrap_paragraph,
    write_notes,
)
from hubermean_experiments.incomes.records import IncomeRecords

PRECISE = 0.10
"""The target for the relative standard error of a full run."""

_DIFFERENT = 1.05  # larger ratios between the two ways of tuning are counted
_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class ResultsPage:
    """The results of a run, and how it was made."""

    results: Results
    effort: Effort
    seed: int
    incomes: Mapping[str, IncomeRecords]
    household: bool

    def markdown(self) -> str:
        parts = [
            *self._opening(),
            *self._verdicts(),
            *self._actual_privacy(),
            *self._figures(),
            *self._slopes(),
            *self._panels(),
            *self._tuning(),
            *self._precision(),
            *write_notes(self.effort, self.incomes, household=self.household),
        ]
        return "\n\n".join(parts) + "\n"

    def _opening(self) -> list[str]:
        parts = [
            "# The paper's figures, run again",
            wrap_paragraph(
                f"""Zhao, Lai, Shen, Li, Wu & Liu, "A Huber Loss Minimization Approach to Mean Estimation under
                User-level Differential Privacy", NeurIPS 2024, compares its estimator (HLM) with the winsorized mean
                estimator (WME) of Levy et al. (2021) in twelve panels. `hubermean reproduce` wrote this page, with
                seed {self.seed}. It compares both methods as printed, both methods made private, and baselines that
                the paper leaves out: the non-private mean, a clipped mean with known bounds, and `auto`, which gets
                only the privacy budget. The CSV files in this folder contain every number;
                docs/evidence/reproduction.md explains what a full run shows."""
            ),
        ]
        if self.effort.name != "full":
            parts.append("**This is a quick run: few points, few draws. Its numbers are rough.**")
        return parts

    def _verdicts(self) -> list[str]:
        found = list(check_claims(self.results))
        if not found:
            return []
        rows = [[one.name, one.says, format_verdict(one), format_fair_measurements(one)] for one in found]
        details = "\n\n".join(claim_details(one) for one in found)
        return [
            "## What holds",
            wrap_paragraph(
                """Each claim is measured on three pairs of methods. *Printed*: HLM and WME as printed. *Local*: HLM
                with noise for its local sensitivity alone, which is not private, and WME as printed. *Real*: the
                Huber location with a proof that covers the code (`inverse-sensitivity` for one column,
                `propose-test-release` for several), and `winsorized`, which is WME with a tight budget split and
                composition."""
            ),
            wrap_paragraph(
                """A claim **holds** if the real pair supports it in the fair setting (the true mean is drawn at
                random) with every number of users. It **holds only with the printed constants** if the real pair
                does not, but the printed pair supports it with some number of users in some setting. Otherwise it
                **does not hold**. "Yes" and "no" state whether a measurement supports the claim."""
            ),
            markdown_table(["panel", "the paper says", "verdict", "in the fair setting"], rows),
            f"<details><summary>All measurements of the claims, both settings</summary>\n\n{details}\n\n</details>",
        ]

    def _actual_privacy(self) -> list[str]:
        return [
            "## The actual privacy of the printed methods",
            wrap_paragraph(
                """Epsilon is 1. The delta of HLM follows from its printed constants, if its sensitivity bound is
                taken for granted. For one column, there are data sets that reach it (docs/concepts/paper.md, item
                1)."""
            ),
            privacy_table(self.results),
            wrap_paragraph(
                """HLM scales its noise to S(D), a maximum over k. From about k = n/4 for equal users and k = n/(8
                gamma) for unequal ones, its terms are 2 R_c e^(-beta k). Unless n is large, these terms dominate and
                the noise depends on the radius R_c, not on the scale of the data. The theorems require at least the
                following n, and more if the radius is larger than T:"""
            ),
            conditions_table(self.results),
        ]

    def _figures(self) -> list[str]:
        parts = [
            "## The figures",
            wrap_paragraph(
                """*Fair* setting: the true mean is drawn at random for each data set. *Paper* setting: the true mean
                is that of the paper, 0 for the symmetric distributions. The bins of WME are symmetric about 0. If
                their number is odd, the middle bin is centered on the true mean before any data are seen, and tuning
                finds such a number. User means are then clipped to a narrow interval around the true mean, and WME
                beats the non-private mean by luck."""
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
        found = [one for one in fit_slopes(self.results) if not math.isnan(one.bound)]
        parts = []
        for variable, title in (("m", "records per user m"), ("gamma", "gamma"), ("n", "users n")):
            if group := [one for one in found if one.variable == variable]:
                parts += [f"### Against {title}", slope_table(group)]
        if not parts:
            return []
        return [
            "## Slopes",
            wrap_paragraph(
                """Slopes of the logarithm of the error, by least squares, and slopes of the theorem's bound over the
                same points (every constant 1; p = 8 for the Gaussian distribution; p = 4 for incomes and for Lomax,
                where it is the limit). A bound holds up to constants, and its terms have different slopes: an error
                that falls less steeply than its bound, like that of the non-private mean, does not contradict the
                theorem. A method without a release at some point has no slope. The slope in n is that between two
                numbers of users; in figure 2 the number of records grows with n."""
            ),
            *parts,
        ]

    def _panels(self) -> list[str]:
        parts = [
            "## Panel by panel",
            wrap_paragraph(
                """Cells are errors divided by the non-private error, with standard errors. The first row is the
                non-private mean squared error. A percentage is the share of data sets with a release, if below
                100%."""
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
            wrap_paragraph(
                f"""The paper tunes T, A and tau "optimally for each case", apparently on the draws that it reports.
                Here, thresholds are chosen from {len(self.effort.thresholds)} values on separate draws. The least
                error of the remaining candidates on the reported draws is recorded as well. Over {len(gains):,} tuned
                points, the paper's way looks better by at least {better} on average (candidates that were clearly
                worse on the separate draws were not run again), and by more than {limit} at {len(apart)} of them."""
            ),
        ]
        if edges := self._edges():
            parts.append(edges)
        if apart:
            parts += [
                "The largest differences, as errors divided by the non-private error:",
                tuning_table(apart[:_LISTED]),
            ]
        return parts

    def _edges(self) -> str:
        """Points whose tuned threshold is at an end of the grid."""
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
        return wrap_paragraph(
            f"""The chosen threshold is the smallest or the largest of the grid at {at.total()} points ({listed}). For
            WME in the paper setting, a narrower one would be better still, because a bin is centered on the true mean.
            For HLM and `smooth-sensitivity` with few users, the noise depends on the radius, not on the threshold."""
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
            "## Precision",
            wrap_paragraph(
                f"""Every point uses at least {fewest:,} data sets, the same for all methods, and up to {most:,} where
                errors vary more. The largest standard error of a method is {largest} of its error
                ({_where(worst)}); {len(loose)} of {len(rows):,} are above {limit}{named}. The expectation over the
                noise is exact where it has a closed form. The error of the non-private mean, whose expectation is
                known, serves as a control variate. The non-private mean itself is measured without one, as a check:
                {_check(rows)}"""
            ),
        ]


def _relative(row: ResultRow) -> float:
    assert row.mse is not None
    assert row.mse_error is not None
    return row.mse_error / row.mse


def _where(row: ResultRow) -> str:
    return f"{row.method}, panel {row.panel}, {row.setting} setting, n = {row.users:,}, x = {row.x}"


def _check(rows: Sequence[ResultRow]) -> str:
    found = [row.mse / row.non_private for row in rows if row.method == NON_PRIVATE and row.mse is not None]
    mean = sum(found) / len(found)
    return f"its measured error is {mean:.3f} times the formula's on average, {min(found):.2f} to {max(found):.2f}."
