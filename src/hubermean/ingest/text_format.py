"""How text is written: the numbers in it, the words for missing cells, and the records of CSV files.

All of it is stated by the caller (`TextOptions`) and checked here, before anything is charged. Nothing is detected:
with a decimal mark that is guessed from the records, one record would change how all others are read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hubermean.errors import InputError, parameter
from hubermean.types.options import TextOptions

_APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
_SEPARATORS = {" ": " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}", "'": _APOSTROPHES}
"""Separators of thousands that are printed as one of several characters."""
_BLANKS = _SEPARATORS[" "]
TRIMMED = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""All spaces of Unicode: what the trim() of DuckDB leaves out at both ends of a text."""

_STATEFUL = re.compile(r"utf_7|hz|iso2022|idna|punycode|unicode_escape|raw_unicode_escape|utf_32|charmap")
"""Encodings in which one record can change how the bytes of others are read, or that are no encodings of files."""


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """How numbers are written in text.

    Attributes:
        decimal: the decimal mark.
        thousands: all characters that may separate thousands; empty if none may.
        currency: signs and codes, one of which may stand before or after a number.
    """

    decimal: str = "."
    thousands: str = ""
    currency: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as programs write them, such as -1234.5 or 1e3."""
        return self == NumberFormat()

    @property
    def pattern(self) -> str:
        """A regular expression of a whole number text, in the syntax of RE2; groups 1 to 3 make the number.

        Groups of digits have the length that separators stand for: a decimal comma read as a separator of thousands
        would make a number ten or a hundred times too large.
        """
        digits = "[0-9]+"
        if self.thousands:
            mark = f"[{re.escape(self.thousands)}]"
            digits = f"(?:[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|{digits})"
        point = re.escape(self.decimal)
        number = f"(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        blanks = f"[{_BLANKS}]*"
        sign = "|".join(re.escape(one) for one in sorted(self.currency, key=len, reverse=True))
        before, after = (f"(?:(?:{sign}){blanks})?", f"(?:{blanks}(?:{sign}))?") if sign else ("", "")
        return f"([+-]?){blanks}{before}([+-]?)({number}){after}"


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """How text is read.

    Attributes:
        numbers: how numbers are written.
        null: the words for missing cells.
        delimiter: the character between fields; None for that of the file's name.
        quote: the character around fields; empty for none.
        encoding: the name of a codec.
    """

    numbers: NumberFormat = NumberFormat()
    null: tuple[str, ...] = ()
    delimiter: str | None = None
    quote: str = '"'
    encoding: str = "utf-8"

    @classmethod
    def checked(cls, options: TextOptions) -> TextFormat:
        """Return the format of the options, or raise InputError for one that cannot be used."""
        if options.is_plain:
            return cls()
        decimal, thousands = options.decimal, options.thousands
        if decimal not in (".", ","):
            raise InputError(f"{parameter('decimal')} must be '.' or ',', not {decimal!r}")
        if thousands is not None and (
            not isinstance(thousands, str)
            or len(thousands) != 1
            or thousands.isalnum()
            or thousands in '+-()"\t\r\n\0'
        ):
            raise InputError(
                f"{parameter('thousands')} must be one character, such as ',' or ' ', not {thousands!r}"
            )
        if thousands == decimal:
            raise InputError(
                f"{parameter('decimal')} and {parameter('thousands')} must be different characters"
            )
        currency = _words(options.currency, "currency")
        if any(
            set(one) & set(f"0123456789+-.,()\n{decimal}{thousands or ''}") or one in "eE" for one in currency
        ):
            raise InputError(
                f"{parameter('currency')} must be signs or codes without digits, '+', '-' and separators, such as "
                "'$' or 'EUR'"
            )
        return cls(
            numbers=NumberFormat(
                decimal=decimal,
                thousands="" if thousands is None else _SEPARATORS.get(thousands, thousands),
                currency=currency,
            ),
            null=_words(options.null, "null"),
            delimiter=_check_delimiter(options.delimiter),
            quote=_check_quote(options.quote, options.delimiter),
            encoding=_check_encoding(options.encoding),
        )


def _words(given: Any, name: str) -> tuple[str, ...]:
    words = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not all(
        isinstance(one, str) and one.strip() == one != "" for one in words
    ):
        raise InputError(f"{parameter(name)} must be a text, or a list of texts, without spaces at the ends")
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        raise InputError(f"{parameter(name)} must be text that can be encoded as UTF-8") from None
    return tuple(dict.fromkeys(words))


def _check_delimiter(given: Any) -> str | None:
    if given is None:
        return None
    delimiter = "\t" if given == "\\t" else given
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or delimiter.isalnum()
        or delimiter in "\r\n\0\"'"
    ):
        raise InputError(
            f"{parameter('delimiter')} must be one character that is no letter, digit or quotation mark, such as "
            f"';', not {given!r}"
        )
    return delimiter


def _check_quote(given: Any, delimiter: Any) -> str:
    if (
        not isinstance(given, str)
        or len(given) > 1
        or given.isalnum()
        or given in ("\r", "\n", "\0", "\t", " ")
    ):
        raise InputError(
            f"{parameter('quote')} must be one character such as '\"' or \"'\", or empty, not {given!r}"
        )
    if given and given == delimiter:
        raise InputError(f"{parameter('quote')} and {parameter('delimiter')} must be different characters")
    return given


def _check_encoding(given: Any) -> str:
    problem = not isinstance(given, str)
    name = ""
    if not problem:
        try:
            found = codecs.lookup(given)
            name = found.name.replace("-", "_").lower()
            problem = not found._is_text_encoding or _STATEFUL.match(name) is not None
        except (LookupError, ValueError):
            problem = True
    if problem:
        raise InputError(
            f"{parameter('encoding')} must be the name of a text encoding, such as 'utf-8', 'latin-1', 'cp1252' or "
            f"'utf-16', not {given!r}"
        )
    return "utf_8" if name in ("utf_8_sig", "ascii") else name
