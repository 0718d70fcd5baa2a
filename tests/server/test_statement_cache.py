"""Plans that are kept, and what they keep with them."""

from __future__ import annotations

import gc
import weakref

import msgspec

from cairn.model.tables.catalog import Catalog
from cairn.node.watching.statistics import Statistics
from cairn.server.plan_size import kept_bytes
from cairn.server.statements import MAX_CACHED_BYTES, Cached, StatementCache
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


def test_the_cache_counts_what_plans_keep() -> None:
    cache, catalog = StatementCache(Statistics()), empty_catalog()
    one = understood(cache, "SELECT 1" + ", 1" * 900, catalog)
    assert one.size > 100 * len(one.text)  # a text tells little of its plan
    literal = understood(cache, f"SELECT '{'x' * 9_000}'", catalog)
    assert literal.size < 6 * len(literal.text)
    for at in range(300):
        understood(cache, f"SELECT {at}" + ", 1" * 900, catalog)
    assert cache._bytes == sum(each.size for each in cache._known.values()) <= MAX_CACHED_BYTES
    assert 100 < len(cache._known) < 300
    cache.forget()
    assert cache._bytes == 0
    cache.close()


def test_what_plans_share_does_not_count() -> None:
    catalog = empty_catalog()
    tables = list(catalog.tables.values())
    assert kept_bytes((catalog, *tables)) < 100 + 8 * (len(tables) + 1)
