"""Where inputs are kept."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def committed(target: str) -> Path:
    """The corpus that is part of the repository."""
    return HERE / "corpus" / target


def grown(target: str) -> Path:
    """What fuzzing found on this machine and nobody has looked through yet."""
    return HERE / ".grown" / target


def findings() -> Path:
    return HERE / "findings"
