"""Records in groups, and what is kept of them, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from hubermean.ingest.reading import group_table
from hubermean.types.request import Neighbors, Request

RELATIONS = [one.value for one in Neighbors]


def records(n_users: int = 300, groups: int = 5, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.integers(1, 9, n_users))
    return pa.table(
        {
            "user": users,
            "group": rng.choice([f"g{number}" for number in range(groups)], len(users)),
            "value": rng.normal(10, 3, len(users)),
        }
    )


def shares(data: Any, **options: Any) -> dict[tuple[Any, ...], list[tuple[float, int]]]:
    given = {"by": ["group"], "keys": None, "max_groups": 2, **options}
    table = group_table(data, user=["user"], value=["value"], **given)
    return {
        key: sorted(zip(own.means.tolist(), own.counts.tolist(), strict=True))
        for key, own in zip(table.keys, table.tables(), strict=True)
    }


def request(neighbors: str, *, epsilon: float = 1.0, delta: float = 0.0) -> Request:
    return Request.checked(("value",), epsilon=epsilon, delta=delta, per="user", neighbors=neighbors)
