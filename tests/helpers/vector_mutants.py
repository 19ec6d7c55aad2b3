"""Slips planted in `norm-clipping`: what an audit must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.audit_mutants import Mutant
from hubermean.mechanisms.norm_clipping import steps, users
from hubermean.mechanisms.norm_clipping.estimate import VectorEstimate
from hubermean.mechanisms.norm_clipping.plan import Quantile, VectorPlan
from hubermean.mechanisms.norm_clipping.users import SumAlong, SumClipped

Patch = pytest.MonkeyPatch

# With a large epsilon few users are enough, and a pair is judged at once.
VECTORS: dict[str, Any] = {
    "mechanism": "norm-clipping",
    "epsilon": 6,
    "delta": 1e-4,
    "columns": 2,
    "neighbors": "add-remove",
}
# Nothing is searched for but the length, so a pair of a replacement is judged at once as well.
KNOWN: dict[str, Any] = {**VECTORS, "threshold": 1.0, "neighbors": "replace-user", "users": 260}
RECORDS: dict[str, Any] = {**VECTORS, "per": "record", "max_records": 5}


def noise_times(share: float, method: str) -> Callable[[Patch], None]:
    def broken(patch: Patch) -> None:
        made = getattr(VectorPlan, method)
        patch.setattr(
            VectorPlan,
            method,
            lambda self, *given: replace(right := made(self, *given), scale=right.scale * share),
        )

    return broken


def each_round_gets_everything(patch: Patch) -> None:
    """The noise of a round is that of the whole noise budget, though later rounds follow."""
    made = VectorPlan.noise_of_round
    patch.setattr(VectorPlan, "noise_of_round", lambda self, part: made(self, Fraction(1)))


def rounds_for_free(patch: Patch) -> None:
    """What a round took is not taken off what is left."""
    made = VectorEstimate.after_round
    patch.setattr(
        VectorEstimate,
        "after_round",
        lambda self, noisy: (
            found if (found := made(self, noisy)).left == 0 else replace(found, left=self.left)
        ),
    )


def searches_for_free(patch: Patch) -> None:
    """The searches are not taken off what is left for noise."""
    made = VectorPlan.pure_epsilon.fget  # type: ignore[attr-defined]
    patch.setattr(VectorPlan, "pure_epsilon", property(lambda self: made(self) - 3 * self.radius.epsilon))


def rate_of_a_search(patch: Patch) -> None:
    made = Quantile.sensitivity
    patch.setattr(Quantile, "sensitivity", lambda self, *, add_remove: made(self, add_remove=add_remove) // 2)


def one_change_for_a_replacement(patch: Patch) -> None:
    patch.setattr(VectorPlan, "changes", property(lambda self: 1))


def not_clipped(patch: Patch) -> None:
    """Users reach three times as far as noise was made for."""
    made = SumClipped.__call__

    def call(self: SumClipped, part: Any, lengths: Any = None) -> list[int]:
        lengths = self.view.lengths(part) if lengths is None else lengths
        return made(self, part, lengths / 3.0)

    patch.setattr(SumClipped, "__call__", call)


def records_not_bounded(patch: Patch) -> None:
    """Weights beyond the contribution bound, where vectors are clipped to the threshold all the same."""
    made = users.user_weights
    patch.setattr(users, "user_weights", lambda part, request, cap: made(part, request, 10 * cap))


def length_not_clipped(patch: Patch) -> None:
    made = SumAlong.__call__
    patch.setattr(
        SumAlong,
        "__call__",
        lambda self, part, lengths=None: [3 * made(self, part, lengths)[0], made(self, part, lengths)[1]],
    )


def noise_of_the_count_halved(patch: Patch) -> None:
    made = steps.CountUsers._noise
    patch.setattr(
        steps.CountUsers,
        "_noise",
        lambda self, found: replace(right := made(self, found), scale=right.scale / 2),
    )


def center_of_the_data(patch: Patch) -> None:
    """Vectors are clipped around the true mean, which nobody released."""
    made = SumClipped.__call__

    def call(self: SumClipped, part: Any, lengths: Any = None) -> list[int]:
        usable = part.counts > 0
        with np.errstate(all="ignore"):
            mean = np.where(usable[:, np.newaxis], part.matrix(), 0.0).sum(axis=0) / max(usable.sum(), 1)
        view = replace(self.view, center=np.nan_to_num(mean).astype(np.float32))
        return made(replace(self, view=view), part)

    patch.setattr(SumClipped, "__call__", call)


VECTOR_MUTANTS = [
    Mutant(name="rate of a search", broken=rate_of_a_search, audit=VECTORS, pairs=12),
    Mutant(name="half the noise of the count", broken=noise_of_the_count_halved, audit=VECTORS, pairs=6),
    Mutant(name="searches for free", broken=searches_for_free, audit=VECTORS, pairs=3),
    Mutant(
        name="half the noise of a round", broken=noise_times(0.5, "noise_of_round"), audit=KNOWN, pairs=12
    ),
    Mutant(
        name="half the noise of the length", broken=noise_times(0.5, "noise_along"), audit=KNOWN, pairs=12
    ),
    Mutant(name="each round gets everything", broken=each_round_gets_everything, audit=KNOWN, pairs=12),
    Mutant(name="rounds for free", broken=rounds_for_free, audit=KNOWN, pairs=3),
    Mutant(name="one change for a replacement", broken=one_change_for_a_replacement, audit=KNOWN, pairs=12),
    Mutant(name="vectors not clipped", broken=not_clipped, audit=KNOWN, pairs=12),
    Mutant(name="length not clipped", broken=length_not_clipped, audit=KNOWN, pairs=12),
    Mutant(name="records not bounded", broken=records_not_bounded, audit=RECORDS, pairs=12),
    Mutant(name="center of the data", broken=center_of_the_data, audit=KNOWN, pairs=12),
]
