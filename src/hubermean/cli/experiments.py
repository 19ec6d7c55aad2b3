"""The experiments package, where it is installed: `hubermean reproduce` and the paper's mechanism for audits.

This is the only module that imports `hubermean_experiments`, which is not part of the wheel.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import typer

from hubermean.errors import InputError
from hubermean.mechanisms.base import Mechanism
from hubermean.types.options import PublicParameters

INSTALLED = importlib.util.find_spec("hubermean_experiments") is not None
PAPER_LITERAL = "paper-literal"


def __getattr__(name: str) -> Any:
    """Return the command `reproduce`; without the experiments it only says how to install them."""
    if name != "reproduce":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not INSTALLED:
        return _not_installed
    from hubermean_experiments.cli import reproduce

    return reproduce


def paper_mechanism(known: PublicParameters) -> Mechanism:
    """The mechanism of the paper as printed, for audits only."""
    if not INSTALLED:
        raise _missing(f"the mechanism {PAPER_LITERAL!r}")
    from hubermean_experiments.paper import PaperMechanism

    return PaperMechanism.from_parameters(known)


def _not_installed(arguments: typer.Context) -> None:
    """Run the figures of Zhao et al. (2024) again (needs the experiments package)."""
    raise _missing("'hubermean reproduce'")


_not_installed.context_settings = {  # type: ignore[attr-defined]
    "allow_extra_args": True,
    "ignore_unknown_options": True,
}


def _missing(what: str) -> InputError:
    return InputError(
        f"{what} needs the experiments package, which is not part of the wheel; "
        "install it from a clone of the repository with: pip install -e experiments"
    )
