"""The optional keywords of `mean`, `count` and `mean_of_user_means`: public parameters and reading options.

Each group of keywords is defined once, as a frozen dataclass whose fields are documented under `Attributes`. The
public functions take the same names as typed keywords (`Unpack` of the `TypedDict` beside the class); the command line
makes its options from the fields, and takes their help from the first sentence of each description. The third group,
the ledger options, is defined beside the ledger in `release/charging.py`.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypedDict, TypeVar

import numpy as np

from hubermean.errors import InputError, parameter

Bounds = tuple[float, float]

PartialBounds = tuple[float | None, float | None]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class PublicParameters:
    """What the caller knows about the values and takes as public.

    Everything is optional. What is given saves privacy budget, and becomes public: take it from knowledge of the
    quantity, never from the data. Each mechanism uses some of it and refuses what it does not use.

    Attributes:
        bounds: Public limits (low, high) that user means are clipped to. One pair, or one pair per column; None leaves
            an end open, as in (0, None) for values that are never negative.
        max_records: Public contribution bound: the most records of a user that count. For `per="record"`; without it
            all records count, and the influence of a user is bounded instead.
        threshold: Public distance from the center beyond which a user mean counts as an outlier. Most user means lie
            closer. With several columns and a radius, the distance is that of all columns together.
        threshold_power: Exponent from 0 to 1 by which the threshold shrinks with a user's records. For
            `per="record"`: a user with a records has the threshold `threshold * a ** -threshold_power`. 0, the default,
            is one threshold for all users; 1 bounds what a user adds to the sum by `threshold`, however many records
            the user has.
        scale: Public standard deviation of user means. One number for all columns, or one per column.
        radius: Public bound on the mean: it lies within this distance of 0. It may be generous.
        hostile: Share of users, up to 0.2, that may be malicious. Bounds are then chosen so that this many users
            cannot stretch them, at some cost in accuracy; the release states how far they can move the result.
        n_users: Public number of users: approximate under 'add-remove', exact under 'replace-user'. Under
            "add-remove" it is an estimate that does not come from the data; it saves the budget of measuring the
            number, and a wrong one costs accuracy, never privacy. Under "replace-user" text files, queries, lazy
            frames and Spark need it; Parquet files and tables in memory are counted.
    """

    bounds: PartialBounds | Sequence[PartialBounds] | None = None
    max_records: int | None = None
    threshold: float | None = None
    threshold_power: float | None = None
    scale: float | Sequence[float] | None = None
    radius: float | None = None
    hostile: float | None = None
    n_users: int | None = None

    @classmethod
    def from_keywords(cls, **given: Any) -> PublicParameters:
        """Make parameters with Python's numbers for numpy's; anything else is left for the mechanism to refuse."""
        return cls(**{name: _to_plain_numbers(value) for name, value in given.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters that are given, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def threshold_and_radius(self, *more: str, of: str) -> tuple[float, float]:
        """Return both for a mechanism that needs both and takes no bounds; it may also use the parameters `more`."""
        self.check_only("threshold", "radius", "max_records", *more, of=of)
        if self.threshold is None:
            raise InputError(
                f"give {parameter('threshold')} (the distance from the mean within which most user means lie)"
            )
        if self.radius is None:
            raise InputError(
                f"give {parameter('radius')} (the mean lies within this distance of 0; it may be generous)"
            )
        return self.threshold, self.radius

    def check_only(self, *used: str, of: str) -> None:
        """Refuse parameters that the mechanism `of` would have to ignore."""
        for name in self.to_dict():
            if name not in used:
                raise InputError(f"{parameter(name)} is not used by mechanism {of!r}; leave it out")


class PublicKeywords(TypedDict, total=False):
    """The fields of `PublicParameters` as keywords."""

    bounds: PartialBounds | Sequence[PartialBounds] | None
    max_records: int | None
    threshold: float | None
    threshold_power: float | None
    scale: float | Sequence[float] | None
    radius: float | None
    hostile: float | None
    n_users: int | None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How data are read and grouped; none of it changes what is released.

    Attributes:
        memory_limit: Memory for reading and grouping, such as '2GB'. Three quarters are for the engine, with groups
            three eighths; it uses disk beyond that. Where the rest does not suffice for the result, data are read again
            without a limit: whether there is a result must not depend on one user. Not for Spark, which has its own
            settings.
        threads: Number of threads for reading and grouping. All cores by default, for PostgreSQL all but one, which
            fetches; not for Spark.
        progress: Show a progress bar on a terminal after one second.
        engine: Engine that reads and groups the data, 'duckdb' or 'spark'. By default Spark for its own data frames
            and DuckDB for everything else. With "spark", `data` may also be the name of a table, or Parquet files that
            Spark is to read.
    """

    memory_limit: str | None = None
    threads: int | None = None
    progress: bool = False
    engine: str | None = None


class EngineKeywords(TypedDict, total=False):
    """The fields of `EngineOptions` as keywords."""

    memory_limit: str | None
    threads: int | None
    progress: bool
    engine: str | None


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How text is written: numbers in text, and the records of CSV files. Never detected from the content.

    Each cell is read by these rules alone. A text that does not follow them is no number: its record is unusable, and
    changes nothing about how others are read.

    Attributes:
        decimal: Decimal mark of numbers in text, '.' or ','. For CSV, JSON lines, SQLite and pandas; typed columns have
            none.
        thousands: Separator of thousands in text, such as ',', '.', ' ' or "'". A number may leave it out; in the wrong
            place it makes the text unusable.
        currency: Sign or code that may stand before or after a number in text, such as '$' or 'EUR'. Or several.
        null: Word that stands for a missing cell, such as 'NA' or '-999'. Or several. A cell written exactly like it is
            missing, as user, as group and as value.
        delimiter: Character between the fields of CSV files. By default a tab in .tsv files, a comma in others.
        quote: Character that encloses fields of CSV files. Empty if fields are never enclosed.
        encoding: Encoding of CSV files, such as 'latin-1', 'cp1252' or 'utf-16'.
    """

    decimal: str = "."
    thousands: str | None = None
    currency: str | Sequence[str] | None = None
    null: str | Sequence[str] | None = None
    delimiter: str | None = None
    quote: str = '"'
    encoding: str = "utf-8"

    @property
    def is_plain(self) -> bool:
        """Whether all of them have their defaults."""
        return not self._given(field.name for field in fields(TextOptions))

    def refuse(self, what: str, *, numbers: bool = True, files: bool = True) -> None:
        """Raise InputError for options of numbers or of CSV files, which reading `what` would have to ignore."""
        of_numbers = ("decimal", "thousands", "currency") if numbers else ()
        of_files = ("delimiter", "quote", "encoding") if files else ()
        for name in self._given((*of_numbers, *of_files)):
            raise InputError(f"{parameter(name)} does not apply to {what}; leave it out")

    def _given(self, names: Iterable[str]) -> list[str]:
        default = {field.name: field.default for field in fields(TextOptions)}
        return [name for name in names if getattr(self, name) not in (default[name], (), [])]


class TextKeywords(TypedDict, total=False):
    """The fields of `TextOptions` as keywords."""

    decimal: str
    thousands: str | None
    currency: str | Sequence[str] | None
    null: str | Sequence[str] | None
    delimiter: str | None
    quote: str
    encoding: str


@dataclass(frozen=True, kw_only=True)
class ReadOptions(EngineOptions, TextOptions):
    """How values are read, beside the options of text and of the engine.

    Attributes:
        resolution: Public step that values are rounded to. Faster where it suffices.
        non_finite: What to do with infinite values: 'drop' or 'clamp'. "clamp" moves them to the largest value that
            can be represented. Null and NaN are always dropped.
    """

    resolution: float | Decimal | Fraction | None = None
    non_finite: str = "drop"


class ReadKeywords(EngineKeywords, TextKeywords, total=False):
    """The fields of `ReadOptions` as keywords."""

    resolution: float | Decimal | Fraction | None
    non_finite: str


def describe_fields(options: type) -> dict[str, str]:
    """Return the description of each field, from the `Attributes` of the class and of the classes it extends.

    >>> describe_fields(ReadOptions)["resolution"]
    'Public step that values are rounded to. Faster where it suffices.'
    """
    described: dict[str, str] = {}
    for own in reversed(options.__mro__):
        _, _, attributes = inspect.cleandoc(own.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in textwrap.dedent(attributes).splitlines():
            if line.startswith(" ") or not line:
                described[name] = f"{described[name]} {line.strip()}".strip()
            else:
                name, _, text = line.partition(": ")
                described[name] = text
    return described


def select_keywords(given: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Return those of the keywords that are fields of `options`."""
    return {field.name: given[field.name] for field in fields(options) if field.name in given}


def check_keywords(function: Callable[..., Any], given: Mapping[str, Any], *options: type) -> None:
    """Raise TypeError for a keyword that no options object has, as Python does for a function without `**`."""
    known = [
        *inspect.signature(function).parameters,
        *(field.name for one in options for field in fields(one)),
    ]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")


def show_keywords(*options: type) -> Callable[[F], F]:
    """Decorate a function that unpacks keywords: its signature and its help list them with defaults and meaning."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for one in options
            for field in fields(one)
        ]
        listed: Any = function
        listed.__signature__ = signature.replace(parameters=[*own, *more])
        if function.__doc__ is not None:
            described = {name: text for one in options for name, text in describe_fields(one).items()}
            lines = [f"    {name}: {text}" for name, text in described.items()]
            wrapped = [textwrap.fill(line, 110, subsequent_indent=" " * 8) for line in lines]
            listed.__doc__ = "\n".join([inspect.cleandoc(function.__doc__), "", "Options:", *wrapped])
        return function

    return decorate


def _to_plain_numbers(given: Any) -> Any:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, list | tuple):
        return tuple(_to_plain_numbers(one) for one in given)
    if isinstance(given, bool) or not isinstance(given, Real):
        return given
    try:
        return int(given) if isinstance(given, Integral) else float(given)
    except OverflowError:  # beyond all floats, and so beyond everything that is accepted
        return given
