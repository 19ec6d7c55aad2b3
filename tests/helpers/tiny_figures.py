"""As few points and draws as a figure can be made of; no test here."""

import math
from dataclasses import replace

from hubermean_experiments.figures.panels import FULL

TINY = replace(
    FULL,
    name="tiny",
    users=(60,),
    records=(1, 5, 20),
    gammas=(1, 3),
    thresholds=(2.0, 8.0),
    tuning=(3, 6),
    batch=4,
    batches=1,
    precision=math.inf,
    most_batches=1,
)
