"""The targets of the accuracy benchmark, and what it found about one mechanism in one case."""

from __future__ import annotations

from dataclasses import dataclass

from accuracy.draws import Case

# The targets, in one place.
WORST = {100: 2.5, 300: 2.2, 1_000: 2.1, 10_000: 1.5}  # `inverse-sensitivity`, every law and m
TYPICAL = {100: 1.8, 300: 1.45, 1_000: 1.2, 10_000: 1.05}  # `inverse-sensitivity`, Gaussian, m = 10
SEVERAL = {1_000: 2.8, 10_000: 1.7}  # `propose-test-release`, three columns, delta = 1e-5
LEAST_CHANCE = 0.99  # of a release by `propose-test-release`


@dataclass(frozen=True, kw_only=True)
class Result:
    """One mechanism in one case; every ratio with its standard error.

    Attributes:
        ratio: to d sigma^2/(n m), with the luck of the draws taken out; the figure that is judged.
        paired: the ratio of two means over the same draws.
        formula: to d sigma^2/(n m) as it is.
        drawn: `ratio` for one actual draw of noise per data set in place of the noise's expectation.
        total: `ratio` with answers further off than `FAR` deviations counted by their chance, however rare.
        far: the chance of such an answer, where the law tells.
        chance: of a release.
    """

    mechanism: str
    law: str
    users: int
    records: int
    columns: int
    runs: int
    ratio: float
    error: float
    paired: float
    paired_error: float
    formula: float
    formula_error: float
    drawn: float
    drawn_error: float
    total: float
    far: float
    chance: float
    factor: float | None
    share: float | None
    target: float | None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.ratio <= self.target and self.chance >= LEAST_CHANCE

    @property
    def close(self) -> bool:
        """The target lies within two standard errors, so the verdict could be luck."""
        return self.target is not None and abs(self.ratio - self.target) < 2.0 * self.error


def target_of(mechanism: str, case: Case) -> float | None:
    if mechanism == "propose-test-release":
        return SEVERAL.get(case.users)
    if mechanism == "inverse-sensitivity":
        typical = case.law == "Gaussian" and case.records == 10
        return (TYPICAL if typical else WORST).get(case.users)
    return None
