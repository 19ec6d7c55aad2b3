"""The mechanisms that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable

from hubermean.errors import InputError
from hubermean.mechanisms.adaptive import Adaptive
from hubermean.mechanisms.auto import Auto
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.estimated import by_name
from hubermean.mechanisms.exact import Exact
from hubermean.mechanisms.protocol import Known, Mechanism
from hubermean.mechanisms.smooth import Smooth
from hubermean.mechanisms.tested import Tested
from hubermean.mechanisms.winsorized import Winsorized

BY_NAME: dict[str, Callable[[Known], Mechanism]] = {
    "adaptive": Adaptive.from_known,
    "auto": Auto.from_known,
    "clipped": Clipped.from_known,
    "exact": by_name(Exact),
    "smooth": by_name(Smooth),
    "tested": by_name(Tested),
    "winsorized": Winsorized.from_known,
}


def choose(mechanism: str | Mechanism, known: Known) -> Mechanism:
    """The mechanism of a name, made from what is known; or the caller's own object as it is."""
    if not isinstance(mechanism, str):
        if not all(hasattr(mechanism, needed) for needed in ("name", "check", "prepare")):
            raise InputError("mechanism must be a name, or an object with name, check and prepare")
        known.only(of=mechanism.name)
        return mechanism
    if mechanism not in BY_NAME:
        names = ", ".join(repr(name) for name in BY_NAME)
        raise InputError(f"mechanism must be one of {names}, not {mechanism!r}")
    return BY_NAME[mechanism](known)
