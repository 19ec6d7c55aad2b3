"""Docstrings: what public functions take, return, raise and guarantee, with an example; what methods do."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hubermean as hm

# Functions outside `hm` that other people build on: docs/reference/building-blocks.md.
BUILDING_BLOCKS = (
    "hubermean.accounting.gaussian_alpha",
    "hubermean.accounting.gaussian_delta",
    "hubermean.huber.huber_location",
    "hubermean.ingest.user_table",
    "hubermean.report.page",
)
# Parameters that need no words beyond the first line of a method.
OBVIOUS = {"self", "cls", "indent", "level", "path", "setting", "n_users", "most"}
# Methods of a ledger that the release path uses, not callers.
INTERNAL = {"charge", "check_budget", "check_entry", "conclude", "find_answer", "is_charged", "is_record"}


def public_functions() -> dict[str, Callable[..., Any]]:
    found = {f"hm.{name}": getattr(hm, name) for name in hm.__all__ if inspect.isfunction(getattr(hm, name))}
    for path in BUILDING_BLOCKS:
        module, name = path.rsplit(".", 1)
        found[path] = getattr(importlib.import_module(module), name)
    return found


def public_methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in hm.__all__:
        of_class = getattr(hm, name)
        if not inspect.isclass(of_class):
            continue
        for method in dir(of_class):
            here = inspect.getattr_static(of_class, method)
            function = getattr(here, "fget", None) or getattr(here, "__func__", here)
            ours = getattr(function, "__module__", None) or ""
            if method.startswith("_") or method in INTERNAL:
                continue
            if inspect.isfunction(function) and ours.startswith("hubermean"):
                yield f"hm.{name}.{method}", function


def parameters_without_words(function: Callable[..., Any], text: str) -> list[str]:
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    listed = set(re.findall(r"[\w]+", " ".join(re.findall(r"^ +([\w, ]+):", text, re.MULTILINE))))
    return [name for name in names if name not in listed]


@pytest.mark.parametrize(("name", "function"), list(public_functions().items()), ids=list(public_functions()))
def test_a_public_function_is_described_in_full(name: str, function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    for part in ("Args:", "Returns:", "Raises:", "Formal guarantees", ">>>"):
        assert part in text, f"the docstring of {name} has no {part}"
    assert not parameters_without_words(function, text), name


@pytest.mark.parametrize(
    ("name", "function"), list(public_methods()), ids=[name for name, _ in public_methods()]
)
def test_a_public_method_says_what_it_does(name: str, function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    assert re.match(r"[A-Z].*\.", text), f"{name} has no docstring"
    missing = {
        one
        for one in parameters_without_words(function, text)
        if one not in OBVIOUS and f"`{one}`" not in text
    }
    assert not missing, f"the docstring of {name} does not say what {', '.join(sorted(missing))} is"


def test_a_parameter_without_words_is_seen() -> None:
    def two(first: int, second: int) -> None:
        """Do.

        Args:
            first: a number.
        """

    assert parameters_without_words(two, inspect.getdoc(two) or "") == ["second"]
