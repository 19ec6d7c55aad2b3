"""Who is compared, and between which ways to run each the tuning chooses: twenty for everybody.

Thresholds are in lengths of an update and go with steps of which threshold times step, the length of a full move, spans
the same range for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federated.training import Rate

DEFAULT = "hubermean, defaults"
PRIVATE_BASELINES = ("Flower, fixed clip", "Flower, adaptive clip", "adaptive clip, sign corrected")
CHOICES = 20
"""Ways to run each tuned contestant."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Attributes:
    name: on the page.
    what: one sentence for the page.
    private: whether it satisfies differential privacy.
    rates: the ways to run it; one where nothing is tuned.
    """

    name: str
    what: str
    private: bool
    rates: Sequence[Rate]


def _grid(
    kind: str, server_steps: Sequence[float], fixed: Mapping[str, Any] | None = None, /, **options: Sequence[Any]
) -> list[Rate]:
    return [
        Rate(kind=kind, step=step, options=dict(fixed or {}) | dict(zip(options, values, strict=True)))
        for values in itertools.product(*options.values())
        for step in server_steps
    ]


def _clip_grid(kind: str, option: str) -> list[Rate]:
    return [
        Rate(kind=kind, step=move / clip, options={option: clip})
        for clip in (0.1, 0.25, 0.4, 0.6, 1.0)
        for move in (0.2, 0.4, 0.8, 1.6)
    ]


def _huber_grid() -> list[Rate]:
    last = _grid("hubermean", (1.0, 2.0, 4.0), {"center": "last"}, threshold=(0.05, 0.1, 0.25, 0.5))
    steps = _grid("hubermean", (2.0, 4.0), steps=(2, 4), threshold=(0.1, 0.25))
    return [*last, *steps]


CONTESTANTS: tuple[Contestant, ...] = (
    Contestant(
        name=DEFAULT,
        what="`PrivateAverage` with its defaults: an adaptive threshold. Nothing is tuned.",
        private=True,
        rates=[Rate(kind="hubermean", step=1.0)],
    ),
    Contestant(
        name="hubermean, small clip",
        what="`PrivateAverage(threshold=T, center='zero')`.",
        private=True,
        rates=_clip_grid("hubermean", "threshold"),
    ),
    Contestant(
        name="hubermean, Huber center",
        what="`PrivateAverage(threshold=T)` around the last average, or with two or four steps from zero.",
        private=True,
        rates=_huber_grid(),
    ),
    Contestant(
        name="hubermean, adaptive",
        what="`PrivateAverage` with the target quantile of its adaptive threshold and its step tuned.",
        private=True,
        rates=_grid("hubermean", (1.0, 2.0, 3.0, 4.0, 6.0), target=(0.1, 0.25, 0.5, 0.75)),
    ),
    Contestant(
        name="Flower, fixed clip",
        what="`DifferentialPrivacyServerSideFixedClipping` around `FedAvg`.",
        private=True,
        rates=_clip_grid("flower-fixed", "clip"),
    ),
    Contestant(
        name="Flower, adaptive clip",
        what="`DifferentialPrivacyServerSideAdaptiveClipping` around `FedAvg`, as it is.",
        private=True,
        rates=_grid(
            "flower-adaptive", (1.0, 2.0, 4.0, 8.0, 16.0), clip=(0.25, 0.5), quantile=(0.5, 0.9)
        ),
    ),
    Contestant(
        name="adaptive clip, sign corrected",
        what="the same with the sign of Andrew et al. (2021).",
        private=True,
        rates=_grid(
            "flower-adaptive",
            (1.0, 2.0, 3.0, 4.0, 6.0),
            {"corrected": True},
            quantile=(0.1, 0.25, 0.5, 0.75),
        ),
    ),
    Contestant(
        name="geometric median",
        what="byzfl's `GeometricMedian`. Not private.",
        private=False,
        rates=_grid("geometric-median", (1.0, 1.5, 2.0, 3.0, 4.0), smoothing=(0.03, 0.1), steps=(3, 8)),
    ),
    Contestant(
        name="centered clipping",
        what="byzfl's `CenteredClipping`. Not private.",
        private=False,
        rates=_grid("centered-clipping", (1.0, 2.0, 3.0, 4.0, 6.0), clip=(0.1, 0.25, 0.5, 1.0)),
    ),
    Contestant(
        name="plain mean",
        what="the mean of all updates. Neither private nor robust.",
        private=False,
        rates=_grid("mean", [0.25 * 2.0 ** (place / 4) for place in range(CHOICES)]),
    ),
)
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}
