"""What a cell identifies: a user or a group, as one text that is the same in every container.

A container may infer the type of a column from its content, so that one record changes the type under which all others
are stored: a pandas column of integers becomes floats when one is missing, and objects when one is text. So the
identity of a cell is a text made from the value of that cell alone:

| cell | identity |
|---|---|
| integer | its digits |
| whole float below 2^63 | the digits of that integer (5.0 is 5, -0.0 is 0) |
| other float | the shortest decimal that reads back as the same double |
| decimal | plain notation without trailing zeros (5.00 is 5) |
| boolean | true or false |
| text | itself (so 1 and "1" are one identity) |
| date, point in time | ISO 8601 |
| UUID | its 36 characters |
| bytes | 0x and hexadecimal digits |
| null, NaN, anything else | none |

`identity_text` is the rule for Python objects; `Dialect.identity` writes it in the SQL of an engine.
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

_STAND_IN = 0x10FF00  # plus a byte from 0x80 on
STAND_INS = re.compile("[\U0010ff80-\U0010ffff]")
_WHOLE_BELOW = 2.0**63
_MOST_DIGITS = 400  # of a decimal in plain notation: Decimal("1e999999") would take a megabyte


def identity_text(cell: Any) -> str | None:
    """The identity of a Python object; None where it has none.

    A cell may be an object of any class, whose own code may fail in any way: then it identifies nobody.
    """
    if type(cell) is str:
        return readable_text(cell)
    try:
        return _identity(cell)
    except Exception:  # noqa: BLE001 - see above
        return None


def readable_text(text: str) -> str:
    """A text that can be written as UTF-8: half a surrogate pair becomes letters that stand for its bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        held = text.encode("utf-8", errors="surrogatepass").decode("utf-8", errors="surrogateescape")
        return stand_ins_for(held)
    return text


def stand_ins_for(text: str) -> str:
    """A text that was decoded with `surrogateescape`, with a letter for each byte that is no UTF-8.

    The letters are of a range that no text uses, so that different bytes stay different texts.
    """
    return re.sub("[\udc80-\udcff]", lambda found: chr(_STAND_IN + ord(found.group()) - 0xDC00), text)


def has_name(text: str | None) -> bool:
    """Whether an identity can be shown: letters that stand for bytes cannot."""
    return text is not None and STAND_INS.search(text) is None


def _identity(cell: Any) -> str | None:
    match cell:
        case bool() | np.bool_():
            return "true" if cell else "false"
        case np.timedelta64():  # a number to Python
            return None
        case np.datetime64():
            import pandas as pd

            return _identity(pd.Timestamp(cell))
        case Integral():
            return _digits(int(cell))
        case float() | np.floating():
            return _of_float(float(cell))
        case complex() | np.complexfloating():  # what numbers become beside one
            return _of_float(float(cell.real)) if cell.imag == 0 else None
        case str():
            return readable_text(str.__str__(cell))
        case decimal.Decimal():
            return _of_decimal(cell)
        case datetime.datetime():  # of pandas, too; NaT differs from itself
            if cell != cell:
                return None
            return (cell if cell.tzinfo is None else cell.astimezone(datetime.UTC)).isoformat(sep=" ")
        case datetime.date() | uuid.UUID():
            return str(cell)
        case bytes() | bytearray() | memoryview():
            return "0x" + bytes(cell).hex()
    return None


def _digits(whole: int) -> str:
    try:
        return str(whole)
    except ValueError:  # Python writes no more than some thousand digits
        return hex(whole)


def _of_float(number: float) -> str | None:
    if math.isnan(number):
        return None
    if abs(number) < _WHOLE_BELOW and number == math.trunc(number):
        return str(int(number))
    return repr(number)


def _of_decimal(number: decimal.Decimal) -> str | None:
    if number.is_nan():
        return None
    if number.is_infinite():
        return repr(float(number))
    if number == 0:
        return "0"
    if abs(number.adjusted()) > _MOST_DIGITS or len(number.as_tuple().digits) > _MOST_DIGITS:
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
