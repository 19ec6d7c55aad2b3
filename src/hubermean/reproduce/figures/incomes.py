"""The records that panels about income draw from: an extract of the caller's, or real data that packages carry."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubermean.errors import InputError
from hubermean.ingest.incomes import IncomeRecords
from hubermean.ingest.ipums import read_extract
from hubermean.ingest.packaged_incomes import player_salaries, survey_incomes
from hubermean.reproduce.figures.panels import SALARY, SYNTHETIC, TOTAL_INCOME, Panel
from hubermean.reproduce.figures.records import RecordLaw, Sampled

IncomeUser = Literal["person", "household"]

_VARIABLES = {TOTAL_INCOME: "INCTOT", SALARY: "INCWAGE"}
_STAND_INS = {TOTAL_INCOME: survey_incomes, SALARY: player_salaries}


@dataclass(frozen=True, kw_only=True)
class Extract:
    """An IPUMS extract, and who is a user in it.

    `person`: records are drawn from all persons, as in the paper; `household`: all records of a simulated user are
    drawn from one household's, so that users differ.
    """

    path: Path
    ddi: Path | None = None
    user: IncomeUser = "person"


def incomes_for(panels: Iterable[Panel], extract: Extract | None) -> dict[str, IncomeRecords]:
    """The incomes that these panels need, by the name of their law."""
    needed = dict.fromkeys(panel.law for panel in panels if panel.law in _VARIABLES)
    if extract is None:
        return {name: _STAND_INS[name]() for name in needed}
    if not needed:
        raise InputError("the extract is for panels 1g, 1h and 2d; ask for one of them, or leave it out")
    return {
        name: read_extract(extract.path, variable=_VARIABLES[name], user=extract.user, ddi=extract.ddi)
        for name in needed
    }


def incomes_before(
    marks: Mapping[str, str], known: Mapping[str, IncomeRecords], extract: Extract | None
) -> dict[str, IncomeRecords]:
    """Incomes with these fingerprints that are not known yet, where they come from packages."""
    if extract is not None:
        return {}
    found = {}
    for name in marks:
        if name in _STAND_INS and name not in known:
            with contextlib.suppress(InputError):  # a package that is not here any more
                records = _STAND_INS[name]()
                if fingerprint(records) == marks[name]:
                    found[name] = records
    return found


def laws_of(incomes: Mapping[str, IncomeRecords], extract: Extract | None) -> dict[str, RecordLaw]:
    """All laws of the paper for which there are records."""
    laws = dict(SYNTHETIC)
    whole_users = extract is not None and extract.user == "household"
    for name, records in incomes.items():
        if records.deviation == 0.0:
            raise InputError(
                f"all records of {records.variable} are the same; give an extract whose incomes differ"
            )
        laws[name] = Sampled(name, records.values, records.sizes, whole_users=whole_users)
    return laws


def fingerprint(records: IncomeRecords) -> str:
    """Tells data sets apart, so that results of one are not taken for those of another."""
    digest = hashlib.blake2b(records.values.tobytes(), digest_size=8)
    digest.update(records.sizes.tobytes())
    return f"{records.variable} by {records.user}, {digest.hexdigest()}"
