"""Delta(D) from a witness: a data set D* that shows how few users need to change (Zhao et al. 2024, eq. delta,
deltaunb).
The paper defines Delta(D) and gives no algorithm. `outliers.outliers_bound` stands in for it where the proof of
smoothness is to hold; it can be far above Delta, and noise with it. Here the answer is close to Delta and never
below: what the print would do, for measuring its error. It is not Lipschitz, so no proof covers the noise it leads
to."""

from __future__ import annotations

import numpy as np

from hubermean.location import huber_location
from hubermean.reproduce.imbalance import Floats, Users
from hubermean.reproduce.outliers import h


def witnessed_outliers(users: Users, points: Floats) -> int | None:
    """The least number of outermost users whose replacement is seen to concentrate the data; None where none can.

    The r users of least slack at the Huber location are replaced by users at c, the weighted mean of those who stay.
    Then c is the weighted mean of D* as well, and Z_i(D*) is |y_i - c| for those who stay, 0 for the others: the
    condition is checked for this D*. Values from the horizon on, n/4 or k_0, mean the same to Definitions G and Gunb:
    case (b) is void.

    >>> users = Users.balanced(100, 1.0)
    >>> tight = np.zeros((100, 2))
    >>> witnessed_outliers(users, tight)
    0
    >>> tight[:3] = 1e6
    >>> witnessed_outliers(users, tight)
    3
    """
    if users.k_0 is not None and not _concentrated(users, np.zeros(users.n_users)):
        return None  # not even n equal users satisfy the condition
    horizon = users.n_users // 4 if users.k_0 is None else users.k_0
    centre = huber_location(points, weights=users.weights, thresholds=users.thresholds).point
    slack = users.thresholds - _distances(points, np.atleast_1d(np.asarray(centre)))
    outermost_first = np.argsort(slack, kind="stable")
    fewest, enough = -1, horizon
    while enough - fewest > 1:
        middle = (fewest + enough) // 2
        if _shows(users, points, outermost_first[middle:]):
            enough = middle
        else:
            fewest = middle
    return enough


def _shows(users: Users, points: Floats, kept: np.ndarray) -> bool:
    weights = users.weights[kept] / np.sum(users.weights[kept])
    distances = np.zeros(users.n_users)
    distances[kept] = _distances(points[kept], weights @ points[kept])
    return _concentrated(users, distances)


def _concentrated(users: Users, distances: Floats) -> bool:
    """Z(D*) < T/2 for equal users; h(D*, k_0) < min_i(T_i - Z_i(D*)) for unequal ones."""
    if users.k_0 is None:
        return bool(np.max(distances) < users.thresholds[0] / 2.0)
    return bool(h(users, distances, users.k_0) < np.min(users.thresholds - distances))


def _distances(points: Floats, centre: Floats) -> Floats:
    offsets = points - centre
    found: Floats = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
    return found
