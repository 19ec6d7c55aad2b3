"""Releases by group against one user: what may show who is in the data beside the sample."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import hubermean as hm
from hubermean.distributions.output import natural_sort_key

pytestmark = pytest.mark.usefixtures("seeded_releases")


@pytest.mark.parametrize("max_groups", [None, 1])
@pytest.mark.parametrize("alike", [["1", "01"], ["0", "-0"], ["007", "7"]])
def test_groups_that_are_the_same_integer_come_in_an_order_that_no_user_decides(
    alike: list[str], max_groups: int | None
) -> None:
    """Such as numbers of areas with and without a leading zero: without its first user, the data had them the other
    way round, and so had the release, with certainty."""
    users = range(600)
    given: Any = {"user": "user", "by": "place", "epsilon": 5, "delta": 1e-6, "max_groups": max_groups}
    orders = set()
    for places in (alike, alike[::-1]):
        data = pd.DataFrame({"user": users, "place": [places[user % 2] for user in users]})
        orders |= {hm.count(one, **given).keys for one in (data, data.iloc[1:])}
    assert len(orders) == 1
    assert sorted(*orders) == sorted((one,) for one in alike)


def test_different_groups_have_different_places_in_the_order() -> None:
    texts = ["0", "-0", "00", "1", "01", "+1", "1.0", "", "\u0661", "a", "A", "9" * 18, "9" * 19]
    assert len({natural_sort_key((text,)) for text in texts}) == len(texts)
    assert natural_sort_key(("2",)) < natural_sort_key(("10",)) < natural_sort_key(("a",))


@pytest.mark.parametrize("statistic", [hm.mean, hm.count])
def test_a_budget_too_small_to_select_groups_is_refused_before_it_is_spent(statistic: Any) -> None:
    """It ended in an error of the sampler, after the charge."""
    data = pd.DataFrame({"user": [1], "place": ["a"], "value": [1.0]})
    given = {"value": "value"} if statistic is hm.mean else {}
    with pytest.raises(hm.InputError, match="too small to select groups") as refused:
        statistic(data, user="user", by="place", epsilon=1e-6, delta=1e-6, **given)
    assert not isinstance(refused.value, hm.NotReleased)
