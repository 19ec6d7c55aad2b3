"""Requests and public facts without data, for tests of predictions; no test here."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hubermean.data.user_table import UserTable
from hubermean.types.request import Column, Neighbors, PublicFacts, Request


def request(
    dimension: int,
    *,
    delta: float = 1e-5,
    epsilon: float = 1.0,
    relation: Neighbors = Neighbors.REPLACE_USER,
    per: str = "user",
) -> Request:
    columns = UserTable.from_means(np.zeros((1, dimension))).columns
    return Request(columns=columns, epsilon=epsilon, delta=delta, neighbors=relation, per=per)  # type: ignore[arg-type]


def facts(asked: Request, n_users: int) -> PublicFacts:
    return PublicFacts(
        columns=tuple(Column(name=name, limit=Fraction(10**13)) for name in asked.columns),
        n_users=n_users if asked.neighbors.users_are_public else None,
        record_counts=None,
        planned_users=n_users,
    )
