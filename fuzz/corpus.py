"""Keeping a corpus small: of all inputs, those that together reach every step of hubermean's that any reaches."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import hubermean
from fuzz import novelty, places, targets

MOST_INPUTS = 150
_OURS = os.path.dirname(os.path.abspath(hubermean.__file__)) + os.sep
Step = tuple[str, int, int]


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def add(folder: Path, inputs: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / name_of(data)).write_bytes(data)


def inputs(*folders: Path) -> list[bytes]:
    """All of them, each once, the shortest first."""
    held = {path.read_bytes() for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return sorted(held, key=lambda data: (len(data), data))


def seed(target: str) -> None:
    add(places.grown(target), targets.load(target).seeds())


def minimise(target: str) -> tuple[int, int]:
    """Replace the committed corpus by a small one that reaches as much; (inputs kept, inputs there were)."""
    folder = places.committed(target)
    held = inputs(folder, places.grown(target))
    kept = cover({data: steps(target, data) for data in held})
    for path in folder.iterdir() if folder.is_dir() else ():
        path.unlink()
    add(folder, kept)
    return len(kept), len(held)


def cover(reached: dict[bytes, frozenset[Step]]) -> list[bytes]:
    """Greedily: always the input that reaches most of what is not reached yet; the shortest of those."""
    missing = set().union(*reached.values()) if reached else set()
    kept: list[bytes] = []
    while missing and len(kept) < MOST_INPUTS:
        best = max(reached, key=lambda data: (len(reached[data] & missing), -len(data)))
        kept.append(best)
        missing -= reached[best]
    return kept


def steps(target: str, data: bytes) -> frozenset[Step]:
    """The steps from line to line that an input makes in hubermean, and what is said of it; none for a finding."""
    check = targets.load(target).check
    seen: set[Step] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS):
            return None
        before = frame.f_code.co_firstlineno

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            seen.add((name, before, frame.f_lineno))
            before = frame.f_lineno
            return line

        return line

    def heard(kind: int) -> None:
        seen.add(("said", kind, kind))

    sys.settrace(trace)
    try:
        with mock.patch.object(novelty, "heard", heard):
            check(data)
    except Exception:
        return frozenset()
    finally:
        sys.settrace(None)
    return frozenset(seen)
