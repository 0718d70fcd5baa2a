"""The console in a real browser: it loads, follows what happens, and nothing hostile runs in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, eventually, free_ports
from tests.server.test_activity import LONG
from tests.server.test_tls import files  # noqa: F401
from tests.web.chromium import Page, chromium
from tests.web.conftest import Watched
from tests.web.test_remote import address_of_this_machine

pytestmark = pytest.mark.cluster
Open = Callable[..., Page]
HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


@pytest.fixture(scope="module")
def opened() -> Iterator[Open]:
    with chromium() as opened:
        yield opened


def url(cluster: Watched, name: str = "i1", part: str = "") -> str:
    return f"http://127.0.0.1:{cluster.http[name]}/#/{part}"


@pytest.fixture
def page(opened: Open, watched: Watched) -> Iterator[Page]:
    made = opened(url(watched))
    yield made
    made.page.close()
    assert made.problems == []
    ports = {f"http://127.0.0.1:{port}/" for port in watched.http.values()}
    assert {asked for asked in made.asked if not asked.startswith(tuple(ports))} == set()


def test_the_page_shows_the_cluster_and_goes_on_by_itself(page: Page, watched: Watched) -> None:
    page.wait("i2")
    assert page.page.title().endswith("web · Overview")
    assert page.page.locator(".instance").count() == 2
    assert "master" in page.text("main")
    assert page.page.locator("svg.map rect").count() >= 2
    page.wait("CPU", "#charts")
    page.page.locator("#charts path").first.wait_for(state="attached", timeout=30_000)
    wide_s = page.page.locator("#charts svg.chart").first.evaluate(
        "e => Number(e.dataset.to) - Number(e.dataset.from)"
    )
    assert 120 <= wide_s < 15 * 60  # a young cluster's charts begin with its first sample
    before = watched.browser("i1").get("/api/v1/overview")[1]["position"][1]
    watched["i1"].sql("ALTER SYSTEM SET sql_motion_row_max = 777")
    watched["i1"].sql("ALTER SYSTEM RESET sql_motion_row_max")
    page.page.wait_for_function(
        "before => Number(document.body.innerText.match(/entry (\\d+)/)?.[1]) > before", arg=before
    )


def test_a_stranger_logs_in_and_asks(page: Page, watched: Watched) -> None:
    page.page.click("nav a[href='#/query']")
    page.log_in("wrong")
    page.wait("authentication failed", "[role=alert]")
    page.log_in(PASSWORD)
    page.page.fill("#sql", "SELECT 40 + 2 AS answer, NULL AS nothing")
    page.page.press("#sql", "Control+Enter")
    page.wait("42", "td")
    assert page.page.locator("th", has_text="answer").count() == 1
    page.page.fill("#sql", "SELECT * FROM _pico_tier WHERE name = 'default'")
    page.page.click("button[data-action=plan]")
    page.page.locator(".plan li").first.wait_for()
    page.page.fill("#sql", LONG)
    page.page.click("button[data-action=run]")
    page.page.click("button[data-action=stop]")
    page.wait("stopped", "[role=alert]")
    page.page.fill("#sql", "SELEC")
    page.page.click("button[data-action=run]")
    page.wait("42601", "[role=alert]")
    page.page.click("button[data-action=logout]")
    page.page.locator("#password").wait_for()


def test_nothing_that_people_name_or_write_becomes_html(page: Page, watched: Watched) -> None:
    node = watched["i1"]
    name = HOSTILE.replace('"', '""')
    node.sql(f'CREATE TABLE "{name}" (id INT PRIMARY KEY) DISTRIBUTED BY (id)')
    try:
        with node.connect(application_name=HOSTILE[:60]) as session:
            session.execute(f'SELECT 1 AS "{name}"')
            session.execute(f'SELECT count(*) FROM "{name}"')
            page.page.click("nav a[href='#/tables']")
            page.log_in(PASSWORD)
            for part in ("tables", "sessions", "statements"):
                page.page.click(f"nav a[href='#/{part}']")
                page.wait("<img src=x onerror=", "td")
            page.page.click("nav a[href='#/tables']")
            page.page.locator("tr", has_text="<img").locator("button").first.click()
            page.wait("<img src=x onerror=", "dialog h1")
            page.wait("bigint", "dialog td")
            page.page.keyboard.press("Escape")
            page.page.click("nav a[href='#/query']")
            page.page.fill("#sql", f"SELECT '{HOSTILE}' AS \"{name}\"")
            page.page.click("button[data-action=run]")
            page.wait("<img src=x", "td")
            page.page.click("button[data-action=plan]")
            page.page.locator(".plan li").first.wait_for()
        assert page.page.evaluate("window.pwned") is None
        assert page.page.locator("img[src=x], main script").count() == 0
    finally:
        node.sql(f'DROP TABLE "{name}"')


@pytest.mark.slow
def test_a_session_is_ended_from_the_page(page: Page, watched: Watched) -> None:
    with watched["i2"].connect(application_name="to be ended") as session:
        pid = session.info.backend_pid
        page.page.click("nav a[href='#/sessions']")
        page.log_in(PASSWORD)
        page.wait("to be ended", "td")
        row = page.page.locator("tr", has_text="to be ended")
        row.locator("button", has_text="End").click()

        def is_gone() -> bool:
            try:
                session.execute("SELECT 1")
            except psycopg.Error:
                return bool(session.closed)
            return False

        eventually(lambda: bool(page.dialogs), "the question")
        row.wait_for(state="detached", timeout=30_000)
        eventually(is_gone, "the end of the session")
        assert page.dialogs == [f"End the session {pid} of i2?"]


@pytest.mark.slow
def test_history_shows_the_cluster_as_it_was(page: Page, watched: Watched) -> None:
    page.page.click("nav a[href='#/history']")
    page.wait("(now)", "label")
    page.page.locator("#moment").focus()
    page.page.keyboard.press("Home")
    page.wait("before the first event", "label")
    page.wait("No replicaset yet")
    page.page.keyboard.press("End")
    page.wait("(now)", "label")
    assert page.page.locator("main .instance").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_works_by_keyboard(opened: Open, watched: Watched, scheme: str) -> None:
    page = opened(url(watched), viewport={"width": 360, "height": 740}, color_scheme=scheme)
    try:
        page.wait("i2")
        assert page.page.evaluate("document.documentElement.dataset.theme") == scheme
        for part in ("", "links", "history", "query"):
            page.go_to(part)
            wide = page.page.evaluate("document.documentElement.scrollWidth")
            assert (part, wide) == (part, 360)
        page.page.evaluate("location.hash = '#/'")
        page.page.keyboard.press("Tab")
        for _ in range(30):
            if page.page.evaluate("document.activeElement.textContent") == "Links":
                break
            page.page.keyboard.press("Tab")
        page.page.keyboard.press("Enter")
        page.wait("Rows go along the arrows")
        assert page.problems == []
    finally:
        page.page.close()


@pytest.mark.slow
def test_wide_tables_scroll_by_themselves_and_show_their_buttons(
    opened: Open, watched: Watched
) -> None:
    name = "t" + "_of_a_long_name" * 4
    watched["i1"].sql(f"CREATE TABLE {name} (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    for width in (360, 1200):
        page = opened(url(watched, part="tables"), viewport={"width": width, "height": 740})
        try:
            page.log_in(PASSWORD)
            page.wait(name, "td")
            assert page.page.evaluate("document.documentElement.scrollWidth") == width
            button = page.page.locator("tr", has_text=name).locator("button").first.bounding_box()
            if width == 1200:
                assert button is not None and button["x"] + button["width"] <= width - 15
        finally:
            page.page.close()
    watched["i1"].sql(f"DROP TABLE {name}")


@pytest.mark.slow
def test_of_many_statements_each_can_be_found(page: Page, watched: Watched) -> None:
    """The table has the 200 that took the most time; `Find` asks for others."""
    with watched["i1"].connect() as session:
        session.execute("SELECT 1 AS needle_in_the_hay")
        for turn in range(20):
            for number in range(250):
                session.execute(f"SELECT {turn} AS hay_{number}")
    page.page.click("nav a[href='#/statements']")
    page.log_in(PASSWORD)
    page.wait("the 200 that took the most time", "caption")
    page.page.fill("#find-statements", "NEEDLE_in")
    page.wait("needle_in_the_hay", "td")
    page.wait("1 of 1", "caption")


@pytest.mark.slow
def test_every_control_and_picture_has_a_name(page: Page) -> None:
    """What a screen reader needs: names, one main heading, a language, a table's caption."""
    unnamed = """() => [...document.querySelectorAll(
            'button, a, input, select, textarea, svg[role=img], table')]
        .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label')
            || e.labels?.length || e.querySelector('caption')))
        .map(e => e.outerHTML)"""
    for part in ("", "links", "history"):
        page.go_to(part)
        assert page.page.evaluate(unnamed) == []
        assert page.page.locator("h1").count() == 1
    assert page.page.locator("[aria-current=page]").count() == 1
    assert page.page.locator("#banner[role=status]").count() == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_from_another_machine_one_logs_in_over_tls(
    opened: Open,
    tmp_path: Path,
    files: Path,  # noqa: F811
) -> None:
    host = address_of_this_machine()
    cluster = Watched(tmp_path, "remote")
    node = cluster.add("i1")
    cluster.peers, [port] = node.peer, free_ports(1)
    tls = ("--tls-cert", f"{files}/server.crt", "--tls-key", f"{files}/server.key")
    node.start("--http-listen", f"0.0.0.0:{port}", *tls)
    try:
        eventually(lambda: "the console is at" in node.log(), "the console")
        page = opened(f"https://{host}:{port}/", ignore_https_errors=True)
        page.page.locator("#password").wait_for()
        assert page.page.locator(".instance").count() == 0  # a stranger sees nothing
        page.log_in(PASSWORD)
        page.wait("i1", ".instance")
        page.go_to("tables")
        page.wait("There are no tables that you may read.")
        [cookie] = page.page.context.cookies()
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
        page.page.close()
        assert page.problems == []
    finally:
        cluster.close()


@pytest.mark.slow
def test_as_instances_die_the_page_tells_it_and_goes_on_at_another(
    opened: Open, tmp_path: Path
) -> None:
    cluster = Watched(tmp_path, "dying").begin("i1", "i2", "i3")
    page: Any = None
    try:
        page = opened(url(cluster, "i1", "query"))
        page.log_in(PASSWORD)
        page.page.locator("#sql").wait_for()
        page.page.click("nav a[href='#/']")
        page.wait("All is well", "#banner", 60)
        cluster["i3"].kill()
        page.wait("i3 is Offline", "#banner")
        page.wait("○ Offline", ".instance")
        cluster["i1"].kill()
        page.page.wait_for_url(f"http://127.0.0.1:{cluster.http['i2']}/**", timeout=30_000)
        page.wait("i1 did not answer: you are at i2 now.", "#banner")
        page.wait("No quorum", "#banner")
        page.wait("✕ no answer", ".instance")
        assert page.page.locator(".instance .ok").count() == 1  # only the one that lives is green
        assert page.page.locator(".replicaset", has_text="nobody answers").count() == 2
        assert page.page.locator(".instance", has_text="last master").count() == 2
        assert page.page.locator(".tag.strong", has_text="master").count() == 1
        assert "governor: none" in page.text("#view")
        assert page.text("#who").startswith("admin")  # still logged in
        assert "ticket" not in page.page.url
        cluster.revive("i1")
        cluster.revive("i3")
        page.wait("All is well", "#banner", 60)
        assert page.problems == []
    finally:
        if page is not None:
            page.page.close()
        cluster.close()
