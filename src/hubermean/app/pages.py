"""The pages on the way to a release, and those of the ledger. None of them reads a record or charges anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from hubermean.app.budgets import describe_dataset, list_datasets, read_dataset
from hubermean.app.draft import Draft
from hubermean.app.prediction import DEFAULT_USERS, OFFERED, draw_curve, predict, predict_curve
from hubermean.app.runner import describe_error
from hubermean.app.site import Visit, go_to, link
from hubermean.app.state import Assignment, Run, make_run
from hubermean.app.tables import Table, require
from hubermean.app.tokens import offer_token
from hubermean.errors import BudgetExhausted, HubermeanError, InputError
from hubermean.ingest.catalog import ColumnChoice, describe_columns
from hubermean.ledger.dataset import Dataset
from hubermean.ledger.entries import is_name
from hubermean.report.guarantee import STEPS_BETWEEN_FACTS, certainty, percent_up, suspicion
from hubermean.report.ledger_export import export_ledger
from hubermean.report.ledger_page import ledger_page, show_dataset, show_verdict
from hubermean.types.dry_run import DryRun
from hubermean.types.formatting import one_sided
from hubermean.types.request import Neighbors

MOST_COLUMNS = 300
"""Columns that a form lists; of a wider table, names are typed."""
_MOST_USERS = 10**12


# --- 1. the table -----------------------------------------------------------------------------------------------------


def tables(visit: Visit) -> Response:
    """List the tables that can be chosen, with what is left of their budgets."""
    site = visit.site
    listed, problems = site.tables.listed()
    assigned = site.state.assignments()
    with site.ledger() as ledger:
        budgets = {one.name: one for one in list_datasets(ledger, site.runner.before())}
    rows = [
        (table, budgets.get(assigned[table.id].dataset) if table.id in assigned else None) for table in listed
    ]
    rows.sort(key=lambda row: row[1] is None)
    return visit.page(
        "tables",
        rows=[
            {
                "table": table,
                "budget": budget,
                "left": "" if budget is None else budget.left_in_words,
                "to": link("/setup" if budget is None else "/question", [("table", table.id)]),
            }
            for table, budget in rows
        ],
        problems=problems,
        runs=site.state.runs(5),
    )


def find_table(visit: Visit, table_id: str) -> tuple[Table, Assignment, Dataset]:
    """Return a table that has a budget; InputError for any other."""
    site = visit.site
    table = require(site.tables.find(table_id))
    assignment = site.state.assignments().get(table_id)
    if assignment is None:
        raise InputError(f"{table.label} has no budget yet; ask a steward to open one")
    with site.ledger() as ledger:
        dataset = read_dataset(ledger, assignment.dataset, site.runner.before())
    if not isinstance(dataset.neighbors, Neighbors):
        raise InputError(
            f"the data set {dataset.name!r} is for federated rounds; ask a steward to charge this table to another"
        )
    if dataset.users is None:
        raise InputError(
            f"the data set {dataset.name!r} does not state which columns identify a person; ask a steward to charge "
            f"{table.label} to another one"
        )
    return table, assignment, dataset


def list_columns(table: Table, *, header: bool, text: Mapping[str, Any]) -> list[ColumnChoice] | None:
    """Return the columns of a table; None where their names may not be shown or are too many for a form."""
    if table.is_text and not header:
        return None
    found = describe_columns(table.data, **({} if table.connection else dict(text)))
    return found if found is not None and len(found) <= MOST_COLUMNS else None


def split_columns(columns: Sequence[ColumnChoice] | None) -> tuple[list[ColumnChoice], int]:
    """Return the columns whose names a form can send back as they are, and how many others there are."""
    shown = [one for one in columns or () if is_name(one.name)]
    return shown, len(columns or ()) - len(shown)


# --- 2. the question --------------------------------------------------------------------------------------------------


def question(visit: Visit) -> Response:
    """Ask for columns and statistic."""
    table, assignment, dataset = find_table(visit, visit.first("table"))
    draft = Draft.read(visit.query)
    columns = list_columns(table, header=assignment.header, text=assignment.text)
    shown, left_out = split_columns(columns)
    users = dataset.users or ()
    return visit.page(
        "question",
        table=table,
        dataset=dataset,
        draft=draft,
        columns=columns,
        users=users,
        left_out=left_out,
        value_choices=[one for one in shown if one.is_value and one.name not in users],
        group_choices=[
            group for one in shown if one.name not in users for group in one.groups if is_name(group)
        ],
        bounds=[*draft.bounds, None, None][:2],
        steward=visit.session.principal.is_steward,
        setup=link("/setup", [("table", table.id)]),
        problem=_find_problem(replace(draft, user=users)) if visit.first("incomplete") else "",
    )


def _find_problem(draft: Draft) -> str:
    """Return what is missing in a draft."""
    try:
        draft.check()
    except InputError as error:
        return describe_error(error)
    return ""


# --- 3. the budget ----------------------------------------------------------------------------------------------------


def read_budget(query: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the fields with the number that was typed for epsilon where "own" was chosen.

    Raises:
        InputError: no number was typed, or one was typed and another was chosen.
    """
    fields = dict(query)
    chosen, own = fields.get("epsilon", ()), [one for one in fields.pop("own", ()) if one.strip()]
    if list(chosen) == ["own"]:
        if not own:
            raise InputError("type a number for epsilon, or choose one from the list")
        fields["epsilon"] = own
    elif chosen and own and list(chosen) != own:
        raise InputError(
            'you typed an epsilon and chose another; choose "other" for the one you typed, or empty it'
        )
    return fields


def budget(visit: Visit) -> Response:
    """Ask for the budget, beside what it buys and what it means."""
    table, _, dataset = find_table(visit, visit.first("table"))
    try:
        fields, problem = read_budget(visit.query), ""
    except InputError as error:
        fields, problem = {**visit.query, "epsilon": ()}, describe_error(error)
    draft = Draft.read(fields)
    draft = replace(draft, user=dataset.users or ())
    if _find_problem(draft):
        return go_to(link("/question", [*draft.to_fields(budget=False), ("incomplete", "yes")]))
    guess = visit.first("users")
    users = (
        int(guess)
        if guess.isascii() and guess.isdigit() and len(guess) <= 13 and 0 < int(guess) <= _MOST_USERS
        else DEFAULT_USERS
    )
    epsilon_left = dataset.composition.epsilon_left(dataset.left)
    offered = [one for one in OFFERED if Decimal(repr(one)) <= epsilon_left]
    epsilon = draft.epsilon
    if not fields.get("epsilon") and offered:
        epsilon = 1.0 if 1.0 in offered else offered[-1]
    draft = replace(draft, epsilon=epsilon)
    own = None if epsilon in OFFERED else epsilon
    needs_delta = bool(draft.by) and not draft.keys
    delta = draft.delta if "delta" in visit.query else (1e-6 if needs_delta else 0.0)
    neighbors = dataset.neighbors.value
    relation = Neighbors.parse(neighbors)
    picture = draw_curve(
        predict_curve(draft, users=users, neighbors=neighbors), chosen=epsilon, left=float(epsilon_left)
    )
    return visit.page(
        "budget",
        table=table,
        dataset=dataset,
        draft=draft,
        pairs=draft.to_fields(budget=False),
        offers=[
            {"one": one, "fits": one.epsilon in offered, "chosen": one.epsilon == epsilon}
            for one in predict(draft, users=users, neighbors=neighbors, epsilons=OFFERED)
        ],
        heading="How far off (95%)" if draft.statistic == "count" else "Extra error (predicted)",
        problem=problem,
        suspicion=suspicion(relation, "person"),
        other_risk=_find_other_risk(relation, epsilon),
        picture=Markup(picture),
        users=users,
        own=own,
        delta=delta,
        needs_delta=needs_delta,
        delta_left=one_sided(dataset.left.delta, up=False),
        left=one_sided(epsilon_left, up=False),
        back=link("/question", draft.to_fields(budget=False)),
    )


def _find_other_risk(neighbors: Neighbors, epsilon: float) -> str:
    """Return how sure somebody may become of a fact about a person in the data, where the table says less."""
    if neighbors is not Neighbors.ADD_REMOVE or epsilon < 0:
        return ""
    return percent_up(certainty(STEPS_BETWEEN_FACTS * epsilon))


# --- 4. what it costs -------------------------------------------------------------------------------------------------


def review(visit: Visit) -> Response:
    """Show what would be released and charged, by a dry run, and offer a token to do it once."""
    table, assignment, dataset = find_table(visit, visit.first("table"))
    by_whom = visit.session.principal.name
    try:
        asked = Draft.read(read_budget(visit.query))
    except InputError as error:
        same = [(name, one) for name, given in visit.query.items() for one in given]
        return visit.problem(
            400, describe_error(error), back=link("/budget", same), label="Back to the budget"
        )
    run = make_run(asked, assignment, dataset, by_whom=by_whom)
    draft = run.draft
    back = link("/budget", draft.to_fields())
    site = visit.site
    if dataset.name in site.runner.before():
        text = "A release from this data set is running. What is left is known when it has ended."
        return visit.page("error", status=409, text=text, back=back, label="Back to the budget", retry=True)
    try:
        with site.ledger() as ledger:
            found = draft.call(
                table.data,
                neighbors=dataset.neighbors.value,
                text=assignment.text,
                ledger=ledger,
                dataset=dataset.name,
                by_whom=by_whom,
                dry_run=True,
            )
    except BudgetExhausted as error:
        return visit.problem(409, describe_error(error), back=back, label="Choose a smaller budget")
    except HubermeanError as error:
        return visit.problem(400, describe_error(error), back=back, label="Back to the budget")
    assert isinstance(found, DryRun)
    assert found.receipt is not None
    return visit.page(
        "review",
        table=table,
        dataset=dataset,
        draft=draft,
        dry=found,
        receipt=found.receipt,
        pairs=draft.to_fields(),
        earlier=_find_earlier(visit, run) if draft.fresh else None,
        again=link("/review", replace(draft, fresh=True).to_fields()),
        left_before=dataset.left_in_words,
        token=offer_token(site.state.secret, visit.session.principal, run.terms),
        back=back,
    )


def _find_earlier(visit: Visit, run: Run) -> Run | None:
    """Return the latest run that asked the same again, which the back button leads past."""
    same = (one for one in visit.site.state.runs() if one.terms == run.terms)
    return next((one for one in same if one.charged or not one.is_over), None)


# --- the ledger -------------------------------------------------------------------------------------------------------


def ledger(visit: Visit) -> Response:
    """List the budgets of all data sets."""
    site = visit.site
    with site.ledger() as opened:
        found = list_datasets(opened, site.runner.before())
    shown = [
        {
            "dataset": one,
            "left": one.left_in_words,
            "share": round(float(100 * one.left.loss / one.limit.loss), 1),
            "to": link("/ledger/dataset", [("name", one.name)]),
        }
        for one in found
    ]
    return visit.page("ledger", shown=shown, running=sorted(site.runner.before()))


def dataset(visit: Visit) -> Response:
    """Show what a budget was spent on, by whom, and what was refused."""
    site, name = visit.site, visit.first("name")
    with site.ledger() as opened:
        described = describe_dataset(opened, name, site.runner.before())
    tables_of = [one.table for one in site.state.assignments().values() if one.dataset == name]
    return visit.page(
        "dataset",
        name=name,
        section=Markup(show_dataset(described, described["dataset"], heading="Budget")),
        running=name in site.runner.before(),
        tables=[one for one in site.tables.listed()[0] if one.id in tables_of],
        link=link,
    )


def verify(visit: Visit) -> Response:
    """Check that the ledger is as it was written."""
    if (wait := _wait(visit)) is not None:
        return wait
    with visit.site.ledger() as opened:
        found = opened.verify()
    return visit.page("verify", section=Markup(show_verdict(found.to_dict())))


def export(visit: Visit, name: str) -> Response:
    """Return the whole ledger as a file."""
    if name not in ("ledger.json", "ledger.html"):
        return visit.problem(404, "There is no such page.")
    if (wait := _wait(visit)) is not None:
        return wait
    with visit.site.ledger() as opened:
        content = export_ledger(opened)
    text = json.dumps(content, indent=2) + "\n" if name.endswith("json") else ledger_page(content)
    return send_file(name, text)


def _wait(visit: Visit) -> Response | None:
    """Return a page that asks to wait while a release runs: the number of entries would tell when it ended."""
    if not visit.site.runner.before():
        return None
    text = "A release is running. The ledger is checked and exported when it has ended."
    return visit.page("error", status=409, text=text, back="/ledger", label="Back to the ledger", retry=True)


KINDS = {
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "sh": "text/plain; charset=utf-8",
    "py": "text/plain; charset=utf-8",
    "ipynb": "application/x-ipynb+json",
}


def send_file(name: str, text: str) -> Response:
    """Return a file to be saved; its name is one of ours."""
    kind = KINDS[name.rpartition(".")[2]]
    return Response(
        text.encode(), headers={"content-type": kind, "content-disposition": f'attachment; filename="{name}"'}
    )
