"""Commands that are imported when they are used: `hubermean --help` needs their names and one line each."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "release": "Release a private mean of a file.",
    "count": "Release the number of users or records.",
    "plan": "Compare the predicted errors of all mechanisms, without data.",
    "audit": "Search for neighboring data sets that break a mechanism's guarantee. Reads no data.",
    "ledger": "Keep the privacy budgets of data sets.",
    "reproduce": "Run the figures of Zhao et al. (2024) again (needs the experiments package).",
    "check": "Inspect a file before releasing from it. [bold]Not private[/bold]: for the data's owner only.",
    "doctor": "Check that noise, exact arithmetic and the data engine work on this machine.",
    "demo": "Release a private mean of made-up trips, beside the true one.",
    "app": "Open a page in the browser that plans, releases and accounts.",
}
"""The help of each command, in the order of `hubermean --help`."""

_MODULES = {name: name for name in COMMANDS} | {"reproduce": "experiments", "app": "page"}
"""The modules of `hubermean.cli` that define the commands."""


def make_app(**settings: Any) -> typer.Typer:
    """Return a Typer application with the settings of this command line."""
    return typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich", **settings
    )


class LazyCommand(TyperCommand):
    """A command of which only the name and the help are imported until it is used."""

    @cached_property
    def loaded(self) -> Any:
        """The command itself."""
        defined = getattr(
            importlib.import_module(f"hubermean.cli.{_MODULES[str(self.name)]}"), str(self.name)
        )
        if not isinstance(defined, typer.Typer):
            single = make_app(add_completion=False)
            settings = getattr(defined, "context_settings", None)
            single.command(self.name, context_settings=settings)(defined)
            defined = single
        return typer.main.get_command(defined)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        return self.loaded.make_context(*arguments, **settings)

    def __getattribute__(self, name: str) -> Any:
        return (
            getattr(self.loaded, name) if name in ("params", "commands") else super().__getattribute__(name)
        )


class LazyCommands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, text in COMMANDS.items():
            self.commands[name] = LazyCommand(name, help=text)
