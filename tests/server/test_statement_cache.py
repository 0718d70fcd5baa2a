"""Plans that are kept, and what they keep with them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import msgspec
import pytest

from cairn.model.tables.catalog import Catalog
from cairn.node.watching.statistics import Statistics
from cairn.server import statements
from cairn.server.plan_size import kept_bytes
from cairn.server.statements import Cached, StatementCache
from tests.cluster.harness import Cluster
from tests.server.raw import Raw, message
from tests.sql.harness import empty_catalog

USER = 1


def changed(catalog: Catalog) -> Catalog:
    return msgspec.structs.replace(catalog, version=catalog.version + 1)


def understood(cache: StatementCache, text: str, catalog: Catalog) -> Cached:
    return cache.get(text.encode(), (), USER, catalog)


def test_a_plan_does_not_keep_the_catalogue_that_it_was_made_by() -> None:
    """Each has all tables: under changes of the schema, instances grew by 15 MB a minute."""
    cache, catalog = StatementCache(Statistics()), empty_catalog()
    catalogs = []
    for at in range(5):
        kept = understood(cache, f"SELECT name, {at} FROM _pico_instance", catalog)
        query = kept.of(kept.prepared)
        cache.by_values(b"SELECT * FROM nowhere%d WHERE id = 1" % at, USER, catalog)
        assert kept.is_fresh(catalog) and query.is_fresh(catalog)
        catalogs.append(weakref.ref(catalog))
        catalog = changed(catalog)
    gc.collect()
    assert [each() for each in catalogs] == [None] * 5
    assert understood(cache, "SELECT name, 0 FROM _pico_instance", catalog).is_fresh(catalog)
    cache.close()


def test_the_cache_counts_what_plans_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    most = statements.MAX_CACHED_BYTES // 16
    monkeypatch.setattr(statements, "MAX_CACHED_BYTES", most)
    cache, catalog = StatementCache(Statistics()), empty_catalog()
    one = understood(cache, "SELECT 1" + ", 1" * 900, catalog)
    assert one.size > 100 * len(one.text)  # a text tells little of its plan
    literal = understood(cache, f"SELECT '{'x' * 9_000}'", catalog)
    assert literal.size < 6 * len(literal.text)
    for at in range(20):
        understood(cache, f"SELECT {at}" + ", 1" * 900, catalog)
    assert cache._bytes == sum(each.size for each in cache._known.values()) <= most
    assert 5 < len(cache._known) < 20
    cache.forget()
    assert cache._bytes == 0
    cache.close()


def test_what_is_understood_on_a_thread_is_as_the_tables_are_when_it_is_done() -> None:
    """A CALL was refused as "invalidated" when a table was made meanwhile, without being asked."""
    cache, first = StatementCache(Statistics()), empty_catalog()
    second, third = changed(first), changed(first)
    seen = [first, second, second, third, third]
    text = b"CALL cairn_status()"

    async def scene() -> None:
        made = await cache.later(text, (), USER, lambda: seen.pop(0) if len(seen) > 1 else seen[0])
        assert made.is_fresh(third)
        assert await cache.replanned(made, USER, lambda: first) is not made

    asyncio.run(scene())
    cache.close()


def test_what_plans_share_does_not_count() -> None:
    catalog = empty_catalog()
    tables = list(catalog.tables.values())
    assert kept_bytes((catalog, *tables)) < 100 + 8 * (len(tables) + 1)


def test_a_schema_change_between_bind_and_execute_is_not_told(cluster: Cluster) -> None:
    """Whoever has not asked for it: the statement is planned anew."""
    node = cluster["i1"]
    node.sql("CREATE TABLE between_two (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    try:
        node.sql("INSERT INTO between_two VALUES (1, 'a')")
        with Raw(node.pg_port) as raw:
            raw.log_in()
            text = b"SELECT v FROM between_two WHERE id = 1"
            raw.send(message(b"Q", b"BEGIN\0")).until(b"Z")
            raw.send(message(b"P", b"\0" + text + b"\0\0\0"), message(b"B", b"\0\0\0\0\0\0\0\0"))
            raw.send(message(b"H")).until(b"2")
            node.sql("ALTER TABLE between_two ADD COLUMN w INT")
            raw.send(message(b"E", b"\0\0\0\0\0"), message(b"S"))
            told = raw.until(b"Z")
            assert [kind for kind, _ in told] == [b"D", b"C", b"Z"], told
    finally:
        node.sql("DROP TABLE between_two")
