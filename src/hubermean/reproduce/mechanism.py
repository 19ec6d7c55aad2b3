"""The paper's mechanism behind the protocol of the others, so that it can be audited. It is never registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.laws import NoisySum
from hubermean.mechanisms import Known, Outcome, Prepared, PublicFacts, Request
from hubermean.noise import NoiseLaw
from hubermean.reproduce.literal import unsafe_paper_literal_diagnostics
from hubermean.user_table import PrivateTable


@dataclass(frozen=True, kw_only=True)
class PaperMechanism:
    """Huber loss minimisation as printed (Zhao et al. 2024), equal users; its promise is broken, which audits show."""

    threshold: float
    radius: float
    name = "paper-literal"

    @classmethod
    def from_known(cls, known: Known) -> PaperMechanism:
        threshold, radius = known.spread(of=cls.name)
        return cls(threshold=threshold, radius=radius)

    def check(self, request: Request) -> None:
        if request.delta == 0.0 or request.per != "user" or not request.neighbors.users_are_public:
            raise InputError(
                "'paper-literal' needs delta > 0, per='user' and a relation with a public number of users"
            )

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedPaper:
        self.check(request)
        return PreparedPaper(request=request, threshold=self.threshold, radius=self.radius)


@dataclass(frozen=True, kw_only=True)
class PreparedPaper(Prepared):
    request: Request
    threshold: float
    radius: float

    def law(self, table: PrivateTable) -> NoisySum:
        """The clipped location with noise as printed; users without a mean stand at 0, since the paper has none."""
        table = table.collected()
        means = np.clip(table.means.reshape(table.n_users, -1), -1e60, 1e60)
        means[table.counts == 0] = 0.0
        found = unsafe_paper_literal_diagnostics(
            means,
            threshold=self.threshold,
            radius=self.radius,
            epsilon=self.request.epsilon,
            delta=self.request.delta,
        )
        place: list[float] = np.atleast_1d(np.asarray(found.clipped)).tolist()
        return NoisySum(position=place, noise=NoiseLaw(kind="gaussian", scale=found.stddev))

    def outcome(self, draw: Any) -> Outcome:
        raise InputError("the paper's mechanism is not for releases; see hubermean.reproduce.paper_literal")
