"""Means that are differentially private for whole people.

>>> import hubermean as hm
>>> release = hm.mean_of_user_means([4.1, 5.0, 3.7], per="user", bounds=(0, 10), epsilon=1e6)
>>> round(release.value, 3)
4.267
"""

from hubermean._version import __version__
from hubermean.api import mean, mean_of_user_means
from hubermean.errors import HubermeanError, InputError, NotReleased
from hubermean.ingest import sql
from hubermean.release import Release

__all__ = [
    "HubermeanError",
    "InputError",
    "NotReleased",
    "Release",
    "__version__",
    "mean",
    "mean_of_user_means",
    "sql",
]
