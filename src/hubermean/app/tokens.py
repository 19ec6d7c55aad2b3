"""One-use tokens of forms that charge: bound to one person and one request, and valid for some hours.

A token is made without writing anything: 128 random bits, a time and their authentication under the secret of the page,
together with the person and the request. What was used is known from the runs that are kept (`State.add`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time

from hubermean.app.access import Principal

_LIFETIME = 12 * 3600
_FORM = re.compile(r"([0-9a-f]{32})-([0-9]{1,12})-([0-9a-f]{64})")


def offer_token(secret: bytes, principal: Principal, request: str) -> str:
    """Return a new token for a request."""
    number, until = os.urandom(16).hex(), str(int(time.time()) + _LIFETIME)
    return f"{number}-{until}-{_authenticate(secret, number, until, principal, request)}"


def check_token(secret: bytes, token: str, principal: Principal, request: str) -> str | None:
    """Return the id of a token that was offered to this person for this request, else None."""
    found = _FORM.fullmatch(token)
    if found is None:
        return None
    number, until, given = found.groups()
    expected = _authenticate(secret, number, until, principal, request)
    return number if hmac.compare_digest(given, expected) and time.time() < int(until) else None


def name_run(token: str) -> str:
    """Return the id of the run that a token would start; whether it may is for `check_token`."""
    return token.partition("-")[0]


def _authenticate(secret: bytes, number: str, until: str, principal: Principal, request: str) -> str:
    parts = (number, until, principal.role, principal.name, request)
    message = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hmac.new(secret, message, hashlib.sha256).hexdigest()
