"""Records of income by user, for drawing simulated worlds from. Nothing here is private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

INSTALL = "pip install 'hubermean[reproduce]'"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IncomeRecords:
    """Real records of income, those of one user next to each other. The arrays are read-only, no user id is kept.

    Attributes:
        values: the records, shape (N,), in the unit of the source.
        starts: where the records of each user begin in `values`, shape (n,).
        sizes: how many records each user has, at least one, shape (n,).
        variable: the name of the variable, as its source spells it.
        user: what a user is: a person, a household, ...
        source: what the records are and where they come from, in plain words.
        licence: on what terms they may be used.
        missing: how many records were left out, for want of a value or of a user.
        top_coded: how many records share the largest value. Where the source has one top code for all these are the
            records at it; where it has one for each state or year, only those at the largest.

    The representation shows none of the values.
    """

    values: FloatArray
    starts: IntArray
    sizes: IntArray
    variable: str
    user: str
    source: str
    licence: str
    missing: int
    top_coded: int

    def __post_init__(self) -> None:
        for array in (self.values, self.starts, self.sizes):
            array.flags.writeable = False

    @classmethod
    def grouped(
        cls,
        values: FloatArray,
        users: IntArray | None,
        *,
        variable: str,
        user: str,
        source: str,
        licence: str,
        missing: int,
    ) -> Self:
        """From finite records in any order and a number for the user of each; None where each is a user.

        Records of one user keep their order, users come in the order of their numbers.
        """
        if not len(values):
            raise InputError(f"there is no usable record of {variable}; give data that hold some")
        if users is None:
            ordered, sizes = values.copy(), np.ones(len(values), dtype=np.int64)
        else:
            ordered = values[np.argsort(users, kind="stable")]
            sizes = np.unique(users, return_counts=True)[1].astype(np.int64)
        return cls(
            values=ordered,
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            variable=variable,
            user=user,
            source=source,
            licence=licence,
            missing=missing,
            top_coded=int(np.count_nonzero(ordered == ordered.max())),
        )

    @property
    def mean(self) -> float:
        """The mean over records."""
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation over records, of the records as a population."""
        return float(self.values.std())

    def __repr__(self) -> str:
        return (
            f"IncomeRecords(variable={self.variable!r}, user={self.user!r}, records={len(self.values):,}, "
            f"users={len(self.sizes):,}, values not shown)"
        )
