"""Asking for a release, once, and its page: waiting, running, the report and its downloads, or why there is none."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup
from starlette.responses import HTMLResponse, JSONResponse, Response

from hubermean.app.budgets import restore_run
from hubermean.app.draft import Draft
from hubermean.app.export import Export, to_csv
from hubermean.app.pages import find_table, send_file
from hubermean.app.runner import TooBusyError, next_moment
from hubermean.app.site import REPORT_POLICY, Visit, go_to, link
from hubermean.app.state import Run, make_run
from hubermean.app.tokens import check_token, name_run
from hubermean.report.page import page as report_page
from hubermean.report.page import show_release

DOWNLOADS = ("release.html", "release.csv", "release.json", "release.sh", "release.py", "release.ipynb")

_TITLES = {
    "not-released": "Not released",
    "refused": "Not released: too little budget is left",
    "rejected": "Not released",
    "failed": "The release failed",
    "interrupted": "The release was interrupted",
}


def start(visit: Visit) -> Response:
    """Ask for a release with the token of a form; the same token again leads to the same release."""
    site, principal = visit.site, visit.session.principal
    draft = Draft.read(visit.form)
    tokens = visit.form.get("token", ())
    known = site.state.run(name_run(tokens[0])) if len(tokens) == 1 else None
    if known is not None and known.draft == draft:  # whatever became of its table since
        run = known
    else:
        _, assignment, dataset = find_table(visit, draft.table)
        run = make_run(draft, assignment, dataset, by_whom=principal.name)
    run_id = check_token(site.state.secret, tokens[0], principal, run.terms) if len(tokens) == 1 else None
    if run_id is None or run.draft != draft:
        text = (
            "This form is too old, or what it asks for was changed since. Nothing was charged. Look at the request "
            "again and release it."
        )
        return visit.problem(400, text, back=link("/review", draft.to_fields()), label="To the request")
    if known is None:
        run = replace(run, id=run_id)
        try:
            site.runner.submit(run)
        except TooBusyError:
            text = "Too many releases are waiting. Nothing was charged. Try again in a minute."
            return visit.problem(503, text, back=link("/review", draft.to_fields()), label="To the request")
    return go_to(f"/releases/{run_id}")


def listed(visit: Visit) -> Response:
    """List the latest releases."""
    return visit.page("releases", runs=visit.site.state.runs())


def show(visit: Visit, id: str) -> Response:
    """Show how far a release is, or what came of it."""
    site = visit.site
    run = site.state.run(id)
    if run is None:
        return visit.problem(404, "There is no such release.", back="/releases", label="To the releases")
    if run.status != "released":
        elapsed = site.runner.elapsed(run)
        return visit.page(
            "release",
            run=run,
            title=_TITLES.get(run.status, run.draft.title),
            parts="",
            elapsed=int(elapsed),
            next_moment=f"{next_moment(elapsed):g}",
            position=site.runner.position(run),
            change=link("/budget", run.draft.to_fields()),
        )
    with site.ledger() as ledger:
        release = restore_run(ledger, run)
    table = site.tables.find(run.table)
    source = run.table.rpartition(":")[2]
    heading, parts = show_release(release, title=run.draft.title, source=source)
    return visit.page(
        "release",
        run=run,
        title=heading,
        answer=Markup("\n".join(parts[:2])),
        parts=Markup("\n".join(parts[2:])),
        exports=None if table is None else _export(visit, run),
        charged=run.charged or "nothing",
        left=run.left,
        downloads=DOWNLOADS,
        next=link("/question", replace(run.draft, fresh=False).to_fields(budget=False)),
    )


def status(visit: Visit, id: str) -> Response:
    """Return how far a release is, for the script of its page."""
    run = visit.site.state.run(id)
    if run is None:
        return JSONResponse({"status": "unknown"}, status_code=404)
    elapsed = visit.site.runner.elapsed(run)
    return JSONResponse(
        {
            "status": run.status,
            "over": run.is_over,
            "elapsed": int(elapsed),
            "next": next_moment(elapsed),
            "position": visit.site.runner.position(run),
        }
    )


def download(visit: Visit, id: str, name: str) -> Response:
    """Return a release in one of its forms."""
    site = visit.site
    run = site.state.run(id)
    if run is None or run.status != "released" or name not in (*DOWNLOADS, "report"):
        return visit.problem(404, "There is no such release.", back="/releases", label="To the releases")
    if name in ("release.sh", "release.py", "release.ipynb"):
        exports = _export(visit, run)
        text = {"sh": exports.command, "py": exports.script, "ipynb": exports.notebook}[name[8:]]()
        return send_file(name, text)
    with site.ledger() as ledger:
        release = restore_run(ledger, run)
    if name == "release.csv":
        return send_file(name, to_csv(release))
    if name == "release.json":
        return send_file(name, release.to_json(indent=2) + "\n")
    html = report_page(release, title=run.draft.title, source=run.table.rpartition(":")[2])
    if name == "report":
        return HTMLResponse(html, headers={"content-security-policy": REPORT_POLICY})
    return send_file(name, html)


def _export(visit: Visit, run: Run) -> Export:
    site = visit.site
    table, _, _ = find_table(visit, run.table)
    return Export(run, table, folder=str(site.tables.folder), ledger=site.settings.ledger)
