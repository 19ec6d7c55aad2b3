"""What only a steward may do: open data sets, and decide which table is charged to which."""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath
from typing import Any

from starlette.responses import Response

from hubermean.app.budgets import identify_ledger, list_datasets
from hubermean.app.draft import Draft, read_text_options
from hubermean.app.pages import list_columns, split_columns
from hubermean.app.site import Visit, go_to, link
from hubermean.app.state import Assignment
from hubermean.app.tables import Table, require
from hubermean.errors import InputError
from hubermean.ingest.catalog import check_users
from hubermean.ledger.composition import COMPOSITIONS
from hubermean.ledger.entries import check_name
from hubermean.release.ledger import Ledger
from hubermean.types.request import DEFAULT_NEIGHBORS, Neighbors

_NEW = "new"
_NO_USERS = (
    "the data set {name!r} does not state which columns identify a person, so an analyst could choose them; open a new "
    "data set, or state them with hubermean ledger init --user"
)


def setup(visit: Visit) -> Response:
    """Ask which data set a table is charged to, or for the total of a new one."""
    site = visit.site
    table = require(site.tables.find(visit.first("table")))
    assignment = site.state.assignments().get(table.id)
    text = dict(assignment.text) if assignment is not None else read_text_options(visit.query)
    header = visit.first("header") == "yes" or (assignment is not None and assignment.header)
    with site.ledger() as ledger:
        datasets = list_datasets(ledger, site.runner.before())
    columns = list_columns(table, header=header, text=text)
    shown, left_out = split_columns(columns)
    return visit.page(
        "setup",
        table=table,
        assignment=assignment,
        datasets=[one for one in datasets if one.users is not None and one.name != _NEW],
        columns=[one for one in shown if one.is_user],
        left_out=left_out,
        typed=columns is None,
        header=header,
        text=text,
        suggested=_suggest_name(table, {one.name for one in datasets}),
        relations=[relation.value for relation in Neighbors],
        compositions=list(COMPOSITIONS),
        plain=DEFAULT_NEIGHBORS,
    )


def assign(visit: Visit) -> Response:
    """Open a data set or take an existing one, and charge releases from a table to it."""
    site, form = visit.site, visit.form

    def given(name: str) -> str:
        return next(iter(form.get(name, ())), "").strip()

    table = require(site.tables.find(next(iter(form.get("table", ())), "")))
    header = table.has_header and given("header") == "yes"
    text = read_text_options(form) if table.is_text else {}
    # Refuses a file that cannot be read as described before a data set is opened, which cannot be undone.
    list_columns(table, header=header, text=text)
    chosen = given("dataset")
    with site.ledger() as ledger:
        if chosen == _NEW:
            budget = Draft.read({"epsilon": form.get("epsilon", ()), "delta": form.get("delta", ())})
            users = [check_name(name, "user") for name in form.get("user", ()) if name.strip()]
            if not users:
                raise InputError(
                    "choose the column that identifies a user; all releases will protect these users"
                )
            if not given("epsilon"):
                raise InputError("give the total epsilon of this data set")
            chosen = check_name(given("name"), "dataset")
            if chosen == _NEW:
                raise InputError("choose another name; this page calls a data set new that is not open yet")
            check_users(table.data, users, **text)  # what is fixed now cannot be corrected later
            _open_dataset(
                ledger,
                chosen,
                epsilon=budget.epsilon,
                delta=budget.delta,
                neighbors=given("neighbors") or DEFAULT_NEIGHBORS,
                user=users,
                composition=given("composition") or "basic",
                by_whom=visit.session.principal.name,
            )
        else:
            found = ledger.dataset(chosen)  # refuses an unknown name
            if found.users is None:
                raise InputError(_NO_USERS.format(name=chosen))
            check_users(table.data, found.users, **text)
        site.state.bind(identify_ledger(ledger))
    site.state.assign(Assignment(table=table.id, dataset=chosen, header=header, text=text))
    return go_to(link("/question", [("table", table.id)]))


def _open_dataset(ledger: Ledger, name: str, **wanted: Any) -> None:
    """Open a data set; a form that is sent twice finds the one that it opened."""
    try:
        ledger.init(name, **wanted)
    except InputError:
        with contextlib.suppress(InputError):
            found = ledger.dataset(name)
            same = (
                found.epsilon,
                found.delta,
                found.neighbors.value,
                list(found.users or ()),
                found.composition.name,
            )
            if same == tuple(wanted[one] for one in ("epsilon", "delta", "neighbors", "user", "composition")):
                return
        raise


def _suggest_name(table: Table, taken: set[str]) -> str:
    name = (
        PurePosixPath(table.label).name.partition(".")[0][:100]
        if table.connection is None
        else table.label[:100]
    )
    numbered = [name, *(f"{name} {number}" for number in range(2, 1000))]
    return next((one for one in numbered if one not in taken), name)
