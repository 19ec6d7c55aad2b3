"""The server: routes, the session of a visitor, and a socket that uvicorn serves."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hubermean.app import pages, releases, steward
from hubermean.app.access import Access, new_access, read_access
from hubermean.app.budgets import identify_ledger
from hubermean.app.guard import FAULT, LARGEST_HEADERS, Application, Guard
from hubermean.app.runner import Runner, describe_error
from hubermean.app.settings import Settings
from hubermean.app.site import STATIC, VERSION, Site, Visit, fields_of, go_to, render, show_error
from hubermean.app.state import State
from hubermean.app.tables import Tables
from hubermean.errors import HubermeanError, InputError, parameter
from hubermean.release.ledger import Ledger

_MOST_CONNECTIONS = 256

Page = Callable[..., Response]

ROUTES: tuple[tuple[str, str, Page, bool], ...] = (
    ("/", "GET", pages.tables, False),
    ("/question", "GET", pages.question, False),
    ("/budget", "GET", pages.budget, False),
    ("/review", "GET", pages.review, False),
    ("/releases", "GET", releases.listed, False),
    ("/releases", "POST", releases.start, False),
    ("/releases/{id}", "GET", releases.show, False),
    ("/releases/{id}/status", "GET", releases.status, False),
    ("/releases/{id}/{name}", "GET", releases.download, False),
    ("/ledger", "GET", pages.ledger, False),
    ("/ledger/dataset", "GET", pages.dataset, False),
    ("/ledger/verify", "GET", pages.verify, False),
    ("/ledger/{name}", "GET", pages.export, False),
    ("/setup", "GET", steward.setup, True),
    ("/setup", "POST", steward.assign, True),
)
"""Address, method, page, and whether it is for stewards only."""


class Server:
    """The page, ready to be served.

    Args:
        settings: what the operator decided.

    Raises:
        InputError: a setting, the state folder or the file of tokens cannot be used, or the port is taken.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.checked()
        self.socket = _listen(settings.host, settings.port)
        self.port: int = self.socket.getsockname()[1]
        tables = Tables(settings.folder, settings.connections)
        try:
            self.access: Access = new_access() if settings.tokens is None else read_access(settings.tokens)
            self._state = State(settings.state)
            self._runner = Runner(settings.ledger, tables, self._state)
            with Ledger(settings.ledger) as ledger:
                self._state.bind(identify_ledger(ledger))
            self._runner.recover()
        except BaseException:
            self.socket.close()
            raise
        site = Site(
            settings=settings,
            access=self.access,
            tables=tables,
            state=self._state,
            runner=self._runner,
            cookie=f"hubermean_{self.port}",  # browsers share cookies between the ports of a host
        )
        self.application: Application = Guard(_make_pages(site), settings.hosts(self.port), show_error)

    @property
    def address(self) -> str:
        """Where the page is."""
        name = self.settings.names[0] if self.settings.names else self.settings.host
        if name.count(":") == 1:  # with the port of a proxy
            return f"http://{name}"
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    def links(self) -> list[tuple[str, str, str]]:
        """Return (role, name, link) of everybody with a token."""
        return [
            (one.role, one.name, f"{self.address}/enter?token={token}")
            for token, one in self.access.tokens.items()
        ]

    def run(self) -> None:
        """Serve until the process is asked to end; releases that are running end first."""
        config = uvicorn.Config(
            self.application,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            log_level="critical",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=LARGEST_HEADERS,
        )
        try:
            uvicorn.Server(config).run(sockets=[self.socket])
        finally:
            self._runner.close()
            self._state.close()
            self.socket.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(found[0], found[1])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(512)  # whoever opens a link at once waits until it is served
    except OSError:
        raise InputError(
            f"port {port} of {host} is taken or may not be used; choose another {parameter('port')}"
        ) from None
    return listening


def _make_pages(site: Site) -> Application:
    routes = [
        Route(path, _visited(site, page, only_stewards=only), methods=[method])
        for path, method, page, only in ROUTES
    ]
    routes += [
        Route("/enter", _enter(site), methods=["GET", "POST"]),
        Route("/leave", _leave(site), methods=["POST"]),
        Route("/static/{version}/{name}", _static, methods=["GET"]),
    ]
    application = Starlette(
        routes=routes, exception_handlers={404: _missing, 405: _missing, Exception: _failed}
    )
    application.router.redirect_slashes = False
    return application


def _visited(site: Site, page: Page, *, only_stewards: bool) -> Callable[[Request], Response]:
    """Return the endpoint of a page: only with a session, a form only with its secret, errors as pages."""

    def endpoint(request: Request) -> Response:
        session = site.access.find(request.cookies.get(site.cookie, ""))
        if session is None:
            if request.method == "GET":
                return HTMLResponse(render("enter", wrong=False), status_code=401)
            return HTMLResponse(render("enter", wrong=False), status_code=403)
        query, form = fields_of(request)
        visit = Visit(site=site, session=session, query=query, form=form)
        if only_stewards and not session.principal.is_steward:
            return visit.problem(403, "Only a steward can do this. Ask one to open a budget for your table.")
        if request.method == "POST" and not _has_secret(form, session.csrf):
            return visit.problem(403, "This form is from an earlier session. Open its page again.")
        try:
            return page(visit, **request.path_params)
        except HubermeanError as error:
            return visit.problem(400, describe_error(error))

    return endpoint


def _has_secret(form: Any, csrf: str) -> bool:
    given = form.get("csrf", ())
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), csrf.encode())


def _enter(site: Site) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        query, form = fields_of(request)
        tokens = (form if request.method == "POST" else query).get("token", ())
        if not tokens:
            return HTMLResponse(render("enter", wrong=False))
        if request.method == "GET" and request.headers.get("sec-fetch-site", "none") in (
            "cross-site",
            "same-site",
        ):
            # Another website may open this link, to sign somebody in under a name that is not theirs.
            return HTMLResponse(render("enter", wrong=False, offered=tokens[0]))
        entered = site.access.enter(tokens[0].strip()) if len(tokens) == 1 else None
        if entered is None:
            return HTMLResponse(render("enter", wrong=True), status_code=403)
        answer = go_to("/")  # which also takes the token out of the address
        encrypted = request.headers.get("x-forwarded-proto") == "https"  # as a proxy with HTTPS says
        answer.set_cookie(
            site.cookie, entered[0], httponly=True, samesite="strict", secure=encrypted, path="/"
        )
        return answer

    return endpoint


def _leave(site: Site) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        key = request.cookies.get(site.cookie, "")
        session = site.access.find(key)
        if session is None or not _has_secret(fields_of(request)[1], session.csrf):
            return HTMLResponse(render("enter", wrong=False), status_code=403)
        site.access.leave(key)
        answer = go_to("/enter")
        answer.delete_cookie(site.cookie, path="/")
        return answer

    return endpoint


def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None or request.path_params["version"] != VERSION:
        return Response(status_code=404)
    kind, body = found
    return Response(body, media_type=kind, headers={"cache-control": "max-age=86400"})


async def _missing(request: Request, _: Exception) -> Response:
    return HTMLResponse(show_error(404, "There is no such page."), status_code=404)


async def _failed(request: Request, _: Exception) -> Response:
    return HTMLResponse(show_error(500, FAULT), status_code=500)
