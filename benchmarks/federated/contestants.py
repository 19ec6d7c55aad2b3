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


Steps = Sequence[tuple[float, bool]]
"""Steps of the server, and whether they decay."""


def _steps(constant: Sequence[float], decaying: Sequence[float]) -> Steps:
    return [*((step, False) for step in constant), *((step, True) for step in decaying)]


def _grid(
    kind: str, steps: Steps, fixed: Mapping[str, Any] | None = None, /, **options: Sequence[Any]
) -> list[Rate]:
    return [
        Rate(
            kind=kind,
            step=step,
            decay=decay,
            options=dict(fixed or {}) | dict(zip(options, values, strict=True)),
        )
        for values in itertools.product(*options.values())
        for step, decay in steps
    ]


def _clip_grid(kind: str, option: str) -> list[Rate]:
    return [
        Rate(kind=kind, step=move / clip, decay=decay, options={option: clip})
        for clip in (0.1, 0.5)
        for move in (0.8, 1.6, 3.2, 6.4, 12.8)
        for decay in (False, True)
    ]


def _huber_grid() -> list[Rate]:
    last = _grid("hubermean", _steps((2.0, 4.0), (4.0, 8.0, 16.0)), {"center": "last"}, threshold=(0.1, 0.25))
    several = _grid("hubermean", _steps((4.0,), (8.0, 16.0, 32.0, 64.0)), {"threshold": 0.1}, steps=(2, 4))
    return [*last, *several]


_ADAPTIVE_STEPS = _steps((1.0, 2.0, 4.0, 8.0), (4.0, 8.0, 12.0, 16.0, 24.0, 32.0))
_WIDE_STEPS = _steps((2.0, 4.0, 8.0, 16.0), (4.0, 8.0, 16.0, 24.0, 32.0, 64.0))

CONTESTANTS: tuple[Contestant, ...] = (
    Contestant(
        name=DEFAULT,
        what="`PrivateAverage` with its defaults; what it returns is added to the model. Nothing is tuned.",
        private=True,
        rates=[Rate(kind="hubermean", step=1.0)],
    ),
    Contestant(
        name="hubermean, small clip",
        what="`PrivateAverage(threshold=T)`.",
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
        what="`PrivateAverage(threshold=AdaptiveThreshold(target=q, fraction=1), step_size=1)`.",
        private=True,
        rates=_grid("hubermean", _ADAPTIVE_STEPS, target=(0.1, 0.5)),
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
        rates=_grid("flower-adaptive", _WIDE_STEPS, clip=(0.25, 0.5)),
    ),
    Contestant(
        name="adaptive clip, sign corrected",
        what="the same with the sign of Andrew et al. (2021).",
        private=True,
        rates=_grid("flower-adaptive", _ADAPTIVE_STEPS, {"corrected": True}, quantile=(0.1, 0.5)),
    ),
    Contestant(
        name="geometric median",
        what="byzfl's `GeometricMedian`.",
        private=False,
        rates=_grid("geometric-median", _ADAPTIVE_STEPS, smoothing=(0.03, 0.1)),
    ),
    Contestant(
        name="centered clipping",
        what="byzfl's `CenteredClipping`.",
        private=False,
        rates=_grid("centered-clipping", _WIDE_STEPS, clip=(0.1, 0.25)),
    ),
    Contestant(
        name="plain mean",
        what="the mean of all updates, neither private nor robust.",
        private=False,
        rates=_grid(
            "mean", [(0.5 * 2.0 ** (place / 2), decay) for place in range(10) for decay in (False, True)]
        ),
    ),
)
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}
