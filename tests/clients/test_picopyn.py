"""picopyn 3.2, unmodified: it finds the cluster, follows it, and its writes really are routed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from picopyn import ExplainPlan, ExplainRawPlan, asynchronous, synchronous

from tests.cluster.harness import PASSWORD, Cluster

pytestmark = pytest.mark.clients

PICODATA_GO = (
    "SELECT ppa.address, pi.current_state FROM _pico_peer_address AS ppa "
    "JOIN _pico_instance AS pi ON ppa.raft_id = pi.raft_id WHERE connection_type = 'pgproto';"
)


def with_pool(dsn: str, work: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    async def session() -> None:
        pool = asynchronous.Pool(dsn, max_size=6, enable_discovery=True, **options)
        await pool.open()
        try:
            await work(pool)
        finally:
            await pool.close()

    asyncio.run(session())


def test_the_pool_discovers_every_instance(dsn: str, cluster: Cluster) -> None:
    uuids = {row[0] for row in cluster["i1"].sql("SELECT uuid FROM _pico_instance")}

    async def work(pool: Any) -> None:
        assert set(pool.stats().connections_per_node) == uuids
        assert (await pool.fetchrow("SELECT count(*) AS n FROM _pico_instance"))["n"] == 3

    with_pool(dsn, work)


def test_inserts_go_straight_to_the_owner(dsn: str, cluster: Cluster, fresh: str) -> None:
    text = f"INSERT INTO {fresh} VALUES ($1, $2, $3)"

    async def work(pool: Any) -> None:
        known = await pool.get_query_metadata(text)
        assert known is not None
        for n in range(30):
            await pool.execute(text, n, f"n{n}", Decimal(n))
        stats = pool.stats()
        assert stats.routing_attempts == stats.routing_hits == 30
        assert not any(stats.routing_fallbacks.values())
        assert len(await pool.fetch(f"SELECT * FROM {fresh}")) == 30

    with_pool(dsn, work)


def test_updates_and_deletes_by_key_are_routed_too(dsn: str, fresh: str) -> None:
    change = f"UPDATE {fresh} SET name = $2 WHERE id = $1"
    remove = f"DELETE FROM {fresh} WHERE id = $1"

    async def work(pool: Any) -> None:
        await pool.execute(f"INSERT INTO {fresh} VALUES (1, 'a', 1), (2, 'b', 1)")
        for text in (change, remove):
            assert await pool.get_query_metadata(text) is not None
        assert await pool.execute(change, 1, "changed") == "UPDATE 1"
        assert await pool.execute(remove, 2) == "DELETE 1"
        assert pool.stats().routing_hits == 2
        assert [tuple(row) for row in await pool.fetch(f"SELECT id, name FROM {fresh}")] == [
            (1, "changed")
        ]

    with_pool(dsn, work)


def test_a_sharding_key_leads_to_the_instance_with_the_row(dsn: str, fresh: str) -> None:
    async def work(pool: Any) -> None:
        factory = await pool.create_sharding_key_factory(fresh)
        assert (factory.tier, factory.bucket_count) == ("default", 3000)
        assert factory.sharding_fields == ("id",)
        for n in range(6):
            await pool.execute(f"INSERT INTO {fresh} VALUES ({n}, 'x', 1)")
            connection = await pool.acquire_by_sharding_key(factory.create_key({"id": n}))
            try:
                plan = await connection.explain(f"SELECT * FROM {fresh} WHERE id = {n}")
                [row] = await connection.fetch(f"SELECT bucket_id FROM {fresh} WHERE id = {n}")
                assert plan.buckets == f"[{row['bucket_id']}]"
            finally:
                await pool.release(connection)

    with_pool(dsn, work)


def test_plans_are_parsed(dsn: str, fresh: str) -> None:
    async def work(pool: Any) -> None:
        plan = await pool.explain(f"SELECT name FROM {fresh} WHERE id = $1", 7)
        assert isinstance(plan, ExplainPlan)
        assert plan.buckets.startswith("[") and plan.root.type
        everything = await pool.explain(f"SELECT count(*) FROM {fresh}")
        assert everything.buckets == "[1-3000]"
        raw = await pool.explain(f"SELECT name FROM {fresh}", raw=True)
        assert isinstance(raw, ExplainRawPlan)

    with_pool(dsn, work)


def test_a_changed_table_is_told_and_the_next_try_works(
    dsn: str, cluster: Cluster, fresh: str
) -> None:
    text = f"INSERT INTO {fresh} (id, name) VALUES ($1, $2)"

    async def work(pool: Any) -> None:
        await pool.get_query_metadata(text)
        for n in range(30):
            await pool.execute(text, n, "before")
        change = f"ALTER TABLE {fresh} ADD COLUMN extra TEXT WAIT APPLIED GLOBALLY"
        await asyncio.to_thread(cluster["i2"].sql, change)
        told = 0
        for n in range(100, 130):
            for _ in range(8):  # each of six connections may hold an old statement
                try:
                    await pool.execute(text, n, "after")
                    break
                except RuntimeError as problem:
                    told += getattr(problem.__cause__, "sqlstate", "") == "42999"
        assert told == pool.stats().stmt_invalidated > 0
        [row] = await pool.fetch(f"SELECT count(*) AS n FROM {fresh}")
        assert row["n"] == 60

    with_pool(dsn, work)


def test_the_synchronous_face(dsn: str, fresh: str) -> None:
    connection = synchronous.connect(dsn)
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO {fresh} VALUES (%s, %s, %s)", (1, "a", Decimal("1.5")))
    cursor.execute(f"SELECT name, price FROM {fresh} WHERE id = %s", (1,))
    assert cursor.fetchall() == [("a", Decimal("1.5"))]
    with pytest.raises(synchronous.IntegrityError):
        cursor.execute(f"INSERT INTO {fresh} VALUES (%s, %s, %s)", (1, "a", Decimal("1.5")))
    with pytest.raises(synchronous.ProgrammingError):
        cursor.execute("SELEC 1")
    connection.close()


def test_the_synchronous_pool_routes(dsn: str, fresh: str) -> None:
    pool = synchronous.Pool(dsn, max_size=6, enable_discovery=True)
    pool.open()
    try:
        text = f"INSERT INTO {fresh} VALUES (%s, %s, %s)"
        pool.execute(text, (0, "first", Decimal(1)))  # warms the cache
        deadline = time.monotonic() + 10
        while not pool.stats().query_metadata.cache_size and time.monotonic() < deadline:
            time.sleep(0.02)
        for n in range(1, 21):
            pool.execute(text, (n, "x", Decimal(1)))
        assert pool.stats().routing_hits == 20
        assert len(pool.fetch(f"SELECT id FROM {fresh}")) == 21
    finally:
        pool.close()


def test_an_ordinary_user_can_discover_the_cluster(cluster: Cluster, dsn: str, fresh: str) -> None:
    node = cluster["i1"]
    node.sql("CREATE USER picouser WITH PASSWORD 'Passw0rd1'")
    try:
        node.sql(f"GRANT READ ON TABLE {fresh} TO picouser")

        async def work(pool: Any) -> None:
            assert len(pool.stats().connections_per_node) == 3
            assert await pool.fetch(f"SELECT * FROM {fresh}") == []
            with pytest.raises(RuntimeError, match="denied"):
                await pool.execute(f"INSERT INTO {fresh} VALUES ($1, 'a', 1)", 1)

        with_pool(dsn.replace(f"admin:{PASSWORD}", "picouser:Passw0rd1"), work)
    finally:
        node.sql("DROP USER picouser")


@pytest.mark.parametrize("name", ["i1", "i2", "i3"])
def test_picodata_go_gets_its_topology_from_any_instance(cluster: Cluster, name: str) -> None:
    with cluster[name].connect() as connection:
        cursor = connection.cursor(binary=True)
        rows = cursor.execute(PICODATA_GO).fetchall()
        assert [column.type_code for column in cursor.description or ()] == [25, 114]
    ports = {f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values()}
    assert {address for address, _ in rows} == ports
    assert all(state[0] == "Online" for _, state in rows)


def test_pings_of_picodata_go(cluster: Cluster) -> None:
    with cluster["i3"].connect() as connection:
        assert connection.execute("SELECT 1", prepare=True).fetchone() == (1,)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
