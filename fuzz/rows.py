"""Tables of every type, made from bytes, with what plain Python makes of them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from fuzz.draw import Draw
from fuzz.oracle import Rule

MARK = "Zq7"
"""Begins every text in the data: no message may hold it."""
MOST_ROWS = 16
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of value: how one is drawn, and what is to be made of it; `understood` is None where that is not said."""

    type: pa.DataType
    drawn: Callable[[Draw], Any]
    understood: Callable[[Rule, Any], Fraction | None] | None

    def array(self, drawn: Sequence[Any]) -> pa.Array:
        if pa.types.is_duration(self.type) or pa.types.is_timestamp(self.type):
            return pa.array(drawn, pa.int64()).cast(self.type)
        if pa.types.is_float16(self.type):
            import numpy as np

            return pa.array([None if one is None else np.float16(one) for one in drawn], self.type)
        return pa.array(drawn, self.type)


def _integers(type_: pa.DataType) -> Kind:
    bits, signed = type_.bit_width, pa.types.is_signed_integer(type_)

    def drawn(draw: Draw) -> int:
        number = draw.signed(8) if draw.flag() else draw.signed(bits)
        return number if signed else number % 2**bits

    return Kind(type=type_, drawn=drawn, understood=lambda rule, value: rule.whole(value))


def _reals(type_: pa.DataType) -> Kind:
    import numpy as np

    shape = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]

    def drawn(draw: Draw) -> float:
        with np.errstate(over="ignore"):
            return float(shape(draw.real()))

    return Kind(type=type_, drawn=drawn, understood=lambda rule, value: rule.real(value))


def _decimals(width: int, scale: int) -> Kind:
    def drawn(draw: Draw) -> decimal.Decimal:
        digits = draw.below(10**width) if draw.flag() else draw.below(1000) % 10**width
        return decimal.Decimal((draw.below(2), tuple(map(int, str(digits))), -scale))

    def understood(rule: Rule, value: decimal.Decimal | None) -> Fraction | None:
        if value is None or rule.resolution is not None:
            return None if value is None else rule.real(float(value))
        unscaled = int(value.scaleb(scale, decimal.Context(prec=60)))
        most = 2**63 - 1 if width <= 18 else (2**63 - 1) * 10**18
        return max(min(unscaled, most), -most) * Fraction(1, 10**scale)

    return Kind(type=pa.decimal128(width, scale), drawn=drawn, understood=understood if scale <= 18 else None)


def _durations(unit: str, part: Fraction) -> Kind:
    return Kind(
        type=pa.duration(unit),
        drawn=lambda draw: draw.signed(64) if draw.flag() else draw.signed(16),
        understood=lambda rule, value: rule.whole(value, part),
    )


def _odd(type_: pa.DataType, drawn: Callable[[Draw], Any]) -> Kind:
    return Kind(type=type_, drawn=drawn, understood=None)


VALUES: tuple[Kind, ...] = (
    _reals(pa.float64()),
    _integers(pa.int64()),
    _reals(pa.float32()),
    *map(_integers, (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    Kind(type=pa.bool_(), drawn=Draw.flag, understood=lambda rule, value: rule.whole(value)),
    _reals(pa.float16()),
    *(_decimals(*shape) for shape in ((9, 2), (18, 18), (19, 0), (38, 10), (38, 18), (38, 38))),
    *(
        _durations(*pair)
        for pair in (("s", Fraction(1)), ("us", Fraction(1, 10**6)), ("ns", Fraction(1, 10**9)))
    ),
    _odd(pa.string(), lambda draw: MARK + draw.text(8).encode("utf-8", "replace").decode()),
    _odd(pa.timestamp("us"), lambda draw: draw.signed(64)),
    _odd(pa.timestamp("ns", "UTC"), lambda draw: draw.signed(64)),
    _odd(pa.date32(), lambda draw: draw.signed(32)),
    _odd(pa.time64("us"), lambda draw: draw.below(86_400 * 10**6)),
    _odd(pa.binary(), lambda draw: draw.chunk(8)),
    _odd(pa.list_(pa.int8()), lambda draw: [draw.signed(8)]),
    _odd(pa.struct({"a": pa.int8()}), lambda draw: {"a": draw.signed(8)}),
    _odd(pa.null(), lambda draw: None),
    _odd(pa.month_day_nano_interval(), lambda draw: (draw.signed(32), draw.signed(32), draw.signed(64))),
    _odd(pa.decimal256(50, 3), lambda draw: decimal.Decimal(draw.below(10**40)).scaleb(-3)),
    _odd(pa.dictionary(pa.int8(), pa.int64()), lambda draw: draw.signed(8)),
    _odd(pa.large_string(), lambda draw: draw.pick(["1", "2.5", MARK])),
    _odd(pa.string_view(), lambda draw: draw.pick(["1", "2.5", MARK])),
    _odd(pa.uuid(), lambda draw: draw.take(16)),
    _odd(pa.map_(pa.string(), pa.int8()), lambda draw: [(MARK, 1)]),
    _odd(pa.dictionary(pa.int8(), pa.string()), lambda draw: MARK),
)


def _name(draw: Draw) -> str:
    return MARK + draw.take(1).decode("latin-1")


USERS: tuple[tuple[pa.DataType, Callable[[Draw], Any]], ...] = (
    (pa.int64(), lambda draw: draw.signed(8)),
    (pa.string(), _name),
    (pa.float64(), Draw.real),
    (pa.int64(), lambda draw: draw.signed(64)),
    (pa.large_string(), _name),
    (pa.binary(), lambda draw: draw.take(1)),
    (pa.bool_(), Draw.flag),
    (pa.uint64(), lambda draw: draw.signed(64) % 2**64),
    (pa.date32(), lambda draw: draw.signed(32)),
    (pa.timestamp("ms"), lambda draw: draw.signed(64)),
    (pa.time64("ns"), lambda draw: draw.below(86_400 * 10**9)),
    (pa.decimal128(20, 3), lambda draw: decimal.Decimal(draw.signed(8)).scaleb(-3)),
    (pa.dictionary(pa.int8(), pa.string()), _name),
    (pa.binary(16), lambda draw: uuid.UUID(bytes=draw.take(16)).bytes),
    (pa.duration("s"), lambda draw: draw.signed(64)),
    (pa.list_(pa.int8()), lambda draw: [draw.signed(8)]),
    (pa.null(), lambda draw: None),
    (pa.string_view(), _name),
    (pa.float32(), lambda draw: float(draw.signed(8))),
)

GROUPS: tuple[tuple[pa.DataType, Callable[[Draw], Any]], ...] = (
    (pa.string(), _name),
    (pa.int64(), lambda draw: draw.signed(8)),
    (pa.bool_(), Draw.flag),
    (pa.date32(), lambda draw: _EPOCH + datetime.timedelta(days=draw.signed(16))),
    (pa.int32(), lambda draw: draw.signed(32)),
    (pa.uint64(), lambda draw: draw.signed(64) % 2**64),
    (pa.decimal128(9, 2), lambda draw: decimal.Decimal(draw.signed(16)).scaleb(-2)),
    (pa.dictionary(pa.int8(), pa.string()), _name),
)
ODD_GROUPS: tuple[tuple[pa.DataType, Callable[[Draw], Any]], ...] = (
    (pa.date32(), lambda draw: draw.signed(32)),
    (pa.float64(), Draw.real),
    (pa.timestamp("us"), lambda draw: draw.signed(64)),
    (pa.binary(), lambda draw: draw.take(2)),
    (pa.list_(pa.int8()), lambda draw: [draw.signed(8)]),
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table and what it was made of; `columns` gives the values' rule, None where the oracle does not know."""

    table: pa.Table
    users: list[Hashable | None]
    groups: list[Hashable | None]
    groups_known: bool
    kinds: tuple[Kind, ...]
    raw: tuple[list[Any], ...]

    @classmethod
    def drawn(cls, draw: Draw, *, values: Sequence[Kind] = VALUES, most: int = MOST_ROWS) -> Rows:
        rows = draw.below(most)
        user_type, user = draw.pick(USERS)
        odd = draw.below(4) == 3
        group_type, group = draw.pick(ODD_GROUPS if odd else GROUPS)
        kinds = tuple(draw.pick(values) for _ in range(1 + draw.below(3) // 2))
        users, groups = [], []
        raw: tuple[list[Any], ...] = tuple([] for _ in kinds)
        for _ in range(rows):
            missing = draw.below(16)
            users.append(None if missing == 15 else user(draw))
            groups.append(None if missing == 14 else group(draw))
            for place, kind in enumerate(kinds):
                raw[place].append(None if missing == 13 - place else kind.drawn(draw))
        columns = {"u": Kind(type=user_type, drawn=user, understood=None).array(users)}
        columns |= {name: kind.array(of) for name, kind, of in zip(("v", "w"), kinds, raw, strict=False)}
        columns["g"] = Kind(type=group_type, drawn=group, understood=None).array(groups)
        return cls(
            table=pa.table(columns), users=users, groups=groups, groups_known=not odd, kinds=kinds, raw=raw
        )

    @property
    def names(self) -> list[str]:
        return ["v", "w"][: len(self.kinds)]

    @property
    def known(self) -> bool:
        """Whether the oracle knows what is to be made of the values."""
        return all(kind.understood is not None for kind in self.kinds)

    def understood(self, rule: Rule) -> list[list[Fraction | None]]:
        return [
            [kind.understood(rule, one) for one in raw]  # type: ignore[misc]
            for kind, raw in zip(self.kinds, self.raw, strict=True)
        ]
