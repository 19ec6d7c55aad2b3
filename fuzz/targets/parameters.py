"""Arguments of the front doors and of the command line: refused in one sentence, or a release with noise in it."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hubermean as hm
from fuzz.arguments import ODD, arguments
from fuzz.command_line import CELL, ROWS, check_command, small_table
from fuzz.draw import Draw
from fuzz.pages import Skeleton, check_page
from fuzz.randomness import CountedNoise, drawn_from
from fuzz.releases import check_release
from fuzz.surroundings import working_folder
from fuzz.violation import require, result_or_refusal
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable

DICTIONARY = (
    *(
        b"<script>",
        b"</title>",
        b'" onload="',
        b"&lt;",
        b"\x1b[31m",
        b"\xe2\x80\xae",
        b"--json",
        b"--report",
        b"[bold]",
    ),
    *(
        b"</svg>",
        b"<!--",
        b"]]>",
        b"%s",
        b"{0}",
        b"\xed\xa0\x80",
        b"nan",
        b"1e309",
        b"\n",
        b"\x00",
        b"'",
        b"../",
    ),
)
_ENOUGH: tuple[dict[str, Any], ...] = (
    {},
    {"bounds": (-5, 5), "max_records": 3},
    {"threshold": 2, "radius": 100, "max_records": 3},
    {"per": "user", "bounds": (-5, 5)},
    {"per": "user", "threshold": 2, "radius": 100, "delta": 1e-6},
)
"""What is known, in calls that are not refused for the lack of it."""


def check(data: bytes) -> None:
    draw = Draw(data)
    made = draw.pick((_mean, _count, _of_means, _plan, check_command, _page))
    with working_folder() as folder:
        made(draw, folder)


# --- Python -----------------------------------------------------------------------------------------------------------


_KNOWN = (
    "epsilon",
    "delta",
    "per",
    "neighbors",
    "mechanism",
    "bounds",
    "max_records",
    "threshold",
    "scale",
    "radius",
)
_MEAN = (
    *_KNOWN,
    "hostile",
    "n_users",
    "resolution",
    "non_finite",
    "memory_limit",
    "threads",
    "by",
    "keys",
    "max_groups",
    "engine",
)


def _mean(draw: Draw, folder: Path) -> None:
    table, enough = small_table(draw.pick(ROWS)), draw.pick(_ENOUGH)
    more = arguments(draw, (*_MEAN, "user", "value", "progress"))
    given = {"user": "u", "value": "v", "epsilon": 1, **enough, **more}
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        release = result_or_refusal(lambda: hm.mean(table, **given), hidden=[CELL])
    if release is not None:
        check_release(release, noise)


def _count(draw: Draw, folder: Path) -> None:
    names = (
        "epsilon",
        "delta",
        "of",
        "value",
        "by",
        "keys",
        "max_groups",
        "neighbors",
        "max_records",
        "user",
        "threads",
        "engine",
    )
    given = {"user": "u", "epsilon": 1, **arguments(draw, names)}
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        release = result_or_refusal(lambda: hm.count(small_table(), **given), hidden=[CELL])
    if release is not None:
        check_release(release, noise)


def _of_means(draw: Draw, folder: Path) -> None:
    enough = draw.pick(_ENOUGH)
    given = {"epsilon": 1, **enough, **arguments(draw, (*_KNOWN, "hostile", "n_users"))}
    counts: Any = None
    match draw.below(6):
        case 0:
            means: Any = [draw.real() for _ in range(draw.below(20))]
        case 1:
            means = np.array([[draw.real(), draw.real()] for _ in range(draw.below(12))])
        case 2:
            means = [draw.pick(ODD) for _ in range(draw.below(6))]
        case 3:
            means = draw.pick(ODD)
        case 4:
            means = np.frombuffer(
                draw.take(48), dtype=draw.pick(("f8", "f4", "i8", "u8", "u1", "?", "i2", "f2"))
            )
        case _:
            means = np.linspace(-3, 3, 80)
            counts = np.arange(80)
    if draw.below(3) == 2:
        counts = draw.pick(
            (draw.pick(ODD), [draw.signed(64) for _ in range(len(means) if hasattr(means, "__len__") else 2)])
        )
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        release = result_or_refusal(lambda: hm.mean_of_user_means(means, counts, **given))
    if release is not None:
        check_release(release, noise)


def _plan(draw: Draw, folder: Path) -> None:
    names = (*_KNOWN, "n_users", "columns")
    given = {
        "n_users": 1000,
        "epsilon": 1,
        **arguments(draw, [name for name in names if name != "mechanism"]),
    }
    comparison = result_or_refusal(lambda: hm.plan(**given))
    if comparison is not None:
        json.loads(comparison.to_json())
        require(len(repr(comparison).splitlines()) > 3, "a plan can be shown")
        Skeleton(comparison._repr_html_())


# --- pages ------------------------------------------------------------------------------------------------------------


def _page(draw: Draw, folder: Path) -> None:
    """A release under hostile names, of columns, groups and files."""
    grouped, columns = draw.flag(), 1 + draw.below(3)
    names = tuple(draw.text(60) for _ in range(columns))
    source = draw.text(60) if draw.flag() else None
    title = draw.text(60) if draw.flag() else None
    release = _releases()[2 * (columns - 1) + grouped]
    if isinstance(release, ReleaseTable):
        by = tuple(draw.text(30) for _ in release.by)
        key = draw.pick(
            (draw.text(60), draw.signed(64), datetime.date(1, 1, 1), decimal.Decimal("NaN"), True, None)
        )
        keys = tuple((f"{number}", key) if number else (key, key) for number in range(len(release.keys)))
        keys = tuple(key[: len(by)] for key in keys)
        made: Any = replace(release, columns=names, by=by, keys=keys)
        if len(set(by)) != len(by):
            return
    else:
        made = replace(release, columns=names)
    check_page(made, source=source, title=title)
    repr(made)
    json.loads(made.to_json())


_made: list[Release | ReleaseTable] = []


def _releases() -> list[Release | ReleaseTable]:
    """One release and one table for each number of columns; made once, and with seeded noise."""
    if not _made:
        with drawn_from(CountedNoise(1)):
            for columns in (["v"], ["v", "w"], ["v", "w", "h"]):
                known: dict[str, Any] = {
                    "user": "u",
                    "value": columns,
                    "epsilon": 9,
                    "bounds": (-5, 5),
                    "per": "user",
                }
                _made.append(hm.mean(small_table(), **known))
                by = (
                    {"by": ["g"], "keys": ["x", "y"]}
                    if columns != ["v"]
                    else {"by": ["g", "h2"], "keys": [("x", 1)]}
                )
                table = small_table().append_column("h2", small_table()["h"])
                _made.append(hm.mean(table, **known, **by))
    return _made


def seeds() -> Iterable[bytes]:
    """Every door with every argument, ordinary and odd."""
    for door in range(4):
        for number in range(24):
            for kind in (0, 7):
                yield bytes([door, 2, number, 0, kind, number * 5 % 80, kind, number % 5])
                yield bytes(
                    [door, 4, number, number + 3, number + 7, 1, 0, number % 6, 0, number, 0, 1, kind, number]
                )
    for command in range(4):
        for flag in range(27):
            for word in range(0, 60, 6):
                yield bytes(
                    [
                        4,
                        command,
                        0,
                        flag % 6 if flag % 2 else 0,
                        0,
                        1 + word % 2,
                        flag,
                        0,
                        word,
                        flag + 3,
                        0,
                        word + 1,
                    ]
                )
    markup = b"</title></svg><script>alert(1)</script>\"' onload=x &amp;\x1b[31m"
    for number in range(24):
        yield (
            bytes([5, number % 2, number % 3, len(markup)])
            + markup
            + bytes([number, 1, 20])
            + markup
            + bytes([1, 30])
            + markup
        )
