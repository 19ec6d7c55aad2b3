"""`Site`: what all pages share, who is visiting, and how a page is rendered."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hubermean._version import __version__
from hubermean.app.access import Access, Session
from hubermean.app.runner import Runner
from hubermean.app.settings import Settings
from hubermean.app.state import State
from hubermean.app.tables import Tables
from hubermean.errors import printable
from hubermean.release.ledger import Ledger
from hubermean.report.style import STYLE
from hubermean.types.formatting import number

_TEMPLATES = (
    "base", "budget", "dataset", "enter", "error", "ledger", "macros", "question", "release", "releases", "review",
    "setup", "tables", "verify",
)  # fmt: skip


def _read(folder: str, name: str) -> str:
    return files("hubermean.app").joinpath(folder, name).read_text(encoding="utf-8")


STATIC: Mapping[str, tuple[str, bytes]] = {
    "app.css": ("text/css; charset=utf-8", (STYLE + _read("static", "app.css")).encode()),
    "app.js": ("text/javascript; charset=utf-8", _read("static", "app.js").encode()),
}
"""The style of reports with that of the forms, and a little script."""
VERSION = hashlib.sha256(b"".join(body for _, body in STATIC.values())).hexdigest()[:12]
"""Part of the address of static files, so that browsers may keep them."""

REPORT_POLICY = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    + "'"
)
"""The policy of a report that is opened as a page of its own: its one style sheet, and nothing else."""


def _show(given: Any) -> Any:
    """Prepare what a template prints: no control codes and no changes of direction in text from anywhere."""
    return printable(given) if isinstance(given, str) and not isinstance(given, Markup) else given


def _code(text: str) -> Markup:
    """Return text of several lines."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


ENVIRONMENT = Environment(
    loader=DictLoader({f"{name}.html": _read("templates", f"{name}.html") for name in _TEMPLATES}),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_show,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters["code"] = _code
ENVIRONMENT.filters["number"] = number
ENVIRONMENT.filters["time"] = lambda at: f"{at[:10]} {at[11:16]} UTC"
ENVIRONMENT.globals.update(version=VERSION, made_with=f"hubermean {__version__}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """What pages are made from."""

    settings: Settings
    access: Access
    tables: Tables
    state: State
    runner: Runner
    cookie: str

    def ledger(self) -> Ledger:
        """Open the ledger; each request has its own connection."""
        return Ledger(self.settings.ledger)


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request of somebody who showed a token."""

    site: Site
    session: Session
    query: Mapping[str, Sequence[str]]
    form: Mapping[str, Sequence[str]]

    def first(self, name: str) -> str:
        """Return a field of the address."""
        return next(iter(self.query.get(name, ())), "")

    def page(self, template: str, *, status: int = 200, **content: Any) -> Response:
        """Return a page for this visitor."""
        return HTMLResponse(
            render(
                template,
                visitor=self.session.principal,
                csrf=self.session.csrf,
                **content,
            ),
            status_code=status,
        )

    def problem(
        self, status: int, text: str, *, back: str = "/", label: str = "Back to the tables"
    ) -> Response:
        """Return a page that says what is wrong and where to go on."""
        return self.page("error", status=status, text=text, back=back, label=label, retry=False)


def render(template: str, **content: Any) -> str:
    """Return a page as text."""
    return ENVIRONMENT.get_template(f"{template}.html").render(
        **{"visitor": None, "csrf": "", "offered": "", **content}
    )


def show_error(status: int, reason: str) -> bytes:
    """Return the page of a request that was refused before anybody looked who sent it."""
    return render("error", text=reason, back="/", label="To the first page", retry=False).encode()


def link(path: str, pairs: Sequence[tuple[str, str]] = ()) -> str:
    """Return an address of this site."""
    return f"{path}?{urlencode(pairs)}" if pairs else path


def go_to(path: str) -> Response:
    """Return a redirect that a browser follows with GET."""
    return RedirectResponse(path, status_code=303)


def fields_of(request: Request) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]:
    """Return the fields of the address and of the form, as the guard read them."""
    return request.scope["hubermean.query"], request.scope["hubermean.form"]
