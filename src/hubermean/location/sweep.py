"""What is seen of all users from one centre: the gradient with its rounding error, the pull, the curvature.

Sums over users come first, since those of the parts of a table add up to those of the table; a sweep is what the sums
over all users say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hubermean.location.blocks import Problem, blocks, gradient_error
from hubermean.location.core import Core
from hubermean.location.floats import LOST_DISTANCE, SLACK, UNIT, length
from hubermean.location.rows import STRIP_ROWS, Floats, block_rows
from hubermean.location.sums import Compensated, added_up, strip_sum
from hubermean.threads import shared_out


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sums:
    """What some of the users add to a sweep; private. Sums of parts of a table add up to those of the table.

    `force` is sum a_i w_i u_i, minus the gradient; `pull` sum a_i w_i; `influence` sum a_i w_i r_i; `outside` sum
    a_i w_i u_i u_i^T / r_i^2 over the users beyond their threshold, which the Hessian lacks.
    """

    force: Floats
    pull: float
    influence: float
    outside: Floats | npt.NDArray[np.float32] | None

    @classmethod
    def nothing(cls, dimension: int, *, hessian: bool) -> Sums:
        """Of no users."""
        outside = np.zeros((dimension, dimension)) if hessian else None
        return cls(force=np.zeros(dimension), pull=0.0, influence=0.0, outside=outside)

    @classmethod
    def of(cls, problem: Problem, centre: Floats, *, hessian: bool) -> Sums:
        """In one pass over the users of `problem`."""
        d = problem.dimension
        force = Compensated(d)
        curvature = np.zeros((d, d)) if hessian else None
        pull = influence = 0.0
        gathered, rows = None, 0
        pull_buffer = np.empty(min(problem.n_users, block_rows(d)))
        for block in blocks(problem, centre):
            pulls = pull_buffer[: block.distances.shape[0]]
            # w = T / max(r, T): exactly 1 inside the threshold, and never a division by zero.
            np.maximum(block.distances, block.thresholds, out=pulls)
            np.divide(block.thresholds, pulls, out=pulls)
            if block.weights is not None:
                np.multiply(pulls, block.weights, out=pulls)
            pull += float(np.add.reduce(pulls))
            influence += float(pulls @ block.distances)
            part = strip_sum(pulls, block.offsets)
            # Blocks of few long rows are gathered first: to compensate for every one costs as much as the rest.
            gathered = part if gathered is None else np.add(gathered, part, out=gathered)
            rows += pulls.size
            if rows >= STRIP_ROWS:
                force.add(gathered)
                gathered, rows = None, 0
            if curvature is not None:
                outside = np.flatnonzero(block.distances > block.thresholds)
                if outside.size:
                    scaled = block.offsets[outside]
                    scaled *= (np.sqrt(pulls[outside]) / block.distances[outside])[:, None]
                    curvature += scaled.T @ scaled
        if gathered is not None:
            force.add(gathered)
        return cls(force=force.total(), pull=pull, influence=influence, outside=curvature)

    @classmethod
    def added(cls, parts: Sequence[Sums]) -> Sums:
        """Of all users, from those of each part; at least one part."""
        curvatures = [part.outside for part in parts if part.outside is not None]
        outside = np.add.reduce(curvatures, dtype=np.float64) if curvatures else None
        if outside is not None and outside.ndim == 1:
            d = parts[0].force.size
            full = np.zeros((d, d))
            full[np.triu_indices(d)] = outside
            outside = full + np.triu(full, 1).T
        return cls(
            force=added_up([part.force for part in parts]),
            pull=math.fsum(part.pull for part in parts),
            influence=math.fsum(part.influence for part in parts),
            outside=outside,
        )

    def light(self) -> Sums:
        """To be sent: half of the symmetric matrix, in single precision, since no guarantee rests on it."""
        if self.outside is None:
            return self
        return replace(self, outside=self.outside[np.triu_indices(self.force.size)].astype(np.float32))


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep:
    """What one pass at `centre` found. `error` bounds |gradient - exact gradient| (proof 3.3)."""

    centre: Floats
    gradient: Floats
    norm: float
    error: float
    pull: float  # sum a_i w_i, the curvature of the quadratic majoriser at the centre
    influence: float  # upper bound on sum a_i min(r_i, T_i)
    hessian: Floats | None

    @classmethod
    def of(
        cls,
        sums: Sums,
        centre: Floats,
        *,
        n_users: int,
        total_weight_bound: float,
        core: Core | None = None,
    ) -> Sweep:
        """From the sums over all users, or over all but those of a core.

        *Formal guarantees*
        - |gradient - G(centre)| <= error for the points as float64, whatever the order of summation inside a
          strip and however the users are divided into parts, with or without fused multiply-add (proof 3.3 and 3.4).
          The Hessian carries no guarantee and needs none.
        """
        d = centre.size
        force, pull = sums.force, sums.pull
        influence = sums.influence * SLACK + total_weight_bound * math.sqrt(d) * LOST_DISTANCE
        error = gradient_error(n_users, d, influence)
        if core is not None:
            more = core.force(centre)
            # One more addition (proof 2.8).
            error += core.force_error(centre) + SLACK * UNIT * (length(force) + length(more))
            force, pull = force + more, pull + core.weight
            influence += core.weight * core.threshold
        curvature = None if sums.outside is None else -sums.outside.astype(np.float64)
        if curvature is not None:
            curvature.flat[:: d + 1] += pull
        gradient = -force
        return cls(
            centre=centre,
            gradient=gradient,
            norm=length(gradient),
            error=error,
            pull=pull,
            influence=influence,
            hessian=curvature,
        )

    @property
    def norm_bound(self) -> float:
        """Upper bound on the norm of the exact gradient."""
        return self.norm * SLACK + self.error

    @property
    def floor(self) -> float:
        """Above this norm a step in float64 is sure to decrease the loss (proof 2.3)."""
        size = length(self.centre)
        return SLACK * 4.0 * (self.error + self.pull * UNIT * size)


def sweep(problem: Problem, centre: Floats, *, hessian: bool) -> Sweep:
    """Gradient, its error bound and (on request) the Hessian at `centre`, in one pass.

    At r_i = T_i exactly both branches of the loss agree; no case distinction is made on rounded numbers.
    """
    shares = shared_out(
        lambda share: Sums.of(problem.part(share), centre, hessian=hessian),
        problem.n_users,
        problem.dimension,
    )
    sums = shares[0] if len(shares) == 1 else Sums.added(shares)
    return Sweep.of(
        sums,
        centre,
        n_users=problem.n_users,
        total_weight_bound=problem.total_weight_bound,
        core=problem.core,
    )
