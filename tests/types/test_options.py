"""Options: each defined once, as a dataclass and as keywords, and shown by signatures, help and the command line."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean._api import CountKeywords, MeanKeywords, UserMeansKeywords
from hubermean.cli.options import _MORE_HELP, _make_option
from hubermean.release.charging import LedgerKeywords, LedgerOptions
from hubermean.types.options import (
    EngineKeywords,
    EngineOptions,
    PublicKeywords,
    PublicParameters,
    ReadKeywords,
    ReadOptions,
    TextKeywords,
    TextOptions,
    describe_fields,
)

GROUPS = [
    (PublicParameters, PublicKeywords),
    (EngineOptions, EngineKeywords),
    (TextOptions, TextKeywords),
    (ReadOptions, ReadKeywords),
    (LedgerOptions, LedgerKeywords),
]
CALLS: list[tuple[Callable[..., Any], type, tuple[type, ...]]] = [
    (hm.mean, MeanKeywords, (PublicParameters, ReadOptions, LedgerOptions)),
    (hm.count, CountKeywords, (EngineOptions, TextOptions, LedgerOptions)),
    (hm.mean_of_user_means, UserMeansKeywords, (PublicParameters, LedgerOptions)),
    (hm.audit, PublicKeywords, (PublicParameters,)),
]


@pytest.mark.parametrize(("options", "keywords"), GROUPS)
def test_dataclass_and_keywords_agree(options: type, keywords: type) -> None:
    assert typing.get_type_hints(options) == typing.get_type_hints(keywords)
    assert not keywords.__required_keys__  # type: ignore[attr-defined]


@pytest.mark.parametrize(("options", "keywords"), GROUPS)
def test_every_field_is_described(options: type, keywords: type) -> None:
    described = describe_fields(options)
    assert set(described) == {field.name for field in fields(options)}
    for name, text in described.items():
        assert text[0].isupper(), name
        assert text.endswith("."), name


@pytest.mark.parametrize(("call", "keywords", "options"), CALLS)
def test_signatures_and_help_list_every_keyword(
    call: Callable[..., Any], keywords: type, options: tuple[type, ...]
) -> None:
    parameters = inspect.signature(call).parameters
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    names = [field.name for one in options for field in fields(one)]
    assert set(names) == set(typing.get_type_hints(keywords))
    for one in options:
        for field in fields(one):
            assert parameters[field.name].default == field.default
    assert call.__doc__ is not None
    arguments, _, listed = call.__doc__.partition("\nOptions:\n")
    for name in names:
        assert f"\n    {name}: " in f"\n{listed}", name
    for name in set(parameters) - set(names):
        assert f" {name}: " in arguments or f" {name}, " in arguments, name


@pytest.mark.parametrize(
    ("call", "data", "more"),
    [
        (hm.mean, "none.parquet", {"user": "u", "value": "v"}),
        (hm.count, "none.parquet", {"user": "u"}),
        (hm.mean_of_user_means, [1.0, 2.0], {}),
    ],
)
@pytest.mark.parametrize(
    ("name", "hint"),
    [("max_record", "max_record"), ("daataset", "did you mean 'dataset'"), ("xyzzy", "'xyzzy'")],
)
def test_an_unknown_keyword_is_named(
    call: Callable[..., Any], data: Any, more: dict[str, Any], name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=hint) as caught:
        call(data, epsilon=1, **more, **{name: 1})
    assert f"{call.__name__}() got an unexpected keyword argument {name!r}" in str(caught.value)


def test_options_are_frozen_and_read_numpy() -> None:
    parameters = PublicParameters.from_keywords(
        bounds=np.array([0, 6]), max_records=np.int64(3), radius=np.inf
    )
    assert parameters.to_dict() == {"bounds": (0, 6), "max_records": 3, "radius": np.inf}
    assert type(parameters.max_records) is int
    with pytest.raises(AttributeError):
        parameters.radius = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("options", [PublicParameters, ReadOptions, LedgerOptions])
def test_the_command_line_takes_name_default_and_help_from_the_fields(options: type) -> None:
    described = describe_fields(options)
    for field in fields(options):
        made = _make_option(options, field.name)
        (option,) = made.annotation.__metadata__
        assert made.default == field.default
        assert option.default == "--" + field.name.replace("_", "-")
        assert described[field.name].startswith(option.help.removesuffix(_MORE_HELP.get(field.name, "")))


def test_importing_hubermean_imports_little() -> None:
    code = "import sys, hubermean; print(sorted({'numpy', 'scipy', 'duckdb', 'pyarrow'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
    code = (
        "import sys; sys.argv = ['hubermean', '--help']\n"
        "from hubermean.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'numpy', 'scipy', 'duckdb'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("[]\n")


def test_every_public_name_can_be_imported() -> None:
    assert set(hm.__all__) <= set(dir(hm))
    for name in hm.__all__:
        assert getattr(hm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'max_records'"):
        _ = hm.max_records
