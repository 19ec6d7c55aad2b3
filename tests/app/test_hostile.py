"""Hostile requests: no traceback, no file outside the folder, no value without a release, nothing charged."""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.app_server import AppServer, Client, running_app, start_app
from hubermean.app.server import ROUTES
from hubermean.app.settings import Settings
from hubermean.ingest.locations import without_credentials

TABLE = "file:trips.parquet"
OUTSIDE, INSIDE = "canary-outside-4711", "canary-inside-4712"
NASTY = (
    "", " ", "\0", "\n", "\r\nSet-Cookie: a=b", "../outside.csv", "file:../outside.csv", "file:link.csv",
    "file:folder/inner.csv", "file:/etc/passwd", "file:trips.parquet\0.csv", "file:./trips.parquet", "..\\..",
    "file:*.parquet", "db:x", "'; drop table runs; --", '"><svg/onload=alert(1)>', "{{7*7}}", "${7*7}", "\u202eevil",
    "\ufeff", "a" * 5000, "1e400", "nan", "inf", "-1", "0", "1e-320", "9" * 400, "0x10", "1_000", "１", "true", "None",
    "fare", "rider_id", "city", "trips", "mean", "count", "records", "user", "own", "yes", "http://127.0.0.1:1/",
    "month(city)", "\U0001f600", "ß", "epsilon", "new",
)  # fmt: skip
OUTSIDE_TABLES = (
    "file:link.csv", "file:linked/outside.csv", "file:../outside.csv", "file:folder/../../outside.csv",
    "file:.hidden.csv", "file:/etc/passwd", "file:folder/../trips.parquet",
)  # fmt: skip
FIELDS = (
    "table", "statistic", "of", "user", "value", "per", "by", "keys", "max_groups", "bounds_low", "bounds_high",
    "max_records", "n_users", "epsilon", "own", "delta", "fresh", "users", "name", "header", "delimiter", "decimal",
    "encoding", "null", "dataset", "neighbors", "composition", "incomplete", "token", "csrf", "unheard",
)  # fmt: skip
REFUSALS = {400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 421, 503}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    data = place / "data"
    (data / "folder").mkdir(parents=True)
    people = 600
    trips = pa.table(
        {
            "rider_id": list(range(people)) * 2,
            "city": [INSIDE] * 2 + ["Arden"] * (2 * people - 2),
            "fare": [4712.4712] * 2 + [10.0, 12.0] * (people - 1),
        }
    )
    pq.write_table(trips, data / "trips.parquet")
    (place / "outside.csv").write_text(f"{OUTSIDE},b\n1,2\n")
    (data / "link.csv").symlink_to(place / "outside.csv")
    (data / "linked").symlink_to(place)
    (data / ".hidden.csv").write_text(f"{OUTSIDE},b\n1,2\n")
    (data / "folder" / "first.csv").write_text(f"{INSIDE},4712\n1,2\n")
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        book.init("trips", epsilon=50.0, delta=1e-5, user="rider_id")
    return place


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[AppServer]:
    options = ("--data", str(place / "data"), "--ledger", str(place / "budget.sqlite"))
    server = start_app(*options, "--state", str(place / "state"))
    steward = Client.enter(server, server.links[0])
    steward.post("/setup", [("csrf", steward.csrf), ("table", TABLE), ("dataset", "trips")])
    yield server
    assert server.stop() == ""  # nothing was logged: no fault, no request, no data


@pytest.fixture(scope="module")
def analyst(server: AppServer) -> Client:
    return Client.enter(server, server.links[1])


def entries(place: Path) -> list[str]:
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        return [entry.kind for entry in book.entries("trips")]


# --- who may send what ------------------------------------------------------------------------------------------------


def test_only_our_own_pages_can_send_a_form(analyst: Client, server: AppServer, place: Path) -> None:
    form = analyst.review(table=TABLE, value="fare", epsilon="1").hidden()
    before = entries(place)
    address = server.address
    for origin in (
        "",
        "null",
        "https://evil.example",
        f"{address}.evil.example",
        "http://127.0.0.1:1",
        f"{address}@e",
    ):
        assert analyst.post("/releases", form, Origin=origin).status == 403, origin
    assert analyst.post("/releases", form, Sec_Fetch_Site="cross-site").status == 403
    assert analyst.post("/releases", form, Sec_Fetch_Site="same-site").status == 403
    for csrf in ("", "0" * 64, analyst.csrf[:-1]):
        sent = [(name, csrf if name == "csrf" else one) for name, one in form]
        assert analyst.post("/releases", sent).status == 403
    assert analyst.post("/releases", form, Cookie="").status == 403
    assert analyst.post("/releases", form, Content_Type="text/plain").status == 415
    assert analyst.post("/releases", form, Content_Type="multipart/form-data; boundary=x").status == 415
    assert entries(place) == before


def test_a_name_that_resolves_here_is_refused(analyst: Client, server: AppServer) -> None:
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        f"127.0.0.1:{server.port + 1}",
        "127.0.0.1",
        "0.0.0.0",
    ):
        refused = analyst.request("GET", "/", Host=host)
        assert refused.status == 421, host
        assert "Choose a table" not in refused.text
    assert analyst.request("GET", "/", Host=f"LOCALHOST:{server.port}").status == 200


def test_without_a_session_there_is_nothing_but_the_door(server: AppServer) -> None:
    nobody = Client(server)
    for path, method, _, _ in ROUTES:
        path = path.replace("{id}", "0" * 32).replace("{name}", "release.json")
        answer = nobody.get(path) if method == "GET" else nobody.post(path, [])
        assert answer.status in (401, 403), path
        assert "trips" not in answer.text
    for token in ("", "0" * 64, server.links[0][-64:-1], server.links[0][-64:] + "0"):
        assert "set-cookie" not in nobody.get("/enter", [("token", token)]).headers
    assert nobody.post("/enter", [("token", "x")]).status == 403


def test_a_session_is_strict_and_ends(server: AppServer) -> None:
    nobody = Client(server)
    answer = nobody.request("GET", server.links[1].removeprefix(server.address))
    cookie = answer.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert answer.location == "/"
    client = Client.enter(server, server.links[1])
    assert client.get("/").status == 200
    assert client.post("/leave", [("csrf", client.csrf)]).status == 303
    assert client.get("/").status == 401


def test_another_website_cannot_sign_anybody_in(server: AppServer) -> None:
    nobody, path = Client(server), server.links[1].removeprefix(server.address)
    asked = nobody.request("GET", path, Sec_Fetch_Site="cross-site")
    assert asked.status == 200
    assert "set-cookie" not in asked.headers
    assert "Another website opened this page" in asked.text
    assert f'value="{path.partition("=")[2]}"' in asked.text  # one click signs in
    assert (
        nobody.post("/enter", [("token", path.partition("=")[2])], Sec_Fetch_Site="same-origin").status == 303
    )
    assert nobody.request("GET", path, Sec_Fetch_Site="none").status == 303


def test_every_answer_has_a_strict_policy(analyst: Client, server: AppServer) -> None:
    for answer in (
        analyst.get("/"),
        analyst.get("/nothing"),
        Client(server).get("/"),
        analyst.request("PUT", "/"),
    ):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert not re.search(r"<script(?! src=\"/static/)|<style| style=| on\w+=", answer.text)
        assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", answer.text)


# --- what cannot be reached -------------------------------------------------------------------------------------------


def test_no_path_leads_out_of_the_folder(analyst: Client, server: AppServer) -> None:
    listed = analyst.get("/").text
    assert "folder/first.csv" in listed
    for name in ("link.csv", "linked", "outside", ".hidden", INSIDE):
        assert name not in listed
    steward = Client.enter(server, server.links[0])
    for table in (*OUTSIDE_TABLES, f"file:{server.address}"):
        for answer in (
            steward.get("/setup", [("table", table), ("header", "yes")]),
            steward.get("/question", [("table", table)]),
            steward.review(table=table, value="b", epsilon="1"),
            steward.post("/setup", [("csrf", steward.csrf), ("table", table), ("dataset", "trips")]),
        ):
            assert answer.status == 400
            assert OUTSIDE not in answer.text
    for path in (
        "/static/../app/site.py",
        "/static/x/../../../etc/passwd",
        "/static/%2e%2e/site.py",
        "//etc/passwd",
    ):
        assert analyst.get(path).status == 404


def test_a_table_that_became_a_link_after_it_was_chosen_is_not_read(
    analyst: Client, server: AppServer, place: Path
) -> None:
    table = place / "data" / "later.parquet"
    table.write_bytes((place / "data" / "trips.parquet").read_bytes())
    steward = Client.enter(server, server.links[0])
    steward.post("/setup", [("csrf", steward.csrf), ("table", "file:later.parquet"), ("dataset", "trips")])
    review = analyst.review(table="file:later.parquet", value="fare", epsilon="0.1")
    before = entries(place)
    table.rename(place / "moved.parquet")
    table.symlink_to(place / "moved.parquet")
    answer = analyst.ask(review)
    assert answer.status == 400
    assert entries(place) == before
    table.unlink()


# --- whatever is sent -------------------------------------------------------------------------------------------------


def send_something(
    client: Client, server: AppServer, rng: random.Random
) -> tuple[str, http.client.HTTPResponse, bytes]:
    """Send a request that is odd in some ways, and well formed in others."""
    pick = rng.choice
    path, method, _, _ = pick(ROUTES)
    known = [pick(("release.json", "status", "report", "ledger.json")), pick(NASTY)]
    path = path.replace("{id}", quote(pick(("0" * 32, pick(NASTY))), safe="")).replace(
        "{name}", quote(pick(known), safe="")
    )
    pairs = [(pick(FIELDS), pick(NASTY)) for _ in range(rng.randrange(8))]
    if rng.random() < 0.6:
        pairs = [("table", TABLE), ("value", "fare"), *pairs]
    if rng.random() < 0.1:
        method, path = (
            pick(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE")),
            "/" + quote(pick(NASTY)),
        )
    body, headers = None, {"Cookie": client.cookie, "Origin": server.address}
    if method == "POST":
        body = urlencode([("csrf", client.csrf), *pairs]).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if rng.random() < 0.1:
            body = bytes(rng.randrange(256) for _ in range(rng.randrange(2000)))
        if rng.random() < 0.05:
            body = body * 200
    else:
        path += f"?{urlencode(pairs)}" if rng.random() < 0.9 else f"?{quote(pick(NASTY))}&%ff=%zz"
    if rng.random() < 0.1:
        name = pick(
            ("Cookie", "Origin", "Content-Type", "Host", "Sec-Fetch-Site", "X-Forwarded-Host", "Range")
        )
        headers[name] = pick(
            ("", "x", "a" * 3000, "\xff\xfe", f"{client.cookie}; {client.cookie}0", "bytes=0-1")
        )
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return f"{method} {path[:200]}", answer, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("rounds", [250, pytest.param(10_000, marks=pytest.mark.slow)])
def test_whatever_is_sent_there_is_no_traceback_no_data_and_no_charge(
    rounds: int, analyst: Client, server: AppServer, place: Path
) -> None:
    rng = random.Random(2029 + rounds)
    before, statuses = entries(place), Counter[int]()
    steward = Client.enter(server, server.links[0])
    for _ in range(rounds):
        client = analyst if rng.random() < 0.7 else steward
        asked, answer, body = send_something(client, server, rng)
        statuses[answer.status] += 1
        assert answer.status in REFUSALS | {200, 303}, (asked, answer.status, body[:300])
        text = re.sub(
            r"[0-9a-f]{32,}", "", body.decode(errors="replace")
        )  # random tokens may hold any digits
        for never in (
            "Traceback",
            'File "',
            OUTSIDE,
            INSIDE,
            "4712",
            "<svg/onload",
            "root:",
            "\u202e",
            str(place),
        ):
            assert never not in text, (asked, never)
        assert "\n" not in answer.headers.get("location", "")
    assert statuses[200] > rounds / 10
    print(statuses)
    assert entries(place) == before


def test_markup_in_what_is_sent_and_in_names_is_text(analyst: Client, server: AppServer, place: Path) -> None:
    markup = '"><svg/onload=alert(1)>'
    (place / "data" / f"{markup.replace('/', '')}.csv").write_text("a,b\n1,2\n")
    texts = [(name, markup) for name in ("value", "by", "user", "keys", "own", "users", "name", "incomplete")]
    seen = 0
    for client in (analyst, Client.enter(server, server.links[0])):
        for path, method, _, _ in ROUTES:
            for table in (TABLE, f"file:{markup.replace('/', '')}.csv", markup):
                if method == "GET" and "{" not in path:
                    text = client.get(path, [("table", table), *texts]).text
                    assert "<svg/onload" not in text
                    assert "<svgonload" not in text
                    seen += "&lt;svg" in text
    assert seen > 5


def test_forms_and_addresses_have_limits(analyst: Client, server: AppServer) -> None:
    assert analyst.post("/releases", [("csrf", analyst.csrf), ("keys", "x" * 200_000)]).status == 413
    assert analyst.post("/releases", [("csrf", analyst.csrf), *[("by", "x")] * 2000]).status == 400
    assert analyst.get("/question", [("table", "x" * 20_000)]).status == 414
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:  # chunks without an end
        head = f"POST /releases HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {server.address}\r\n"
        head += "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        raw.sendall(head.encode() + b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
        assert b" 413 " in raw.recv(200)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 100_000)
        assert raw.recv(200).startswith(b"HTTP/1.1 400")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(head.replace("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\n").encode() + b"0\r\n\r\n")
        assert raw.recv(200).startswith(b"HTTP/1.1 400")
    wide = {f"X-{number}": "x" * 1000 for number in range(40)}
    assert analyst.request("GET", "/", **wide).status in (400, 431)
    far = analyst.review(table=TABLE, value="fare", epsilon="1", bounds_low="1e308", bounds_high="1.7e308")
    assert far.status == 400
    assert "narrower bounds" in far.text
    for users in ("9" * 20, "9" * 5000, "²"):
        assert analyst.get("/budget", [("table", TABLE), ("value", "fare"), ("users", users)]).status == 200
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"\x16\x03\x01\x00\xa5\x01\x00")
        assert b"200" not in raw.recv(200)
    assert analyst.get("/").status == 200


def test_a_form_that_does_not_arrive_is_given_up(place: Path) -> None:
    program = "import hubermean.app.guard as guard; guard.BODY_SECONDS = 0.2; "
    program += "from hubermean.cli.app import main; main()"
    server = start_app("--data", str(place / "data"), "--state", str(place / "slow"), program=program)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
            head = f"POST /enter HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {server.address}\r\n"
            head += "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\nto"
            raw.sendall(head.encode())
            assert b" 408 " in raw.recv(200)
    finally:
        server.stop()


def test_a_thousand_requests_at_once_charge_once(analyst: Client, server: AppServer, place: Path) -> None:
    review = analyst.review(table=TABLE, statistic="count", epsilon="1")
    before = entries(place)
    statuses: Counter[int] = Counter()
    begin, lock = threading.Barrier(100), threading.Lock()

    def send_ten(number: int) -> None:
        begin.wait()
        for turn in range(10):
            try:
                if (number + turn) % 4 == 0:
                    status = analyst.ask(review).status
                else:
                    status = analyst.get(("/", "/ledger", "/releases")[turn % 3]).status
            except (OSError, http.client.HTTPException):
                status = 0  # turned away by the system
            with lock:
                statuses[status] += 1

    threads = [threading.Thread(target=send_ten, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {0, 200, 303, 503}
    assert statuses[200] + statuses[303] > 500
    page = analyst.wait(analyst.ask(review).location)
    assert "95% interval" in page.text
    assert entries(place)[len(before) :] == ["charged", "released"]
    assert analyst.get("/ledger/verify").status == 200


# --- tokens and settings ----------------------------------------------------------------------------------------------


def test_tokens_that_others_may_read_are_refused(place: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    options = ("--data", str(place / "data"), "--state", str(tmp_path / "state"), "--tokens", str(tokens))
    with running_app(*options) as server:  # makes the file
        assert os.stat(tokens).st_mode & 0o777 == 0o600
        assert os.stat(tmp_path / "state" / "app.sqlite").st_mode & 0o777 == 0o600
        assert not server.links  # a terminal's history is no place for them
        token = tokens.read_text().split()[-1]
        assert Client.enter(server, f"{server.address}/enter?token={token}").get("/").status == 200
    tokens.chmod(0o640)
    with pytest.raises(AssertionError, match="chmod 600"):
        start_app(*options)


@pytest.mark.parametrize(
    "connection",
    ["host=127.0.0.1 user=bob password=SE4711", "postgresql://bob:SE?K4711@127.0.0.1:1/db", "postgresql://bob:SE4711",
     "postgresql://bob:SE@K?R4711@127.0.0.1/db", "mysql://bob:SE4711@127.0.0.1/db", "sqlite://SE4711"],
)  # fmt: skip
def test_a_connection_whose_password_cannot_be_told_is_refused_unquoted(
    connection: str, tmp_path: Path
) -> None:
    settings = Settings(folder=tmp_path, ledger="l", state=tmp_path, connections=(connection,))
    with pytest.raises(hm.InputError) as refused:
        settings.checked()
    for secret in ("4711", "bob", "SE"):
        assert secret not in str(refused.value)
        assert (
            secret not in without_credentials(connection) or "://" not in connection or "sqlite" in connection
        )


def test_other_machines_need_a_name(place: Path, tmp_path: Path) -> None:
    options = ("--data", str(place / "data"), "--state", str(tmp_path / "state"), "--host", "0.0.0.0")
    with pytest.raises(AssertionError, match="state the names"):
        start_app(*options)
    with running_app(*options, "--name", "budgets.example") as server:
        client = Client(server)
        assert client.request("GET", "/", Host="budgets.example").status == 401
        assert client.request("GET", "/", Host=f"127.0.0.1:{server.port}").status == 421
        assert "not encrypted" in server.printed
