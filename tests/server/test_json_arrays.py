"""`jsonb[]`: lists of JSON, as drivers send and get them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.cluster.harness import Cluster

VALUES = [{"a": [1, None]}, None, "text", 2.5, True, []]


def test_lists_of_json_come_and_go(cluster: Cluster) -> None:
    with cluster["i1"].connect() as sql:
        sql.execute("DROP TABLE IF EXISTS many_json")
        sql.execute("CREATE TABLE many_json (id INT PRIMARY KEY, a JSONB[])")
        given = [each if each is None else Jsonb(each) for each in VALUES]
        sql.execute("INSERT INTO many_json VALUES (%s, %s)", (1, given))
        sql.execute("INSERT INTO many_json VALUES (2, '{}'), (3, NULL)")
        sql.execute("""INSERT INTO many_json VALUES (4, ARRAY['{"b": 1}', '2']::jsonb[])""")
        for is_binary in (False, True):
            cursor = sql.cursor(binary=is_binary)
            found = cursor.execute("SELECT a FROM many_json ORDER BY id").fetchall()
            assert found == [(VALUES,), ([],), (None,), ([{"b": 1}, 2],)]
            assert cursor.description is not None and cursor.description[0].type_code == 3807
        some = "SELECT a[1] -> 'a' ->> 0, cardinality(a), to_jsonb(a) FROM many_json WHERE id = 1"
        assert sql.execute(some).fetchall() == [("1", 6, VALUES)]
        unnested = "SELECT u FROM many_json, unnest(a) AS u WHERE id = 4"
        assert sql.execute(unnested).fetchall() == [({"b": 1},), (2,)]
        gathered = "SELECT array_agg(u) FROM many_json, unnest(a) AS u WHERE id = 4"
        assert sql.execute(gathered).fetchall() == [([{"b": 1}, 2],)]
        with sql.cursor().copy("COPY many_json TO STDOUT") as copy:
            lines = b"".join(bytes(each) for each in copy)
        sql.execute("DELETE FROM many_json")
        with sql.cursor().copy("COPY many_json FROM STDIN") as copy:
            copy.write(lines)
        assert sql.execute("SELECT a FROM many_json ORDER BY id").fetchall() == found
        for wrong, state in (
            ("INSERT INTO many_json VALUES (9, '{x}')", "22P02"),
            ("SELECT a FROM many_json ORDER BY a", "42883"),
            ("SELECT a = a FROM many_json", "42883"),
            ("CREATE TABLE wrong (a JSONB[] PRIMARY KEY)", "42P16"),
        ):
            with pytest.raises(psycopg.Error) as refused:
                sql.execute(wrong)  # type: ignore[arg-type]
            assert refused.value.sqlstate == state, wrong
        sql.execute("DROP TABLE many_json")
