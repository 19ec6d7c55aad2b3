"""Arguments such as people give, and such as nobody should."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.draw import Draw
from hubermean.mechanisms.registry import REGISTRY

ORDINARY: dict[str, tuple[Any, ...]] = {
    "epsilon": (1, 0.5, 10.0, 1e-9, 1e9),
    "delta": (0, 1e-6, 0.01, 1e-100, 0.999),
    "per": ("record", "user"),
    "neighbors": ("replace-user", "add-remove", "replace-values"),
    "mechanism": tuple(REGISTRY),
    "bounds": ((-5, 5), (0, 1e12), [(-1, 1)], (-1e-9, 1e-9)),
    "max_records": (3, 1, 10**6, 2**40),
    "threshold": (2.0, 1e-6, 1e6),
    "scale": (1.0, 1e-3, [1.0]),
    "radius": (100.0, 1e9, 1e-3),
    "hostile": (0.0, 0.05, 0.5),
    "n_users": (60, 1, 10**9),
    "resolution": (0.01, 1, 1e-18),
    "non_finite": ("drop", "clamp"),
    "memory_limit": ("1GB",),
    "threads": (1, 2),
    "engine": ("duckdb",),
    "by": ("g", ["g"], ["g", "h"], "h"),
    "keys": (["x", "y"], {"g": ["x", "y"]}, [("x", 1)], [1, 2]),
    "max_groups": (1, 2, 10**6),
    "user": ("u", ["u"], ["u", "h"]),
    "value": ("v", ["v"], ["v", "w"]),
    "of": ("users", "records"),
    "columns": (1, 3, 10_000),
    "progress": (False, True),
}


ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        2**63,
        2**64,
        10**400,
        -(10**400),
        0.0,
        -0.0,
        float("nan"),
        float("inf"),
        -float("inf"),
    ),
    *(
        5e-324,
        1e308,
        "",
        "x",
        "\ud800",
        "a\nb",
        "1",
        "0x10",
        "nan",
        b"x",
        [],
        (),
        {},
        set(),
        [[]],
        [None],
        [1, 2, 3],
    ),
    *(
        (1,),
        (1, 1),
        (5, -5),
        (float("nan"), 1),
        (-1e308, 1e308),
        [(0, 1), (0, 1)],
        ["u", "u"],
        [1],
        [""],
        ["\0"],
    ),
    *(
        np.float64(0.5),
        np.int64(3),
        np.float32("nan"),
        np.bool_(True),
        np.array([1.0]),
        np.array([[0.0, 1.0]]),
    ),
    *(np.array(["a"]), np.array([None]), np.datetime64("2020-01-01"), np.longdouble(1), 1 + 2j, range(3)),
    *(
        decimal.Decimal("0.1"),
        decimal.Decimal("NaN"),
        decimal.Decimal("1e999999"),
        Fraction(1, 3),
        Fraction(10**400, 3),
    ),
    *(
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1),
        object(),
        type,
        len,
        Ellipsis,
        Path("canary.csv"),
    ),
    *(
        {"g": None},
        {"g": "xy"},
        {"g": []},
        {"v": 1},
        [("x",), ("y",)],
        [("x", 1, 2)],
        "0B",
        "1e9GB",
        "-1GB",
        "1 GB; x",
    ),
)


def arguments(draw: Draw, names: Iterable[str]) -> dict[str, Any]:
    """Some arguments; most of them such as people give, some not."""
    names = tuple(names)
    given: dict[str, Any] = {}
    for _ in range(draw.below(7)):
        given[draw.pick(names)] = None
    for name in given:
        kind = draw.below(8)
        if kind < 5:
            given[name] = draw.pick(ORDINARY.get(name, (1,)))
        elif kind == 5:
            given[name] = draw.real()
        elif kind == 6:
            given[name] = draw.text()
        else:
            given[name] = draw.pick(ODD)
    return given
