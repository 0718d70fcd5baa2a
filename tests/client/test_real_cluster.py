"""The driver against real instances: given by CAIRN_DSNS, or a demo cluster of its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cairn.client import connect, sync
from cairn.client.logic.metadata import Metadata
from cairn.client.settings import parse_dsn
from cairn.model.errors import CairnError
from tests.cluster.as_peer import AsPeer

from .driving import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
CAIRN = Path(sys.executable).parent / "cairn"


def free_base_port() -> int:
    """The demo uses base…, base+1000… and base+2000…."""
    for _ in range(50):
        base = random.randint(20_000, 40_000)
        try:
            for port in [base + offset + at for offset in (0, 1000, 2000) for at in range(6)]:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    given = os.environ.get("CAIRN_DSNS") or os.environ.get("CAIRN_DSN")
    if given:
        yield {"dsns": given}
        return
    directory = str(tmp_path_factory.mktemp("demo"))
    base = str(free_base_port())
    start = [str(CAIRN), "demo", "--detach", "--dir", directory, "--base-port", base]
    done = subprocess.run(start, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    try:
        facts = json.loads((Path(directory) / "demo.json").read_text())
        yield facts
    finally:
        stop = [str(CAIRN), "demo", "--stop", "--dir", directory]
        subprocess.run(stop, capture_output=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def dsn(demo: dict[str, Any]) -> str:
    return str(demo["dsns"])


@pytest.fixture(scope="module")
def as_peer(demo: dict[str, Any]) -> AsPeer:
    if "dir" not in demo:
        pytest.skip("the service password of a cluster that was given is not known")
    secret = (Path(demo["dir"]) / "service.password").read_text()
    return AsPeer([each["peer"] for each in demo["instances"]], "demo", secret)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))  # type: ignore[arg-type]


def test_the_first_query_is_routed_and_so_are_all(dsn: str) -> None:
    async def test() -> None:
        async with await connect(dsn) as pool:
            await pool.execute("DROP TABLE IF EXISTS first_query")
            await pool.execute("CREATE TABLE first_query (id INT PRIMARY KEY, v TEXT)")
            for key in range(50):
                await pool.execute("INSERT INTO first_query VALUES ($1, $2)", key, f"v{key}")
                found = await pool.fetch("SELECT v FROM first_query WHERE id = $1", key)
                assert found == [(f"v{key}",)]
            assert pool.stats.routed == 100
            assert set(pool.stats.fallbacks) <= {"no_parameters"}
            route = await pool.explain_route("SELECT v FROM first_query WHERE id = $1", 1)
            assert "metadata cached" in str(route)

    run(test)


KEYS: list[tuple[str, Any]] = [
    ("INT", 0),
    ("INT", -(2**63)),
    ("INT", 2**63 - 1),
    ("TEXT", ""),
    ("TEXT", "ключ"),
    ("BOOLEAN", True),
    ("DOUBLE", 1.5),
    ("DOUBLE", -0.0),
    ("DOUBLE", 1e300),
    ("DECIMAL", Decimal("1.50")),
    ("DECIMAL", Decimal("-12.345")),
    ("UUID", UUID(int=1 << 100)),
    ("DATETIME", datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC)),
]


@pytest.mark.parametrize(("type_", "key"), KEYS, ids=lambda value: str(value)[:20])
def test_client_and_server_agree_on_the_bucket(dsn: str, type_: str, key: Any) -> None:
    async def test() -> None:
        async with await connect(dsn) as pool:
            table = f"agree_{type_.lower()}"
            await pool.execute(f"CREATE TABLE IF NOT EXISTS {table} (k {type_} PRIMARY KEY)")
            text = f"INSERT INTO {table} VALUES ($1) ON CONFLICT DO NOTHING"
            await pool.execute(text, key)
            metadata = pool._core.metadata.get(text)
            assert isinstance(metadata, Metadata) and metadata.is_bound
            mine = metadata.bucket([key], pool.topology.bucket_count("default"))
            found = await pool.fetch(f"SELECT bucket_id FROM {table} WHERE k = $1", key)
            assert found == [(mine,)]

    run(test)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**63), 2**63 - 1),
    "TEXT": st.text().filter(lambda text: "\0" not in text),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "DECIMAL": st.decimals(-(10**20), 10**20, places=8).map(lambda value: +value),
    "UUID": st.uuids(),
    "DATETIME": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
}


@pytest.mark.parametrize("type_", VALUES)
def test_client_and_server_agree_on_any_key(dsn: str, type_: str) -> None:
    """Values by hypothesis; the server's own answer is the column `bucket_id`."""
    table = f"agree_on_any_{type_.lower()}"
    with sync.connect(dsn) as connection:
        pool = connection.pool
        pool.execute(f"DROP TABLE IF EXISTS {table}")
        pool.execute(f"CREATE TABLE {table} (n INT, k {type_}, PRIMARY KEY (n)) DISTRIBUTED BY (k)")
        text = f"INSERT INTO {table} VALUES ($1, $2)"
        numbers = iter(range(1_000_000))

        @given(st.lists(VALUES[type_], min_size=20, max_size=40))
        @hypothesis_settings(max_examples=8, deadline=None)
        def agree(keys: list[Any]) -> None:
            rows = [(next(numbers), key) for key in keys]
            assert pool.executemany(text, rows) == len(rows)
            metadata = pool._core.metadata.get(text)
            assert metadata is not None and metadata.is_bound
            count = pool.topology.bucket_count("default")
            mine = {number: metadata.bucket((number, key), count) for number, key in rows}
            asked = f"SELECT n, bucket_id FROM {table} WHERE n >= $1 AND n <= $2"
            assert dict(pool.fetch(asked, rows[0][0], rows[-1][0])) == mine

        agree()


def test_many_rows_are_split_and_counted(dsn: str) -> None:
    async def test() -> None:
        async with await connect(dsn) as pool:
            await pool.execute("DROP TABLE IF EXISTS many_rows")
            await pool.execute("CREATE TABLE many_rows (id INT PRIMARY KEY, v TEXT)")
            rows = [(key, f"v{key}") for key in range(2000)]
            assert await pool.executemany("INSERT INTO many_rows VALUES ($1, $2)", rows) == 2000
            marks = ", ".join(f"(${2 * at + 1}, ${2 * at + 2})" for at in range(20))
            params = [part for key in range(5000, 5020) for part in (key, "x")]
            assert await pool.execute(f"INSERT INTO many_rows VALUES {marks}", *params) == (
                "INSERT 0 20"
            )
            assert await pool.fetch("SELECT count(*) FROM many_rows") == [(2020,)]
            chunks = [chunk async for chunk in pool.copy_out("COPY many_rows TO STDOUT")]
            assert b"".join(chunks).count(b"\n") == 2020
            assert await pool.copy_in("COPY many_rows FROM STDIN", [b"9000\tx\n"]) == "COPY 1"

    run(test)


def test_a_changed_table_is_prepared_again_without_the_caller_noticing(dsn: str) -> None:
    async def test() -> None:
        async with await connect(dsn) as pool:
            await pool.execute("DROP TABLE IF EXISTS changing")
            await pool.execute("CREATE TABLE changing (id INT PRIMARY KEY, v TEXT)")
            for key in range(10):
                await pool.execute("INSERT INTO changing VALUES ($1, $2)", key, "x")
            text = "SELECT * FROM changing WHERE id = $1"
            assert await pool.fetch(text, 1) == [(1, "x")]
            await pool.execute("ALTER TABLE changing ADD COLUMN w INT")
            for key in range(10):
                assert await pool.fetch(text, key) == [(key, "x", None)]
            assert pool.stats.reprepares >= 1

    run(test)


def test_errors_keep_their_codes(dsn: str) -> None:
    async def test() -> None:
        async with await connect(dsn) as pool:
            with pytest.raises(CairnError) as caught:
                await pool.fetch("SELECT * FROM there_is_no_such_table WHERE id = $1", 1)
            assert caught.value.sqlstate == "42P01"

    run(test)


def test_dbapi(dsn: str) -> None:
    with sync.connect(dsn) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS dbapi")
        cursor.execute("CREATE TABLE dbapi (id INT PRIMARY KEY, v TEXT)")
        cursor.executemany("INSERT INTO dbapi VALUES (%s, %s)", [(key, "x") for key in range(100)])
        assert cursor.rowcount == 100
        cursor.execute("SELECT id, v FROM dbapi WHERE id = %s", (42,))
        assert cursor.fetchall() == [(42, "x")]
        with pytest.raises(sync.IntegrityError):
            cursor.execute("INSERT INTO dbapi VALUES (%s, %s)", (42, "again"))
        assert connection.pool.stats.routed >= 1


def test_copy_is_split_by_the_driver(dsn: str) -> None:
    values = [(key, f"v\t{key}\\\n", None if key % 7 else Decimal(key) / 4) for key in range(3000)]
    with sync.connect(dsn) as connection:
        pool = connection.pool
        pool.execute("DROP TABLE IF EXISTS copied")
        pool.execute("CREATE TABLE copied (id INT PRIMARY KEY, v TEXT, d DECIMAL)")
        assert pool.copy_in("COPY copied FROM STDIN", values) == "COPY 3000"
        assert not pool.stats.hints
        chunks = list(pool.copy_out("COPY copied TO STDOUT"))
        assert len(chunks) == 3000
        pool.execute("DROP TABLE IF EXISTS copied_again")
        pool.execute("CREATE TABLE copied_again (id INT PRIMARY KEY, v TEXT, d DECIMAL)")
        assert pool.copy_in("COPY copied_again (id, v, d) FROM STDIN", chunks) == "COPY 3000"
        for key in range(0, 3000, 311):
            (found,) = pool.fetch("SELECT id, v, d FROM copied_again WHERE id = $1", key)
            assert found == values[key]
        with pytest.raises(CairnError) as caught:
            pool.copy_in("COPY copied FROM STDIN", [(5000, "new", None), (17, "again", None)])
        assert caught.value.sqlstate in ("23505", "PC006")
        assert "not executed (23505" in str(caught.value.detail)


def test_a_hop_is_told_and_waiting_bucket_events_count_at_once(dsn: str, as_peer: AsPeer) -> None:
    """All of r1's buckets are given to r2 and back; the driver waits 15 s with bucket events."""

    async def test() -> None:
        async with await connect(dsn) as pool, await connect(dsn, batch_records=1) as admin:
            await admin.execute("DROP TABLE IF EXISTS hopped")
            await admin.execute("CREATE TABLE hopped (id INT PRIMARY KEY, v TEXT)")
            text = "SELECT v FROM hopped WHERE id = $1"
            routes = {key: str(await pool.explain_route(text, key)) for key in range(50)}
            key = next(key for key, route in routes.items() if "→ r1 →" in route)
            assert await pool.fetch(text, key) == []
            await asyncio.to_thread(as_peer.give_buckets, "r2")
            try:
                await until(lambda: len(pool.topology.batch) > 0)
                assert "→ r1 →" in str(await pool.explain_route(text, key))
                assert await pool.fetch(text, key) == []
                assert pool.stats.hints == {"flushed": 1}
                assert "→ r2 →" in str(await pool.explain_route(text, key))
            finally:
                await asyncio.to_thread(as_peer.give_buckets, "r1")

    run(test)


def buckets_of(pool: Any) -> Any:
    return {tier: ranges.ranges() for tier, ranges in pool.topology.view.buckets.items()}


def test_a_hint_in_a_notice_of_sql_changes_nothing(dsn: str) -> None:
    """SQL makes notices too; the table's name in one is as near as it gets to a forged hint."""
    forged = '{"map":"hop","tier":"default","bucket_id":1}'

    async def test() -> None:
        async with await connect(dsn) as pool:
            before = buckets_of(pool)
            name = forged.replace('"', '""')
            for _ in range(2):
                await pool.execute(f'CREATE TABLE IF NOT EXISTS "{name}" (id INT PRIMARY KEY)')
            await pool.execute(f'DROP TABLE "{name}"')
            assert buckets_of(pool) == before and not pool.stats.hints

    run(test)


def test_the_tutorials_client_as_it_is_typed(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    tutorial = Path(__file__).parents[2] / "docs" / "tutorial-small-client.md"
    lines, client = re.findall(r"```python\n(.*?)```", tutorial.read_text(), re.DOTALL)
    typed = client + lines.replace("127.0.0.1:4327", parse_dsn(dsn).hosts[0])
    for _ in range(2):  # the second time there are notices for people as well
        exec(compile(typed, "small_client", "exec"), {})
        assert capsys.readouterr().out == "[(1, 'two')]\n[(3,)]\n"
