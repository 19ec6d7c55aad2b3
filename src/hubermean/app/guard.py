"""What every request passes before a page sees it, and every answer after: limits, origin, policy, no traceback.

It fails closed: what is not recognised is refused, with a fixed sentence that quotes nothing of the request.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_FORM = 100_000  # bytes
LARGEST_HEADERS = 32_768  # bytes
LONGEST_ADDRESS = 16_000  # bytes of path and query
BODY_SECONDS = 10.0
_MOST_FIELDS = 1000
FAULT = "Something went wrong on this page. Please report this."
METHODS = ("GET", "HEAD", "POST")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from another host, no script or style within a page, no frame around it."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers would send no origin with a form
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


@dataclass(frozen=True)
class RefusedError(Exception):
    """A request that no page sees."""

    status: int
    reason: str


class Guard:
    """An ASGI application around another one.

    Args:
        application: the pages.
        hosts: the values of the Host header that are accepted.
        show_error: makes a page of a status and a sentence.
    """

    def __init__(
        self, application: Application, hosts: frozenset[str], show_error: Callable[[int, str], bytes]
    ) -> None:
        self._application, self._hosts, self._show_error = application, hosts, show_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no web sockets
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = _complete(message.get("headers", ()))
            await send(message)

        try:
            scope["hubermean.query"] = self._check(scope)
            scope["hubermean.form"] = await _read_form(scope, receive) if scope["method"] == "POST" else {}
            await self._application(scope, _no_body, answer)
        except RefusedError as refused:
            if not begun:
                await self._refuse(answer, refused.status, refused.reason)
        except Exception as fault:  # noqa: BLE001 - its text might quote data, so only its place is logged
            frame = traceback.extract_tb(fault.__traceback__)[-1]
            print(  # noqa: T201
                f"hubermean app: {type(fault).__name__} in {frame.name}, line {frame.lineno}", file=sys.stderr
            )
            if not begun:
                await self._refuse(answer, 500, FAULT)

    def _check(self, scope: Scope) -> Mapping[str, Sequence[str]]:
        """Return the fields of the address; RefusedError for a request that cannot be from one of our pages."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > LARGEST_HEADERS:
            raise RefusedError(431, "This request is too large.")
        if {b"transfer-encoding", b"content-length"} <= {name for name, _ in headers}:
            raise RefusedError(400, "This request states its length twice.")
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise RefusedError(
                421, "This page has another address. Open the link that was printed at the start."
            )
        if scope["method"] not in METHODS:
            raise RefusedError(405, "This page cannot do that.")
        query = scope.get("query_string", b"")
        if len(scope.get("raw_path") or b"") + len(query) > LONGEST_ADDRESS:
            raise RefusedError(
                414, "The address is too long. List fewer groups or columns here, or use the command line."
            )
        if scope["method"] == "POST":
            _check_origin(headers, hosts[0])
        return _parse(query)

    async def _refuse(self, send: Send, status: int, reason: str) -> None:
        body = self._show_error(status, reason)
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _check_origin(headers: Sequence[tuple[bytes, bytes]], host: str) -> None:
    """Refuse a form that another site sent; every browser states the origin of a form."""
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    try:
        parts = urlsplit(origins[0]) if len(origins) == 1 else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or parts.netloc.lower() != host:
        raise RefusedError(403, "This form was not sent from a page of hubermean.")
    if any(site not in (b"same-origin", b"none") for site in sites):
        raise RefusedError(403, "This form was not sent from a page of hubermean.")


async def _read_form(scope: Scope, receive: Receive) -> Mapping[str, Sequence[str]]:
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/x-www-form-urlencoded":
        raise RefusedError(415, "This form is not of the kind that this page reads.")
    stated = headers.get(b"content-length", b"0")
    if not stated.isdigit() or len(stated) > 9 or int(stated) > LARGEST_FORM:
        raise RefusedError(413, "This form is too large.")
    body, more = b"", True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise RefusedError(400, "The form did not arrive completely.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > LARGEST_FORM:
                    raise RefusedError(413, "This form is too large.")
    except TimeoutError:
        raise RefusedError(408, "The form did not arrive in time.") from None
    return _parse(body)


def _parse(text: bytes) -> Mapping[str, Sequence[str]]:
    try:
        return parse_qs(
            text.decode("ascii"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:  # not ASCII, not UTF-8 once it is unquoted, or too many fields
        raise RefusedError(400, "This address or form cannot be read.") from None


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _complete(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    names = {name.lower() for name, _ in headers}
    added = [*_HEADERS, (b"content-security-policy", POLICY.encode()), (b"cache-control", b"no-store")]
    return [*headers, *(pair for pair in added if pair[0] not in names)]
