"""Identities: the text by which a cell identifies a user or a group, the same in every container.

A container may infer the type of a column from its content, so that one record changes the type of all others: a pandas
column of integers becomes floats if one is missing, and objects if one is text. So the identity of a cell is a text
that depends on the value of that cell alone:

| cell | identity |
|---|---|
| integer | its digits |
| whole float below 2^63 | the digits of that integer (5.0 is 5, -0.0 is 0) |
| other float | the shortest decimal that reads back as the same double |
| decimal | plain notation without trailing zeros (5.00 is 5) |
| boolean | true or false |
| text | itself (so 1 and "1" are one identity) |
| date, timestamp | ISO 8601 |
| UUID | its 36 characters |
| bytes | 0x and hexadecimal digits |
| null, NaN, anything else | none |

`identity_text` applies the rule to Python objects; `Dialect.identity` writes it in the SQL of an engine.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from numbers import Integral
from typing import Any

import numpy as np

_ESCAPE_BASE = 0x10FF00  # plus a byte of 0x80 or more
ESCAPED_BYTES = re.compile("[\U0010ff80-\U0010ffff]")
_MAX_WHOLE = 2.0**63
_MAX_DIGITS = 400  # of a decimal in plain notation: Decimal("1e999999") would take a megabyte


def identity_text(cell: Any) -> str | None:
    """Return the identity of a Python object; None if it has none.

    A cell may be an object of any class, whose code may raise anything: then it has no identity.
    """
    if type(cell) is str:
        return to_utf8_text(cell)
    try:
        return _identity(cell)
    except Exception:  # noqa: BLE001 - see above
        return None


def to_utf8_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8; the bytes of half a surrogate pair are escaped."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        held = text.encode("utf-8", errors="surrogatepass").decode("utf-8", errors="surrogateescape")
        return escape_bytes(held)
    return text


def escape_bytes(text: str) -> str:
    """Return a text that was decoded with `surrogateescape`, with one character for each byte that is no UTF-8.

    The characters are from a range that no text uses, so different bytes stay different texts.
    """
    return re.sub("[\udc80-\udcff]", lambda found: chr(_ESCAPE_BASE + ord(found.group()) - 0xDC00), text)


def escape_invalid(text: str) -> str:
    """Return a text that was decoded with `surrogateescape`, with invalid bytes escaped.

    The bytes of characters that would be read as escaped bytes are escaped as well.
    """
    if ESCAPED_BYTES.search(text):
        text = ESCAPED_BYTES.sub(
            lambda letter: letter.group().encode().decode("ascii", errors="surrogateescape"), text
        )
    return escape_bytes(text)


def is_displayable(text: str | None) -> bool:
    """Whether an identity can be shown; one with escaped bytes cannot."""
    return text is not None and ESCAPED_BYTES.search(text) is None


def _identity(cell: Any) -> str | None:
    match cell:
        case bool() | np.bool_():
            return "true" if cell else "false"
        case np.timedelta64():  # an Integral, too
            return None
        case np.datetime64():
            import pandas as pd

            return _identity(pd.Timestamp(cell))
        case Integral():
            return _integer_text(int(cell))
        case float() | np.floating():
            return _float_text(float(cell))
        case complex() | np.complexfloating():  # numbers in a column with a complex one
            return _float_text(float(cell.real)) if cell.imag == 0 else None
        case str():
            return to_utf8_text(str.__str__(cell))
        case decimal.Decimal():
            return _decimal_text(cell)
        case datetime.datetime():  # also of pandas; NaT differs from itself
            if cell != cell:
                return None
            return (cell if cell.tzinfo is None else cell.astimezone(datetime.UTC)).isoformat(sep=" ")
        case datetime.date() | uuid.UUID():
            return str(cell)
        case bytes() | bytearray() | memoryview():
            return "0x" + bytes(cell).hex()
    return None


def _integer_text(whole: int) -> str:
    try:
        return str(whole)
    except ValueError:  # Python writes no more than some thousand digits
        return hex(whole)


def _float_text(number: float) -> str | None:
    if math.isnan(number):
        return None
    if abs(number) < _MAX_WHOLE and number == math.trunc(number):
        return str(int(number))
    return repr(number)


def _decimal_text(number: decimal.Decimal) -> str | None:
    if number.is_nan():
        return None
    if number.is_infinite():
        return repr(float(number))
    if number == 0:
        return "0"
    if abs(number.adjusted()) > _MAX_DIGITS or len(number.as_tuple().digits) > _MAX_DIGITS:
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
