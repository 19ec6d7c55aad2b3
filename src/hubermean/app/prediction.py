"""The predicted error of a release against epsilon, from `plan` and public guesses alone, as a table and a picture."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hubermean.app.draft import Draft
from hubermean.errors import InputError
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.planning import plan
from hubermean.report.document import safe, tag
from hubermean.report.guarantee import certainty, percent_up
from hubermean.types.formatting import number
from hubermean.types.request import Neighbors, Request

OFFERED = (0.1, 0.3, 0.5, 1.0, 2.0, 3.0)
"""Values of epsilon that a form offers."""
_DRAWN = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
DEFAULT_USERS = 5_000
_HEIGHT, _AXIS, _LEFT = 180.0, 44, 13.0  # pixels, pixels, percent
_LOG_95 = math.log(20.0)  # a Laplace variable is within this many scales with probability 0.95


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a release with this epsilon may be expected to do.

    Attributes:
        error: how many times as large as without privacy the error is; of a count, how far it may be off. Infinite
            where a release would be refused; None where there is no prediction.
    """

    epsilon: float
    error: float | None
    is_count: bool = False

    @property
    def in_words(self) -> str:
        """The error as a phrase."""
        if self.error is None:
            return "no prediction"
        if math.isinf(self.error):
            return "refused: too few people"
        if self.is_count and self.error == 0.0:
            return "exact"
        if self.is_count:
            return f"± {number(float(f'{self.error:.2g}'))}"
        if self.error < 1.005:
            return "almost none"
        more = 100.0 * (self.error - 1.0)
        return f"{more:.2g}%" if more < 100 else f"{self.error:.2g} times as much"

    @property
    def risk(self) -> str:
        """How sure somebody may become who was 50% sure; of what: `report.guarantee.suspicion`."""
        return percent_up(certainty(self.epsilon))


def predict(draft: Draft, *, users: int, neighbors: str, epsilons: Sequence[float]) -> list[Prediction]:
    """Return a prediction for each epsilon, for about this many users, or users in a typical group."""
    return [_predict_one(draft, users, neighbors, epsilon) for epsilon in epsilons]


def predict_curve(draft: Draft, *, users: int, neighbors: str) -> list[Prediction]:
    """Return the predictions that a picture shows."""
    chosen = {draft.epsilon} if 0.01 <= draft.epsilon <= 20 else set()
    return predict(draft, users=users, neighbors=neighbors, epsilons=sorted({*_DRAWN, *chosen}))


def _predict_one(draft: Draft, users: int, neighbors: str, epsilon: float) -> Prediction:
    is_count = draft.statistic == "count"
    if is_count and draft.of == "records":
        return Prediction(epsilon=epsilon, error=None, is_count=True)
    if is_count and not draft.by and neighbors != Neighbors.ADD_REMOVE.value:
        return Prediction(epsilon=epsilon, error=0.0, is_count=True)  # the number of users is public
    try:
        part = _part_of_a_group(draft, neighbors, epsilon)
        if is_count:
            return Prediction(epsilon=epsilon, error=_LOG_95 / part, is_count=True)
        compared = plan(
            n_users=users,
            epsilon=part,
            delta=0.0,
            columns=max(len(draft.value), 1),
            per="user",
            neighbors=neighbors,
        )
        row = next(row for row in compared.rows if row.mechanism == "adaptive")
        return Prediction(epsilon=epsilon, error=row.over_non_private)
    except InputError:
        return Prediction(epsilon=epsilon, error=None, is_count=is_count)


def _part_of_a_group(draft: Draft, neighbors: str, epsilon: float) -> float:
    """Return the epsilon that serves one group; all of it without groups."""
    if not draft.by:
        return epsilon
    request = Request.checked(
        draft.value or ("users",),
        epsilon=epsilon,
        delta=draft.delta or 1e-6,
        per="user",
        neighbors=Neighbors(neighbors),
    )
    split = GroupBudgetSplit.of(request, max_groups=draft.max_groups or 1, groups=len(draft.keys) or None)
    return split.one_group().epsilon


# --- the picture ------------------------------------------------------------------------------------------------------


def draw_curve(curve: Sequence[Prediction], *, chosen: float, left: float | None) -> str:
    """Return a picture of the error against epsilon, both on logarithmic axes; empty where nothing is predicted.

    Args:
        curve: the predictions, in order.
        chosen: the epsilon that is marked.
        left: what is left of the budget, marked where it lies within the picture.
    """
    shown = [one for one in curve if one.error is not None and math.isfinite(one.error)]
    if len(shown) < 2 or shown[0].error == 0.0:
        return ""
    is_count = shown[0].is_count
    low, high = curve[0].epsilon, curve[-1].epsilon
    errors = [one.error or 1.0 for one in shown]
    bottom = 1.0 if not is_count else min(errors)
    top = max(min(max(errors), 100.0 * bottom), 2.0 * bottom)

    def x(epsilon: float) -> float:
        return _LEFT + (97.0 - _LEFT) * math.log(epsilon / low) / math.log(high / low)

    def y(error: float) -> float:
        along = math.log(min(error, top) / bottom) / math.log(top / bottom)
        return 8.0 + (_HEIGHT - 8.0) * (1.0 - along)

    parts = [_tick_up(y(one), _name_error(one, is_count)) for one in _ticks(bottom, top, is_count=is_count)]
    for epsilon in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
        if low <= epsilon <= high:
            along = f"{x(epsilon):.3f}%"
            parts.append(tag("line", x1=along, x2=along, y1=_HEIGHT, y2=_HEIGHT + 5, class_="base"))
            parts.append(
                tag(
                    "text", safe(f"{epsilon:g}"), x=along, y=_HEIGHT + 20, text_anchor="middle", class_="tick"
                )
            )
    parts.append(tag("line", x1=f"{_LEFT}%", x2="97%", y1=_HEIGHT, y2=_HEIGHT, class_="base"))
    parts.append(tag("text", "epsilon", x="97%", y=_HEIGHT + 38, text_anchor="end", class_="tick"))
    for one, then in itertools.pairwise(shown):
        ends = {"x1": f"{x(one.epsilon):.3f}%", "x2": f"{x(then.epsilon):.3f}%"}
        parts.append(tag("line", **ends, y1=y(one.error or 1.0), y2=y(then.error or 1.0), class_="step"))
    if left is not None and low < left < high:
        at = f"{x(left):.3f}%"
        parts.append(tag("line", x1=at, x2=at, y1=8, y2=_HEIGHT, class_="zero"))
        parts.append(tag("text", "left", x=at, y=20, dx=-5, text_anchor="end", class_="tick"))
    mark = next((one for one in shown if one.epsilon == chosen), None)
    if mark is not None:
        parts.append(tag("circle", cx=f"{x(chosen):.3f}%", cy=y(mark.error or 1.0), r=6.0, class_="dot"))
    title = "Predicted error against epsilon"
    words = "; ".join(f"epsilon {one.epsilon:g}: {one.in_words}" for one in shown)
    drawn = tag(
        "svg",
        tag("title", safe(title), id="curve-title"),
        tag("desc", safe(words), id="curve-desc"),
        *parts,
        width="100%",
        height=_HEIGHT + _AXIS,
        role="img",
        aria_labelledby="curve-title curve-desc",
        class_="chart curve",
    )
    meaning = (
        "Predicted distance from the true count that 95% of releases stay within"
        if is_count
        else "Predicted error of the mean: 1x is that of the same mean without privacy"
    )
    marked = f"; the dot is epsilon = {chosen:g}" if mark is not None else ""
    return tag("figure", drawn, tag("figcaption", safe(f"{meaning}{marked}.")))


def _ticks(bottom: float, top: float, *, is_count: bool) -> list[float]:
    exponent = math.floor(math.log10(bottom))
    steps = [factor * 10.0**power for power in range(exponent, exponent + 5) for factor in (1, 2, 5)]
    if not is_count and top <= 12:
        steps = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0]
    return [one for one in steps if bottom * 0.999 <= one <= top * 1.001]


def _name_error(error: float, is_count: bool) -> str:
    return f"± {number(error)}" if is_count else f"{error:g}x"


def _tick_up(y: float, text: str) -> str:
    line = tag("line", x1=f"{_LEFT}%", x2="97%", y1=y, y2=y, class_="grid")
    words = tag("text", safe(text), x=f"{_LEFT - 1.5}%", y=y, dy="0.35em", text_anchor="end", class_="tick")
    return line + words
