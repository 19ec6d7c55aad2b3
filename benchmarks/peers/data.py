"""Data sets for the comparison with other libraries, and the bounds that everybody is given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist

import numpy as np

from accuracy.draws import LAWS, Case, Floats

WIDTHS = (1, 10, 100)
"""How many times too wide the bounds are."""

_QUANTILE_DRAWS = 4_000_000
_DRAW_SEED, _QUANTILE_SEED = 11, 12


def right_interval(case: Case) -> tuple[float, float]:
    """Bounds as one who knows the law would give them, relative to the true mean.

    They end where the law does, or else where one user in all is expected beyond: half a user at each end of a
    Gaussian, one beyond the upper end of a Lomax law. Narrower ones clip what is there, wider ones only add noise.
    """
    if case.law == "Gaussian":
        reach = -NormalDist(sigma=case.spread).inv_cdf(0.5 / case.users)
        return -reach, reach
    if case.law == "Lomax(4)":
        generator = np.random.default_rng(_QUANTILE_SEED)
        means = LAWS[case.law].draw_user_means(generator, np.full(_QUANTILE_DRAWS, case.records))
        return -1.0 / 3.0, float(np.quantile(means, 1.0 - 1.0 / case.users))
    raise ValueError(f"nobody has said what the right bounds of {case.law} are")


@dataclass(frozen=True, kw_only=True)
class DataSets:
    """Data sets of one case, in one column.

    Attributes:
        means: user means, shape (data sets, users).
        truth: the true means, shape (data sets,).
        low, high: bounds, shape (widths, data sets).
    """

    case: Case
    means: Floats
    truth: Floats
    low: Floats
    high: Floats

    @classmethod
    def draw(cls, case: Case, number: int) -> DataSets:
        generator = np.random.default_rng([_DRAW_SEED, case.users, case.records, list(LAWS).index(case.law)])
        means, truth = np.empty((number, case.users)), np.empty(number)
        for which in range(number):
            drawn, (truth[which],) = case.draw(generator)
            means[which] = drawn[:, 0]
        below, above = right_interval(case)
        width = above - below
        # The right interval lies anywhere within the wide one: nobody is given the mean by a middle.
        slack = np.array([width * (factor - 1) for factor in WIDTHS])[:, None]
        low = truth + below - slack * generator.random((len(WIDTHS), number))
        return cls(case=case, means=means, truth=truth, low=low, high=low + slack + width)

    @property
    def unit(self) -> float:
        """The mean squared error of the plain mean."""
        return self.case.spread**2 / self.case.users

    @cached_property
    def plain(self) -> Floats:
        return np.asarray(self.means.mean(axis=1))

    @cached_property
    def clipped(self) -> Floats:
        """Plain means of the clipped data, shape (widths, data sets)."""
        found = np.empty_like(self.low)
        for width, which in np.ndindex(found.shape):
            found[width, which] = np.clip(
                self.means[which], self.low[width, which], self.high[width, which]
            ).mean()
        return found

    @property
    def file_name(self) -> str:
        return f"{LAWS[self.case.law].name}-{self.case.users}-{self.case.records}.npz"

    def save(self, folder: Path) -> Path:
        """As the runners of the peers want it: without the truth."""
        path = folder / self.file_name
        np.savez(path, means=self.means, low=self.low, high=self.high)
        return path
