"""`auto`: the mechanism of least predicted error, chosen from public numbers before any private one is seen.

Something not known calls for `adaptive`, bounds for `clipped`. A threshold and a radius leave a choice: `exact` works
column by column, without delta and without a smallest number of users; `tested` and `smooth` release all columns
jointly and need delta > 0; `winsorized` is the two-stage baseline. Every candidate that can serve predicts its noise
from the request and from what the neighbour relation makes public, and the least total variance over the columns wins.
Neighbours have the same request and the same public facts, hence the same choice. Where `tested` would have to measure
the total weight, the choice between it and `exact` is made anew from what was measured (`weighed`), so that a wrong
guess costs no refusal. Why `tested` column by column is no candidate: docs/planning.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.laws import Law
from hubermean.mechanisms.adaptive import Adaptive
from hubermean.mechanisms.adaptive.known import is_one_sided
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.exact import Exact
from hubermean.mechanisms.protocol import Known, Mechanism, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.smooth import Smooth
from hubermean.mechanisms.tested import PreparedTested, Tested
from hubermean.mechanisms.weighed import PreparedWeighed
from hubermean.mechanisms.weights import check_estimate
from hubermean.mechanisms.winsorized import Winsorized
from hubermean.user_table import PrivateTable

# In this order where predictions are alike: `exact` asks nothing of the data, `tested` offers an interval.
_WITH_BOUNDS: tuple[Callable[[Known], Mechanism], ...] = (Clipped.from_known,)
_WITH_THRESHOLD: tuple[Callable[[Known], Mechanism], ...] = (
    Exact.from_known,
    Tested.from_known,
    Smooth.from_known,
    Winsorized.from_known,
)


# Predictions are not so exact that less of a difference in noise would mean anything.
WORTHWHILE = 7 / 8


@dataclass(frozen=True, kw_only=True)
class Option:
    """What one mechanism would do: prepared, with its predicted noise; or why it cannot serve."""

    mechanism: Mechanism
    prepared: Prepared | None = None
    noise: tuple[float, ...] = ()
    refusal: InputError | None = None

    @classmethod
    def of(cls, mechanism: Mechanism, request: Request, facts: PublicFacts) -> Option:
        """From public numbers alone."""
        try:
            prepared = mechanism.prepare(request, facts)
            return cls(mechanism=mechanism, prepared=prepared, noise=prepared.predicted_noise())
        except InputError as refusal:
            return cls(mechanism=mechanism, refusal=refusal)

    @property
    def variance(self) -> float:
        """The predicted variance, all columns together."""
        return sum(stddev * stddev for stddev in self.noise)


def best_option(options: Iterable[Option], *, delta: float) -> Option | None:
    """The option of least predicted noise; None where no mechanism can serve.

    An option goes before later ones that do not have at least an eighth less noise. Without delta `exact` always goes
    before `winsorized`.
    """
    serving = [option for option in options if option.refusal is None]
    if delta == 0.0 and any(option.mechanism.name == "exact" for option in serving):
        serving = [option for option in serving if option.mechanism.name != "winsorized"]
    best = None
    for option in serving:
        if best is None or option.variance < WORTHWHILE**2 * best.variance:
            best = option
    return best


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The best of several mechanisms, by prediction.

    Formal guarantees:
    - those of the mechanism that is chosen; its name is in the release;
    - the choice is a function of the request and of `PublicFacts`, and of the total weight only where that was measured
      and is in the release. Under `add-remove`, where the number of users is private, it is made for `n_users`, the
      caller's public estimate, or else for `PublicFacts.planned_users`, a public constant.
    """

    candidates: Sequence[Mechanism]
    adaptive: Adaptive | None = None
    n_users: int | None = None
    name = "auto"

    @classmethod
    def from_known(cls, known: Known) -> Auto:
        adaptive = Adaptive.from_known(known)
        spread_known = known.threshold is not None and known.radius is not None
        only_adaptive = known.scale is not None or bool(known.hostile) or is_one_sided(known.bounds)
        if only_adaptive or (known.bounds is None and not spread_known):
            return cls(candidates=(adaptive,))
        # What it is about is the choice; the candidates themselves take no estimate of the number of users.
        users, known = known.n_users, replace(known, n_users=None)
        made, refusals = [], []
        for make in _WITH_BOUNDS if known.bounds is not None else _WITH_THRESHOLD:
            try:
                made.append(make(known))
            except InputError as refusal:
                refusals.append(refusal)
        if not made:
            raise refusals[0]
        return cls(candidates=tuple(made), adaptive=adaptive, n_users=users)

    def able(self, request: Request) -> Sequence[Mechanism]:
        """The candidates that know all they need; `adaptive` where none does, since it finds what is not known."""
        check_estimate(self.n_users, request)
        refusals = []
        able = []
        for candidate in self.candidates:
            try:
                candidate.check(request)
                able.append(candidate)
            except InputError as refusal:
                refusals.append(refusal)
        if (
            not able
            and self.adaptive is not None
            and request.per == "record"
            and self.adaptive.record_cap is None
        ):
            self.adaptive.check(request)
            return (self.adaptive,)
        if not able:
            raise refusals[0]
        return able

    def check(self, request: Request) -> None:
        """Refuse what no candidate can do."""
        self.able(request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAuto:
        candidates = self.able(request)
        if self.n_users is not None:
            facts = replace(facts, planned_users=self.n_users)
        if len(candidates) == 1:  # nothing to compare
            (only,) = candidates
            return PreparedAuto(mechanism=only.name, inner=only.prepare(request, facts))
        options = [Option.of(candidate, request, facts) for candidate in candidates]
        best = best_option(options, delta=request.delta)
        if best is None or best.prepared is None:
            raise options[0].refusal or InputError("no mechanism can serve; name one with mechanism=")
        inner = _with_exact_behind(best.prepared, candidates, facts)
        return PreparedAuto(mechanism=best.mechanism.name, inner=inner)


def _with_exact_behind(chosen: Prepared, candidates: Sequence[Mechanism], facts: PublicFacts) -> Prepared:
    """`tested` with `exact` to fall back on where the weight is private, if `exact` can serve; else as it is."""
    if isinstance(chosen, PreparedTested) and chosen.weighing is not None:
        left = replace(chosen.request, epsilon=chosen.epsilon)
        for candidate in candidates:
            if isinstance(candidate, Exact):
                with contextlib.suppress(InputError):
                    return PreparedWeighed(tested=chosen, exact=candidate.prepare(left, facts))
    return chosen


@dataclass(frozen=True, kw_only=True)
class PreparedAuto(Prepared):
    """The mechanism that was chosen; the release carries its name, or that of the one a measured weight called for."""

    mechanism: str
    inner: Prepared

    def predicted_noise(self) -> tuple[float, ...]:
        return self.inner.predicted_noise()

    def law(self, table: PrivateTable) -> Law:
        return self.inner.law(table)

    def concentrated(self) -> Fraction | None:
        return self.inner.concentrated()

    def claims(self, law: Law, neighbour: Law) -> Mapping[str, float]:
        return self.inner.claims(law, neighbour)

    def is_adaptive(self) -> bool:
        return self.inner.is_adaptive()

    def users_to_audit(self) -> int:
        return self.inner.users_to_audit()

    def outcome(self, draw: Any) -> Outcome:
        made = self.inner.outcome(draw)
        parameters = {**made.parameters, "chosen_by": "auto"}
        return replace(made, mechanism=made.mechanism or self.mechanism, parameters=parameters)
