"""The mechanisms that can be chosen by name, one entry each, and `auto`, which chooses among them.

To add a mechanism, write a package with the protocol of `mechanisms.base` and add one entry to `_ENTRIES`. `mean` and
`audit` then take its name, `auto` and `plan` compare it with the others, the command line offers it, and the table of
mechanisms in the documentation lists it (`python docs/tools/mechanism_table.py --write`).

`auto` is resolved from public numbers before private data is read. It is `adaptive` unless bounds, or a threshold and a
radius, are given, and also where a scale, a share of hostile users or an open bound is, which only `adaptive` can use.
Else every mechanism of the registry whose needs are given predicts its noise from the request and from what the
neighbor relation makes public; the least total variance over the columns wins. For a mean over records without
`max_records`, none of them can serve where numbers of records are private: then it is `adaptive` again. For many
columns and delta > 0 `norm-clipping` takes the place of `adaptive`: where there are few users per column, or units of
columns are given. Neighboring data sets have the same request and the same public facts, hence the same choice.

Where `propose-test-release` has to measure the total weight, the choice between it and `inverse-sensitivity` is made
again from the measured weight, so that a wrong guess costs no refusal. Why `propose-test-release` column by column is
no candidate: docs/guides/planning.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from hubermean.data.user_table import PrivateTable
from hubermean.distributions.output import OutputDistribution
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.adaptive.parameters import is_one_sided
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.contributions import check_user_estimate
from hubermean.mechanisms.estimated_huber import make_factory
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.norm_clipping.mechanism import NormClipping
from hubermean.mechanisms.propose_test_release.fallback import PreparedWithFallback
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.types.dry_run import Prospect
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

Dashes = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class MechanismEntry:
    """What `mean`, `auto`, `plan`, the command line and the documentation need to know about a mechanism.

    Attributes:
        name: as in `mean(..., mechanism=name)`.
        make: makes the mechanism from public parameters; InputError for those that are missing or not used.
        summary: one line for the documentation.
        needs: public parameters that it needs.
        takes: public parameters that it uses where they are given, beside those it needs.
        estimates: whether it also runs without what it needs, after estimating it with a part of the budget.
        needs_delta: whether delta must be above 0. Without it the guarantee is epsilon-DP where delta is 0, and
            (epsilon, delta)-DP otherwise.
        relations: the neighbor relations that it supports.
        layout: whether several columns are released jointly or each on its own.
        in_auto: whether `auto` compares it with others, where what it needs is given.
        in_plan: whether a plan has a row for it.
        least_columns: from how many columns on it has one.
        yields_to: a mechanism that `auto` prefers without comparison where delta is 0.
        color, dashes: the line in the figure of a plan.
    """

    name: str
    make: Callable[[PublicParameters], Mechanism]
    summary: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ("max_records",)
    estimates: bool = False
    needs_delta: bool = False
    relations: tuple[Neighbors, ...] = tuple(Neighbors)
    layout: Literal["joint", "column by column"] = "column by column"
    in_auto: bool = True
    in_plan: bool = True
    least_columns: int = 1
    yields_to: str | None = None
    color: str = "#56B4E9"
    dashes: Dashes = "solid"

    @property
    def guarantee(self) -> str:
        """The guarantee in the notation of the field."""
        return (
            "(epsilon, delta)-DP" if self.needs_delta else "epsilon-DP, or (epsilon, delta)-DP with delta > 0"
        )


WIDE = 32
"""With more columns than this, and delta > 0, `auto` may release vectors as a whole. The number is public."""

MANY_PER_COLUMN = 64
"""From so many users times epsilon per column on, `adaptive` can search in each column by itself. Its noise is then two
to four times that of `norm-clipping` where all columns have one scale, but small in each column where they have not:
one noise for all drowns the columns of small scale."""

# `auto` and plans prefer earlier entries where predictions are about equal: `inverse-sensitivity` assumes nothing of
# the data, `propose-test-release` offers an interval. Colors of Okabe and Ito, which most color-blind people can tell
# apart, and different dashes for print.
_ENTRIES = (
    MechanismEntry(
        name="auto",
        make=lambda parameters: Auto.from_parameters(parameters),
        summary="Adaptive, or norm-clipping for wide data; with what others need, that of least predicted noise.",
        takes=("bounds", "max_records", "threshold", "scale", "radius", "hostile", "n_users"),
        in_auto=False,
        in_plan=False,
    ),
    MechanismEntry(
        name="adaptive",
        make=Adaptive.from_parameters,
        summary="Estimates bounds and a contribution bound privately, then releases a clipped mean.",
        takes=("bounds", "max_records", "threshold", "scale", "radius", "hostile", "n_users"),
        in_auto=False,
        color="#D55E00",
        dashes=(0, (6, 1.5, 1, 1.5, 1, 1.5)),
    ),
    MechanismEntry(
        name="norm-clipping",
        make=NormClipping.from_parameters,
        summary="Finds one threshold for whole vectors privately, then releases the mean of clipped vectors.",
        takes=("max_records", "threshold", "scale", "hostile", "n_users"),
        needs_delta=True,
        layout="joint",
        in_auto=False,
        least_columns=WIDE + 1,
        color="#56B4E9",
        dashes=(0, (1, 1.2, 6, 1.2)),
    ),
    MechanismEntry(
        name="clipped",
        make=Clipped.from_parameters,
        summary="Clips user means to public bounds and adds noise to their sum.",
        needs=("bounds",),
        color="#000000",
        dashes=(0, (1, 1.2)),
    ),
    MechanismEntry(
        name="inverse-sensitivity",
        make=make_factory(InverseSensitivity),
        summary="The Huber location of each column, by the exponential mechanism on inverse sensitivity.",
        needs=("threshold", "radius"),
        takes=("max_records", "threshold_power"),
        estimates=True,
        color="#0072B2",
    ),
    MechanismEntry(
        name="propose-test-release",
        make=make_factory(ProposeTestRelease),
        summary="The Huber location of all columns with Gaussian noise, after a private test of its stability.",
        needs=("threshold", "radius"),
        takes=("max_records", "threshold_power"),
        estimates=True,
        needs_delta=True,
        layout="joint",
        color="#009E73",
        dashes=(0, (6, 1.5)),
    ),
    MechanismEntry(
        name="smooth-sensitivity",
        make=make_factory(SmoothSensitivity),
        summary="The Huber location of all columns with noise scaled to its smooth sensitivity.",
        needs=("threshold", "radius"),
        takes=("max_records", "threshold_power", "n_users"),
        estimates=True,
        needs_delta=True,
        layout="joint",
        color="#E69F00",
        dashes=(0, (4, 1.5, 1, 1.5)),
    ),
    MechanismEntry(
        name="winsorized",
        make=Winsorized.from_parameters,
        summary="The two-stage baseline: a private interval per coordinate, then a clipped mean.",
        needs=("threshold", "radius"),
        relations=(Neighbors.REPLACE_USER, Neighbors.REPLACE_VALUES),
        layout="joint",
        yields_to="inverse-sensitivity",
        color="#CC79A7",
        dashes=(0, (2.5, 1.5)),
    ),
)

REGISTRY: dict[str, MechanismEntry] = {entry.name: entry for entry in _ENTRIES}
"""Every mechanism that has a name, in the order of help and tables."""


def resolve_mechanism(mechanism: str | Mechanism, parameters: PublicParameters) -> Mechanism:
    """Make the mechanism of a name from public parameters; an object of the caller's is returned as it is.

    Raises:
        InputError: an unknown name, an object without the protocol, or parameters that do not suit the mechanism.
    """
    if not isinstance(mechanism, str):
        if not all(hasattr(mechanism, needed) for needed in ("name", "check", "prepare")):
            raise InputError(
                f"{parameter('mechanism')} must be a name, or an object with name, check and prepare"
            )
        parameters.check_only(of=mechanism.name)
        return mechanism
    if mechanism not in REGISTRY:
        names = ", ".join(map(repr, REGISTRY))
        raise InputError(f"{parameter('mechanism')} must be one of {names}, not {mechanism!r}")
    return REGISTRY[mechanism].make(parameters)


# Predictions are not so exact that less of a difference in noise would mean anything.
WORTHWHILE = 7 / 8


@dataclass(frozen=True, kw_only=True)
class Option:
    """A mechanism as prepared for a request, with its predicted noise; or the reason why it cannot serve."""

    mechanism: Mechanism
    prepared: Prepared | None = None
    noise: tuple[float, ...] = ()
    refusal: InputError | None = None

    @classmethod
    def of(
        cls, mechanism: Mechanism, request: Request, facts: PublicFacts, *, scale: float | None = None
    ) -> Option:
        """Prepare a mechanism and predict its noise from public numbers; `scale` is that of user means, if assumed."""
        try:
            prepared = mechanism.prepare(request, facts)
            noise = prepared.predicted_noise() if scale is None else prepared.predicted_noise_at(scale)
            return cls(mechanism=mechanism, prepared=prepared, noise=noise)
        except InputError as refusal:
            return cls(mechanism=mechanism, refusal=refusal)

    @property
    def variance(self) -> float:
        """The predicted variance, summed over the columns."""
        return sum(stddev * stddev for stddev in self.noise)


def best_option(options: Iterable[Option], *, delta: float) -> Option | None:
    """Return the option of least predicted noise; None where no mechanism can serve.

    A later option replaces an earlier one only if its noise is at least an eighth lower. Where delta is 0, a mechanism
    does not compete with the one it yields to.
    """
    serving = {option.mechanism.name: option for option in options if option.refusal is None}
    best = None
    for name, option in serving.items():
        if delta == 0.0 and name in REGISTRY and REGISTRY[name].yields_to in serving:
            continue
        if best is None or option.variance < WORTHWHILE**2 * best.variance:
            best = option
    return best


def find_candidates(given: Collection[str]) -> list[MechanismEntry]:
    """Return the entries that `auto` compares where these parameters are given; none where it uses `adaptive`."""
    return [
        entry
        for entry in REGISTRY.values()
        if entry.in_auto and entry.needs and set(given).issuperset(entry.needs)
    ]


def takes_vectors(
    given: Collection[str], *, columns: int, epsilon: float, delta: float, users: float
) -> bool:
    """Return whether `auto` releases vectors as a whole where these parameters are given, and others have no say."""
    if columns <= WIDE or delta == 0.0 or not set(given).issubset(REGISTRY[NormClipping.name].takes):
        return False
    # A scale makes columns equal; a threshold is a length of vectors here.
    return not {"scale", "threshold"}.isdisjoint(given) or users * epsilon < MANY_PER_COLUMN * columns


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The best of several mechanisms, by predicted noise.

    Args:
        candidates: the mechanisms to compare.
        adaptive: takes over where no candidate has what it needs.
        vectors: public parameters of `norm-clipping`, which takes over from `adaptive` where `takes_vectors` says so.
        n_users: the caller's public estimate of the number of users, under `add-remove`.

    Formal guarantees:
    - those of the mechanism that is chosen; its name is in the release;
    - the choice is a function of the request and of `PublicFacts`, and of the total weight only where that was measured
      and is in the release. Under `add-remove`, where the number of users is private, it is made for `n_users`, the
      caller's public estimate, or else for `PublicFacts.planned_users`, a public constant.
    """

    candidates: Sequence[Mechanism]
    adaptive: Adaptive | None = None
    vectors: PublicParameters | None = None
    n_users: int | None = None
    name = "auto"

    @classmethod
    def from_parameters(cls, parameters: PublicParameters) -> Auto:
        adaptive = Adaptive.from_parameters(parameters)
        given = set(parameters.to_dict())
        # What only `adaptive` can use.
        only_adaptive = "scale" in given or bool(parameters.hostile) or is_one_sided(parameters.bounds)
        suited = find_candidates(given)
        if only_adaptive or not suited:
            takes = REGISTRY[NormClipping.name].takes
            vectors = parameters if given.issubset(takes) else None
            return cls(candidates=(adaptive,), vectors=vectors)
        # An estimate of the number of users guides the choice; the candidates themselves do not take one.
        parameters = replace(parameters, n_users=None)
        made, refusals = [], []
        for entry in suited:
            try:
                made.append(entry.make(parameters))
            except InputError as refusal:
                refusals.append(refusal)
        if not made:
            raise refusals[0]
        return cls(candidates=tuple(made), adaptive=adaptive, n_users=adaptive.n_users)

    def select_able(self, request: Request) -> Sequence[Mechanism]:
        """Return the candidates that can serve the request; `adaptive` where only a contribution bound is missing."""
        check_user_estimate(self.n_users, request)
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
            and self.adaptive.max_records is None
        ):
            self.adaptive.check(request)
            return (self.adaptive,)
        if not able:
            raise refusals[0]
        return able

    def check(self, request: Request) -> None:
        """Refuse what no candidate can do."""
        if self.vectors is not None and self._takes_vectors(request, users=0.0):
            NormClipping.from_parameters(self.vectors).check(request)
        self.select_able(request)

    def _takes_vectors(self, request: Request, *, users: float, delta: float | None = None) -> bool:
        return self.vectors is not None and takes_vectors(
            self.vectors.to_dict(),
            columns=len(request.columns),
            epsilon=request.epsilon,
            delta=request.delta if delta is None else delta,
            users=users,
        )

    def _users(self, facts: PublicFacts) -> float:
        """Return the number of users that choices assume: public, or the caller's estimate, or a public constant."""
        if facts.n_users is not None:
            return facts.n_users
        return (self.n_users if self.vectors is None else self.vectors.n_users) or facts.planned_users

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedAuto:
        if self.vectors is not None and self._takes_vectors(request, users=self._users(facts)):
            vectors = NormClipping.from_parameters(self.vectors)
            return PreparedAuto(mechanism=vectors.name, inner=vectors.prepare(request, facts))
        candidates = self.select_able(request)
        if self.n_users is not None:
            facts = replace(facts, planned_users=self.n_users)
        if len(candidates) == 1:  # nothing to compare
            (only,) = candidates
            with self._advise_vectors(request, users=self._users(facts)):
                return PreparedAuto(mechanism=only.name, inner=only.prepare(request, facts))
        options = [Option.of(candidate, request, facts) for candidate in candidates]
        best = best_option(options, delta=request.delta)
        if best is None or best.prepared is None:
            raise options[0].refusal or InputError(
                f"no mechanism can serve; name one with {parameter('mechanism')}"
            )
        inner = _add_fallback(best.prepared, candidates, facts)
        return PreparedAuto(mechanism=best.mechanism.name, inner=inner)

    @contextlib.contextmanager
    def _advise_vectors(self, request: Request, *, users: float) -> Iterator[None]:
        """Say what lets wide data be released as vectors, where `adaptive` refuses them."""
        try:
            yield
        except InputError as refusal:
            if self.vectors is None or len(request.columns) <= WIDE:
                raise
            if request.delta > 0.0:
                advice = f"with {parameter('scale')}, 1 if all columns have one unit,"
            elif self._takes_vectors(request, users=users, delta=1e-6):
                advice = f"with {parameter('delta')} > 0, for example 1e-6,"
            else:
                raise
            raise InputError(
                f"{refusal.message}; {advice} {len(request.columns):,} columns are released as one vector, which "
                "takes far fewer users"
            ) from None


def _add_fallback(chosen: Prepared, candidates: Sequence[Mechanism], facts: PublicFacts) -> Prepared:
    """Let `propose-test-release` fall back on `inverse-sensitivity` where the total weight is private."""
    if isinstance(chosen, PreparedProposeTestRelease) and chosen.weight_noise is not None:
        left = replace(chosen.request, epsilon=chosen.epsilon)
        for candidate in candidates:
            if isinstance(candidate, InverseSensitivity):
                with contextlib.suppress(InputError):
                    return PreparedWithFallback(
                        propose_test_release=chosen, inverse_sensitivity=candidate.prepare(left, facts)
                    )
    return chosen


@dataclass(frozen=True, kw_only=True)
class PreparedAuto(Prepared):
    """The chosen mechanism; the release carries its name, or that of the fallback a measured weight called for."""

    mechanism: str
    inner: Prepared

    def predicted_noise(self) -> tuple[float, ...]:
        return self.inner.predicted_noise()

    def distribution(self, table: PrivateTable) -> OutputDistribution:
        return self.inner.distribution(table)

    def concentrated(self) -> Fraction | None:
        return self.inner.concentrated()

    def concentrated_delta(self) -> float:
        return self.inner.concentrated_delta()

    def claims(self, distribution: OutputDistribution, neighbor: OutputDistribution) -> Mapping[str, float]:
        return self.inner.claims(distribution, neighbor)

    def is_adaptive(self) -> bool:
        return self.inner.is_adaptive()

    def prospect(self) -> Prospect:
        return replace(self.inner.prospect(), mechanism=self.mechanism)

    def users_to_audit(self) -> int:
        return self.inner.users_to_audit()

    def outcome(self, sample: Any) -> Outcome:
        made = self.inner.outcome(sample)
        parameters = {**made.parameters, "chosen_by": "auto"}
        return replace(made, mechanism=made.mechanism or self.mechanism, parameters=parameters)
