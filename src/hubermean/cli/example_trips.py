"""Made-up trips for the demo. They are about nobody, so their true mean may be shown."""

from __future__ import annotations

from typing import Any

import numpy as np

SEED = 2024
RIDERS = 4_000
CITIES = ("Arden", "Brook", "Cliff", "Dunes", "Ember")
_DEAREST_CITY, _CHEAPEST_CITY = 1.25, 0.85


def example_trips() -> Any:
    """Return a PyArrow table of `rider_id`, `city`, `fare` and `minutes`, the same every time.

    Riders take one to several hundred trips; fares have a heavy tail, and some riders pay ten times what others do.
    """
    import pyarrow as pa

    generator = np.random.default_rng(SEED)
    trips = np.minimum(np.ceil(generator.pareto(1.3, RIDERS) * 4.0), 400).astype(np.int64)
    rider = np.repeat(np.arange(RIDERS), trips)
    home = np.repeat(generator.integers(0, len(CITIES), RIDERS), trips)
    usual = np.repeat(generator.lognormal(0.0, 0.35, RIDERS), trips)
    minutes = np.round(generator.gamma(3.0, 6.0, len(rider)) * usual + 3.0, 1)
    dearness = np.linspace(_DEAREST_CITY, _CHEAPEST_CITY, len(CITIES))[home]
    fare = np.round((2.5 + 0.55 * minutes * generator.lognormal(0.0, 0.3, len(rider))) * dearness, 2)
    order = generator.permutation(len(rider))
    return pa.table(
        {
            "rider_id": rider[order] + 10_000,
            "city": np.array(CITIES)[home[order]],
            "fare": fare[order],
            "minutes": minutes[order],
        }
    )
