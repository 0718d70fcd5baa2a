"""The driver's pure parts: settings, metadata, splitting, and what it may import."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cairn.client.logic.bulk import split_insert
from cairn.client.logic.metadata import Metadata, MetadataCache, read_notice
from cairn.client.settings import parse_dsn, split_address
from cairn.model.errors import InvalidParameter
from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import TYPE_OF_OID


def test_the_driver_needs_nothing_of_the_server() -> None:
    code = (
        "import sys\n"
        "for name in ('apsw', 'uvloop', 'sqlglot', 'typer', 'rich', 'yaml', 'numpy'):\n"
        "    sys.modules[name] = None\n"
        "import cairn.client, cairn.client.sync\n"
        "bad = ('storage', 'node', 'server', 'sql', 'raft', 'net', 'cli')\n"
        "print([m for m in sys.modules if m.startswith('cairn.') and m.split('.')[1] in bad])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dsn_names_hosts_user_and_options() -> None:
    settings = parse_dsn(
        "postgresql://al%40ice:s%2Fecret@h1:1,h2,[::1]:3/db?sslmode=require&options=a%3Db",
        max_per_instance=3,
        allow_hosts="10.0.0.0/8,*.db",
    )
    assert settings.hosts == ("h1:1", "h2:4327", "[::1]:3")
    assert (settings.user, settings.password, settings.database) == ("al@ice", "s/ecret", "db")
    assert settings.tls == "require" and settings.max_per_instance == 3
    assert settings.startup()["options"] == "a=b"
    assert split_address("[::1]:3") == ("::1", 3)
    for bad in ("http://x", "postgresql:///db", "postgresql://h/?sslmode=maybe"):
        with pytest.raises(InvalidParameter):
            parse_dsn(bad)
    with pytest.raises(InvalidParameter, match="unknown driver settings: colour"):
        parse_dsn("postgresql://h/db", colour="red")


@pytest.mark.parametrize(
    ("dsn", "address", "allowed"),
    [
        ("postgresql://127.0.0.1:1", "127.0.0.1:9", True),
        ("postgresql://localhost:1", "127.0.0.1:9", True),
        ("postgresql://127.0.0.1:1", "10.0.0.1:9", False),
        ("postgresql://10.1.2.3", "10.1.2.99:4327", True),
        ("postgresql://10.1.2.3", "10.1.3.3:4327", False),
        ("postgresql://8.8.8.8", "8.8.8.9:4327", False),
        ("postgresql://i1.db.example", "i2.db.example:1", True),
        ("postgresql://i1.db.example", "evil.example:1", False),
        ("postgresql://db.example", "evil.example:1", False),
        ("postgresql://db.example?sslmode=verify-full", "evil.example:1", True),
    ],
)
def test_pushed_addresses_are_trusted_only_near_what_the_user_gave(
    dsn: str, address: str, allowed: bool
) -> None:
    assert parse_dsn(dsn).allows(address) is allowed


def test_an_allow_list_widens_it() -> None:
    settings = parse_dsn("postgresql://a.example", allow_hosts=["10.0.0.0/8", "*.cairn"])
    assert settings.allows("10.9.9.9:1") and settings.allows("x.cairn:1")
    assert not settings.allows("11.0.0.1:1")


VALUES: list[tuple[int, Any]] = [
    (16, True),
    (20, -5),
    (20, 2**63 - 1),
    (25, "текст"),
    (701, 1.5),
    (1700, Decimal("1.50")),
    (1184, datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (2950, UUID(int=7)),
    (20, None),
]


@pytest.mark.parametrize(("oid", "value"), VALUES)
def test_buckets_are_the_servers(oid: int, value: Any) -> None:
    metadata = Metadata((1,), (oid,), "default", told=True, _functions={})
    expected = bucket_of([TYPE_OF_OID[oid]], [value], 3000)
    assert metadata.bucket(["other", value], 3000) == expected


def test_a_value_of_another_type_has_no_bucket() -> None:
    for oid, value in ((20, "1"), (20, True), (20, 2**63), (25, 1), (16, 1), (1184, datetime.min)):
        metadata = Metadata((0,), (oid,), "default", told=True, _functions={})
        assert metadata.bucket([value], 3000) is None
    assert metadata.bucket([], 3000) is None


def test_a_notice_is_believed_only_for_its_own_text() -> None:
    notice = '{"query":"SELECT $1","tier":"default","dk_meta":[[2,20],[1,25]],"hash_version":1}'
    found = read_notice(notice, "SELECT $1")
    assert found is not None
    assert (found.positions, found.oids, found.hash_version) == ((1, 0), (20, 25), 1)
    assert read_notice(notice, "SELECT $2") is None
    assert read_notice("hello", "SELECT $1") is None
    by_position = read_notice('{"query":"q","tier":"default","dk_cols":[1]}', "q", (25, 20))
    assert by_position is not None and by_position.oids == (20,)
    assert read_notice('{"query":"q","tier":"d","dk_cols":[7]}', "q", (25,)) == Metadata(told=True)
    assert read_notice('{"query":"q","tier":"d","dk_meta":[[0,20]]}', "q") == Metadata(told=True)


def test_the_cache_forgets_the_least_used() -> None:
    cache = MetadataCache(2)
    for text in ("a", "b"):
        cache.put(text, Metadata())
    cache.get("a")
    cache.put("c", Metadata())
    assert cache.get("b") is None and cache.get("a") is not None and len(cache) == 2
    cache.drop("a")
    assert cache.dropped_at("a") == 1 and cache.dropped_at("c") == 0


def test_only_plain_inserts_of_parameters_are_taken_apart() -> None:
    split = split_insert("INSERT INTO t (a, b) VALUES ($1::int, $2), ($3::int, $4);")
    assert split is not None and split.rows == 2
    assert split.text(1) == "INSERT INTO t (a, b) VALUES ($1::int, $2);"
    assert split.text(3).endswith("($5::int, $6);")
    conflict = split_insert("insert into t values ($1),($2) ON CONFLICT DO NOTHING")
    assert conflict is not None and conflict.text(1) == (
        "insert into t values ($1) ON CONFLICT DO NOTHING"
    )
    for text in (
        "INSERT INTO t VALUES ($1, $2)",
        "INSERT INTO t VALUES ($1, 2), ($3, 4)",
        "INSERT INTO t VALUES ($2, $1), ($3, $4)",
        "INSERT INTO t VALUES ($1), ($2, $3)",
        "INSERT INTO t VALUES ($1), ($1)",
        "INSERT INTO t VALUES ($1), ($2) RETURNING a",
        "INSERT INTO t SELECT $1, $2",
        "SELECT $1",
    ):
        assert split_insert(text) is None, text
