"""Connection strings: several hosts, some in brackets, everything quoted as in a URL."""

from __future__ import annotations

import pytest

from cairn.model.settings.dsn import Dsn, split_dsn


def dsn(*hosts: str, user: str = "", password: str = "", database: str = "", **options: str) -> Dsn:
    return Dsn("postgresql", user, password, hosts, database, tuple(options.items()))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("postgresql://h", dsn("h")),
        ("POSTGRESQL://h:1/", dsn("h:1")),
        ("postgresql://h1:1,h2,[::1]:3/db", dsn("h1:1", "h2", "[::1]:3", database="db")),
        ("postgresql://u:p%40%2F@[::1]", dsn("[::1]", user="u", password="p@/")),
        ("postgresql://a@b@c:1/d%20e", dsn("c:1", user="a@b", database="d e")),
        ("postgresql://h?sslmode=require&x=%3D", dsn("h", sslmode="require", x="=")),
        ("postgresql://", dsn()),
        ("host=127.0.0.1 user=admin", None),
        ("", None),
        ("://h", None),
    ],
)
def test_its_parts(text: str, parts: Dsn | None) -> None:
    assert split_dsn(text) == parts
