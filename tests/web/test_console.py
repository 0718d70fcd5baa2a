"""The console's requests: who may see and do what, and what strangers and other sites cannot."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from cairn.web.asking import TOGETHER
from tests.cluster.harness import eventually
from tests.server.collector import collecting
from tests.server.test_activity import LONG
from tests.server.test_rules import setting
from tests.server.test_users import PASSWORD as USERS_PASSWORD
from tests.server.test_users import users
from tests.web.browsing import OWN, Browser
from tests.web.conftest import Watched

pytestmark = pytest.mark.cluster
SEEN = ("/api/v1/status", "/api/v1/overview", "/api/v1/samples", "/api/v1/events?after=0:0")


@pytest.fixture
def browser(watched: Watched) -> Browser:
    return watched.browser("i1")


@pytest.fixture
def admin(browser: Browser) -> Browser:
    assert browser.log_in() == (200, {"ok": True})
    return browser


# --- looking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SEEN)
def test_this_machine_sees_the_topology_without_a_login(browser: Browser, path: str) -> None:
    assert browser.get(path)[0] == 200


@pytest.mark.parametrize("path", SEEN)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:5327"},
        {"Host": "evil.example"},
        {"X-Forwarded-For": "192.0.2.1"},
        {"Forwarded": "for=192.0.2.1"},
    ],
    ids=["rebound name", "rebound name, no port", "proxy", "proxy, new header"],
)
def test_others_who_come_through_this_machine_do_not(
    browser: Browser, path: str, headers: dict[str, str]
) -> None:
    code, told = browser.get(path, headers)
    assert (code, told["error"]["sqlstate"]) == (401, "28000")
    browser.log_in()
    assert browser.get(path, headers)[0] == 200


def test_the_overview_has_what_the_page_draws(browser: Browser) -> None:
    eventually(lambda: len(browser.get("/api/v1/overview")[1]["last"]) == 2, "first samples")
    _, told = browser.get("/api/v1/overview")
    assert told["here"] == "i1"
    assert told["me"] is None
    assert [row["name"] for row in told["status"]["instances"]] == ["i1", "i2"]
    assert [row["answers"] for row in told["status"]["instances"]] == [True, True]
    assert sum(end - start + 1 for start, end, *_ in told["buckets"]["default"]) == 3000
    assert set(told["consoles"]) == {"i1", "i2"}
    assert told["health"][0]["level"] in ("good", "warning")
    _, samples = browser.get("/api/v1/samples?since=0")
    assert all(len(row) == len(samples["names"]) for row in samples["instances"]["i2"])
    last = samples["instances"]["i1"][-1][0]
    assert all(
        row[0] > last for row in browser.get(f"/api/v1/samples?since={last}")[1]["instances"]["i1"]
    )


def test_an_event_loop_that_stood_still_is_seen(watched: Watched, browser: Browser) -> None:
    def worst_ms() -> float:
        told = browser.get(f"/api/v1/samples?since={begun}")[1]
        at = told["names"].index("loop_lag_ms")
        return max((row[at] for row in told["instances"]["i2"]), default=0.0)

    begun = time.time()
    watched["i2"].pause()
    time.sleep(0.6)
    watched["i2"].resume()
    eventually(lambda: worst_ms() > 250, "a sample with the pause in it")


def test_events_are_told_in_raft_order_and_after_a_position(browser: Browser) -> None:
    events = browser.get("/api/v1/events?after=0:0")[1]
    places = [(*each["raft"], each["n"]) for each in events]
    assert places == sorted(places)
    maps = {each["body"]["map"] for each in events}
    assert {"instance", "replicaset", "bucket"} <= maps
    term, index = events[-1]["raft"]
    assert browser.get(f"/api/v1/events?after={term}:{index}") == (200, [])
    last = browser.get("/api/v1/events?before=99999999999999999999:0")[1]
    assert last[-1] == events[-1]


@pytest.mark.parametrize(
    "path", ["/api/v1/samples?since=x", "/api/v1/events?after=1", "/api/v1/events?before=a:b"]
)
def test_a_question_that_makes_no_sense_is_refused(browser: Browser, path: str) -> None:
    code, told = browser.get(path)
    assert (code, told["error"]["sqlstate"]) == (400, "22023")


# --- login ----------------------------------------------------------------------------------------


def test_a_login_is_a_cookie_that_no_script_and_no_other_site_gets(browser: Browser) -> None:
    assert browser.log_in() == (200, {"ok": True})
    cookie = browser.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "secure" not in cookie.lower()  # this instance has no TLS
    assert browser.get("/api/v1/overview")[1]["me"]["name"] == "admin"


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("admin", "wrong"),
        ("nobody", "x"),
        ("", ""),
        ("guest", ""),
        ("admin", "\x00\u0007"),
        ("admin", "x" * 10_000),
    ],
)
def test_whoever_has_no_password_gets_the_same_answer(
    browser: Browser, user: str, password: str
) -> None:
    code, told = browser.log_in(user, password)
    assert (code, told["error"]["sqlstate"]) == (401, "28P01")
    assert told["error"]["message"] == f"authentication failed for user '{user}'"
    assert browser.cookies == {}


def test_guesses_over_http_lock_out_as_guesses_over_pgwire_do(watched: Watched) -> None:
    node, browser = watched["i1"], watched.browser("i1")
    with users(node, "victim"):
        for _ in range(4):
            assert browser.log_in("victim", "guess")[0] == 401
        assert browser.log_in("victim", USERS_PASSWORD)[0] == 401
        node.sql("ALTER USER victim WITH LOGIN")  # an administrator lets it in again
        assert browser.log_in("victim", USERS_PASSWORD)[0] == 200


def test_a_login_counts_on_every_instance_and_ends_with_the_password(watched: Watched) -> None:
    here, there = watched.browser("i1"), watched.browser("i2")
    with users(watched["i1"], "carol"):
        assert here.log_in("carol", USERS_PASSWORD)[0] == 200
        there.cookies = here.cookies
        eventually(lambda: there.query("SELECT 1")[0] == 200, "the user is known there")
        watched["i1"].sql("ALTER USER carol WITH PASSWORD 'An0therPass'")
        eventually(lambda: there.query("SELECT 1")[0] == 401, "the old cookie is worth nothing")
        assert here.query("SELECT 1")[0] == 401
        assert here.log_in("carol", "An0therPass")[0] == 200
        watched["i1"].sql("ALTER USER carol WITH NOLOGIN")
        assert here.query("SELECT 1")[0] == 401


def test_a_logout_ends_the_cookie(admin: Browser) -> None:
    kept = dict(admin.cookies)
    assert admin.post("/api/v1/logout", {})[0] == 200
    assert admin.cookies != kept
    admin.cookies = kept
    assert admin.query("SELECT 1")[0] == 401
    [(name, token)] = kept.items()
    for same in (f"{token}!", f"!{token}", f"{token}===", f"{token[:8]}~{token[8:]}"):
        admin.cookies = {name: same}  # base64 forgives, a logout does not
        assert admin.query("SELECT 1")[0] == 401


def test_a_ticket_takes_one_to_another_instance_once(watched: Watched) -> None:
    here, there = watched.browser("i1"), watched.browser("i2")
    here.log_in()
    ticket = here.get("/api/v1/overview")[1]["me"]["ticket"]
    assert there.post("/api/v1/login", {"ticket": ticket}) == (200, {"ok": True})
    assert there.query("SELECT current_user")[1]["rows"] == [["admin"]]
    third = watched.browser("i2")
    assert third.post("/api/v1/login", {"ticket": ticket})[0] == 401
    third.cookies = dict.fromkeys(here.cookies, ticket)  # it is no session by itself
    assert third.query("SELECT 1")[0] == 401


@pytest.mark.parametrize("token", ["", "x", "A" * 5000, "AAAA", "%00", "é"])
def test_a_cookie_that_nobody_gave_is_worth_nothing(
    watched: Watched, browser: Browser, token: str
) -> None:
    browser.log_in()
    [name] = browser.cookies
    browser.cookies = {}
    code, _ = browser.post(
        "/api/v1/query",
        {"sql": "SELECT 1"},
        {**OWN, "Cookie": f"{name}={token}".encode().decode("latin-1")},
    )
    assert code == 401


def test_a_cookie_with_another_user_in_it_is_worth_nothing(watched: Watched) -> None:
    browser = watched.browser("i1")
    with users(watched["i1"], "mallory"):
        assert browser.log_in("mallory", USERS_PASSWORD)[0] == 200
        [(name, token)] = browser.cookies.items()
        for at in range(0, len(token), 5):
            browser.cookies = {
                name: token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
            }
            assert browser.query("SELECT 1")[0] == 401


# --- other sites ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/login", "/api/v1/logout", "/api/v1/query"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"X-Cairn": "console", "Origin": "http://evil.example"},
        {"X-Cairn": "console", "Origin": "null"},
    ],
    ids=["a form", "another origin", "a sandbox"],
)
def test_another_site_can_change_nothing(
    admin: Browser, path: str, headers: dict[str, str]
) -> None:
    body = {"sql": "SELECT 1", "user": "admin", "password": "x"}
    code, told = admin.post(path, body, headers)
    assert (code, told["error"]["sqlstate"]) == (403, "28000")
    assert admin.query("SELECT 1")[0] == 200


def test_a_name_that_a_stranger_gives_to_this_machine_takes_no_password(
    watched: Watched, browser: Browser
) -> None:
    """His page would guess from the operator's own browser, and lock the operator out."""
    port = watched.http["i1"]
    headers = {
        "Host": f"evil.example:{port}",
        "Origin": f"http://evil.example:{port}",
        "X-Cairn": "console",
    }
    for _ in range(8):
        code, told = browser.post("/api/v1/login", {"user": "admin", "password": "x"}, headers)
        assert (code, told["error"]["sqlstate"]) == (403, "28000")
    assert browser.log_in()[0] == 200


def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(watched: Watched) -> None:
    browser = watched.browser("i1")
    code, page = browser.get("/")
    assert code == 200
    policy = dict(
        part.strip().split(" ", 1) for part in browser.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert set(policy["connect-src"].split()) == {
        "'self'",
        *(f"http://127.0.0.1:{port}" for port in watched.http.values()),
    }
    assert "http://" not in page and "https://" not in page
    assert "style=" not in page and "onclick" not in page
    for name in (
        "console.js",
        "dom.js",
        "charts.js",
        "cluster.js",
        "tabs.js",
        "events.js",
        "console.css",
    ):
        code, text = browser.get(f"/static/{name}")
        assert code == 200
        assert "innerHTML" not in text and "eval(" not in text and "insertAdjacent" not in text
        assert browser.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/static/../console.py")[0] == 404
    assert browser.get("/static/console.html")[0] == 404


# --- statements -----------------------------------------------------------------------------------


def test_statements_need_a_login(browser: Browser) -> None:
    code, told = browser.query("SELECT 1")
    assert (code, told["error"]["message"]) == (401, "log in first")


def test_an_answer_is_columns_and_rows(admin: Browser) -> None:
    code, told = admin.query(
        "SELECT 1 AS one, 'a' AS two, NULL AS three, true AS four, 1.5::double AS five, "
        "9007199254740993 AS six, '2026-01-02T03:04:05Z'::datetime AS seven"
    )
    assert code == 200, told
    assert [column["name"] for column in told["columns"]] == [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
    ]
    [row] = told["rows"]
    assert row[:6] == [1, "a", None, True, 1.5, "9007199254740993"]
    assert row[6].startswith("2026-01-02 03:04:05")
    assert (told["tag"], told["is_all"]) == ("SELECT 1", True)


def test_statements_run_with_the_rights_of_the_user(watched: Watched) -> None:
    node, browser = watched["i1"], watched.browser("i1")
    node.sql("CREATE TABLE kept (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    try:
        with users(node, "dave"):
            browser.log_in("dave", USERS_PASSWORD)
            for sql in (
                "SELECT * FROM kept",
                "DROP TABLE kept",
                "SELECT * FROM _pico_user",
                "CALL cairn_expel('i2')",
            ):
                code, told = browser.query(sql)
                assert (sql, code, told["error"]["sqlstate"]) == (sql, 403, "42501")
            node.sql("GRANT READ ON TABLE kept TO dave")
            assert browser.query("SELECT * FROM kept")[1]["rows"] == []
            assert browser.get("/api/v1/overview")[1]["me"]["is_admin"] is False
    finally:
        node.sql("DROP TABLE kept")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMP TABLE box (id INT)",
        "CREATE TEMP TABLE box AS SELECT 1 AS id",
        "SELECT 1 AS id INTO TEMP box",
        "CREATE TEMP TABLE box (LIKE _pico_instance)",
    ],
)
def test_a_temporary_table_of_nobody_is_not_made(
    watched: Watched, admin: Browser, text: str
) -> None:
    """It came into the catalogue of all, where nobody could read it, and needed no right."""
    status, told = admin.query(text)
    assert (status, told["error"]["sqlstate"]) == (400, "0A000")
    assert watched["i1"].sql("SELECT name FROM _pico_table WHERE name = 'box'") == []


def test_a_long_answer_is_cut_and_says_so(admin: Browser) -> None:
    told = admin.query("SELECT * FROM generate_series(1, 5000) a")[1]
    assert (len(told["rows"]), told["is_all"]) == (1000, False)
    told = admin.query("SELECT * FROM generate_series(1, 1000) a")[1]
    assert (len(told["rows"]), told["is_all"]) == (1000, True)


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def test_what_a_long_answer_does_not_show_is_not_held_either(
    watched: Watched, admin: Browser
) -> None:
    """900 rows of 10 MB took 9 GB, and 66 s although a statement has 30."""
    before = peak_mb(watched["i1"].child_pid)
    told = admin.query("SELECT repeat('x', 1000000) FROM generate_series(1, 900)", timeout_s=30)[1]
    assert ([len(row[0]) for row in told["rows"]], told["is_all"]) == ([1_000_000] * 4, False)
    assert peak_mb(watched["i1"].child_pid) - before < 300


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SELEC 1", "42601"),
        ("", "22023"),
        ("SELECT 1/0", "22012"),
        ("SELECT $1", "22023"),
        ("BEGIN", "0A000"),
        ("COPY _pico_tier TO STDOUT", "0A000"),
        ("SELECT 1; SELECT 2", "42601"),
        ("SELECT '" + "x" * 200_000, "42601"),
    ],
)
def test_a_bad_statement_is_refused_and_the_instance_goes_on(
    admin: Browser, sql: str, state: str
) -> None:
    code, told = admin.query(sql)
    assert (code, told["error"]["sqlstate"]) == (400, state)
    assert admin.query("SELECT 1")[1]["rows"] == [[1]]


def failures(watched: Watched) -> int:
    shown = "SELECT count(*) FROM generate_series($1, $2) a, generate_series($3, $4) b"
    told = watched["i1"].sql(
        f"SELECT sum(errors) FROM _cairn_statements WHERE instance = 'i1' AND query = '{shown}'"
    )
    return int(told[0][0] or 0)


def test_whoever_goes_away_ends_their_statement(watched: Watched, admin: Browser) -> None:
    before = failures(watched)
    with pytest.raises(TimeoutError):
        admin.query(LONG, timeout_s=1.0)
    eventually(lambda: failures(watched) == before + 1, "the end of the statement", 10)


@pytest.mark.slow
def test_a_statement_that_never_ends_is_ended(admin: Browser) -> None:
    code, told = admin.query(LONG, timeout_s=60.0)
    assert (code, told["error"]["sqlstate"]) == (400, "57014")
    assert told["error"]["message"] == "canceling statement due to statement timeout"


def test_consoles_of_an_instance_run_so_many_statements_and_no_more(watched: Watched) -> None:
    before = failures(watched)
    browsers = [watched.browser("i1") for _ in range(TOGETHER + 1)]
    for browser in browsers:
        browser.log_in()
    sockets = [browser.send("/api/v1/query", {"sql": LONG}) for browser in browsers[:-1]]
    try:
        eventually(lambda: browsers[-1].query("SELECT 1")[0] == 429, "that it is too much")
    finally:
        for connection in sockets:
            connection.close()
    eventually(lambda: browsers[-1].query("SELECT 1")[0] == 200, "that there is room again")
    eventually(lambda: failures(watched) >= before + TOGETHER, "the end of all", 20)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"sql": 1}', b"\xff\xfe", b"[" * 100_000, b'{"sql": "\\ud800"}']
)
def test_a_bad_body_is_refused(admin: Browser, body: bytes) -> None:
    assert admin.post("/api/v1/query", body)[0] == 400
    assert admin.query("SELECT 1")[0] == 200


@pytest.mark.parametrize("path", ["/api/v1/login", "/api/v1/logout", "/api/v1/query"])
def test_a_body_that_is_no_text_is_refused(admin: Browser, path: str) -> None:
    """Found by fuzzing: it was an internal error, and a long story in the log for each."""
    assert admin.post(path, b'{"ticket": "\xb3\xff", "sql": "\xb3"}')[0] == 400


def test_a_body_has_a_limit(admin: Browser) -> None:
    code, told = admin.query("x" * 2_000_000)
    assert (code, told["error"]["message"]) == (400, "the request is too long")


def test_of_a_stranger_little_is_read(browser: Browser) -> None:
    """500 of them with a megabyte each would be half a gigabyte."""
    code, told = browser.log_in("admin", "x" * 100_000)
    assert (code, told["error"]["message"]) == (400, "the request is too long")
    code, told = browser.query("x" * 100_000)
    assert (code, told["error"]["sqlstate"]) == (401, "28000")


def test_a_statement_is_explained_and_a_session_is_ended(watched: Watched, admin: Browser) -> None:
    plan = admin.query("EXPLAIN SELECT * FROM _pico_tier WHERE name = $1")[1]
    assert [column["name"] for column in plan["columns"]] == ["QUERY PLAN"]
    with watched["i2"].connect() as session:
        told = admin.query(f"CALL cairn_terminate('i2', {session.info.backend_pid})")[1]
        assert json.loads(told["rows"][0][0]) == {"done": True}
        eventually(lambda: _is_gone(session), "the end of the session")


def _is_gone(session: Any) -> bool:
    try:
        session.execute("SELECT 1")
    except Exception:
        return bool(session.closed)
    return False


def test_rows_of_long_answers_are_counted_in_the_metrics(watched: Watched) -> None:
    def rows() -> float:
        told = watched.browser("i1").get("/metrics")[1]
        found = re.search(r"^cairn_statement_rows_total (\S+)$", told, re.MULTILINE)
        assert found is not None
        return float(found[1])

    before = rows()
    with watched["i1"].connect() as connection:
        series = "SELECT * FROM generate_series(1, 2000) a"
        assert len(connection.execute(series).fetchall()) == 2000
        assert len(connection.execute(series, binary=True).fetchall()) == 2000
    assert rows() - before >= 4000


def test_what_is_done_over_http_is_in_the_audit_log(watched: Watched, admin: Browser) -> None:
    admin.log_in("admin", "wrong")
    admin.query("ALTER SYSTEM SET sql_motion_row_max = 12345")
    admin.query("ALTER SYSTEM RESET sql_motion_row_max")

    def noted() -> bool:
        written = (watched["i1"].dir / "audit.log").read_text()
        lines = written.rpartition("\n")[0].splitlines()  # the last one may be half written
        told = [
            {key: line[key] for key in line if key not in ("time", "pid", "untold")}
            for line in map(json.loads, lines)
        ]
        who = {"user": "admin", "address": "127.0.0.1"}
        change = {"statement": "ALTER SYSTEM SET sql_motion_row_max = 12345", "outcome": "done"}
        return (
            {"event": "login", **who, "door": "http"} in told
            and {"event": "login_refused", **who, "why": "wrong password"} in told
            and {"event": "settings", **who, **change} in told
        )

    eventually(noted, "the lines of the login, the refusal and the change")


def test_a_statement_of_the_console_is_traced_as_any_other(
    watched: Watched, admin: Browser
) -> None:
    node = watched["i1"]
    with (
        collecting() as (collector, address),
        setting(node, "trace_sample_ratio", "1"),
        setting(node, "trace_endpoint", f"'{address}'"),
    ):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        good, bad = "SELECT name FROM _pico_tier", "SELECT $1 / $2"
        assert admin.query(f"{good} /*traceparent='{parent}'*/")[0] == 200
        assert admin.query("SELECT 1 / 0")[1]["error"]["sqlstate"] == "22012"
        eventually(lambda: collector.of(good) and collector.of(bad), "both statements")
    [[whole, *_]], [[failed, *_]] = collector.of(good), collector.of(bad)
    assert (whole.trace, whole.parent, whole.error) == (*parent.split("-")[1:3], "")
    assert whole.attributes == {
        "db.system.name": "cairn",
        "db.query.text": good,
        "user.name": "admin",
        "client.address": "127.0.0.1",
        "db.response.returned_rows": 1,
        "cairn.hops": 0,
    }
    assert failed.error == "22012"
    assert collector.problems == []
