"""What one row costs in usual expressions: one instance against PostgreSQL 15, the same rows.

    python bench/sql_expressions.py         (ROUNDS=3 EXPRESSION_ROWS=200000, --only like)

Each question reads all rows and gives one, so what differs is the work for a row. The slowest
compared with PostgreSQL come first. Use it to find what deserves to be written in C.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Iterator
from typing import Any

import psycopg
from postgres import Postgres
from sql_more import Demo
from sql_wide import asked

ROUNDS = int(os.environ.get("ROUNDS", "3"))
ROWS = int(os.environ.get("EXPRESSION_ROWS", "200000"))
FACTS = (
    "id {int} PRIMARY KEY, kind {int}, qty {int}, amount DECIMAL, price NUMERIC(10, 2), "
    "total {real}, made TIMESTAMP, day DATE, name TEXT, is_paid BOOLEAN, props JSONB, "
    "tags TEXT[], code UUID"
)
COUNTED = (
    *("amount > 500", "price > 500", "price BETWEEN 10 AND 20", "amount = 12.5", "total > 100"),
    *("made >= '2024-06-01'", "day > '2024-06-01'", "made > now() - interval '10 days'"),
    *("name LIKE '%99%'", "name LIKE 'name 1%'", "name ILIKE '%AM 9%'", "name ~ '9+1'"),
    *("upper(name) = 'X'", "length(name) > 7", "substr(name, 3, 2) = 'me'", "name || 'x' = 'y'"),
    *("position('9' in name) > 0", "replace(name, 'name', 'n') = 'n 5'", "trim(name) = 'x'"),
    *("split_part(name, ' ', 2) = '7'", "left(name, 3) = 'nam'", "lower(name) LIKE 'name 5%'"),
    *(
        "coalesce(kind, 0) = 3",
        "kind IN (1, 2, 3)",
        "qty * 2 + 1 > 7",
        "qty % 3 = 0",
        "NOT is_paid",
    ),
    *("props->>'color' = 'red'", "(props->>'size')::int > 3", 'props @> \'{"color": "red"}\''),
    *("'a1' = ANY(tags)", "tags[1] = 'a1'", "cardinality(tags) > 1", "code IS NOT NULL"),
    *(
        "extract(year FROM made) = 2024",
        "date_trunc('month', made) = '2024-03-01'",
        "made::date = day",
    ),
    *(
        "to_char(made, 'YYYY-MM') = '2024-03'",
        "day + 1 > '2024-05-01'",
        "made - interval '1 day' > day",
    ),
    *("price * qty > 100", "round(amount, 1) > 5", "amount + price > 100", "price / 3 > 100"),
    *(
        "name = 'name 77'",
        "md5(name) = 'x'",
        "abs(total) > 5",
        "round(total) = 5",
        "sqrt(total) > 5",
    ),
    *("price::float8 > 5", "total::numeric > 5", "qty::text = '5'", "price::text = '5.00'"),
    *(
        "CASE WHEN kind < 50 THEN 1 ELSE 2 END = 1",
        "kind::text || name = 'x'",
        "concat(name, kind) = 'x'",
    ),
)
GIVEN = (
    *(
        "sum(amount)",
        "sum(price)",
        "avg(price)",
        "min(amount)",
        "max(price)",
        "sum(qty)",
        "avg(qty)",
    ),
    *("sum(total)", "avg(total)", "sum(price * qty)", "sum(price * qty * 0.9)", "sum(price * 1.2)"),
    *("stddev(total)", "variance(price)", "stddev(qty)", "corr(total, qty)", "bool_and(is_paid)"),
    *("count(DISTINCT kind)", "count(DISTINCT name)", "string_agg(name, ',')", "array_agg(qty)"),
    *("percentile_cont(0.5) WITHIN GROUP (ORDER BY total)", "max(made)", "max(day)", "max(name)"),
    *("sum(CASE WHEN is_paid THEN price ELSE 0 END)", "count(*) FILTER (WHERE is_paid)"),
    *("sum(length(name))", "max(made - interval '1 day')", "sum(extract(day FROM made))"),
    *(
        "json_agg(qty)",
        "sum(qty::numeric)",
        "sum(amount - price)",
        "mode() WITHIN GROUP (ORDER BY kind)",
    ),
)
WHOLE = (
    "SELECT count(*) FROM (SELECT DISTINCT name FROM facts) t",
    "SELECT count(*) FROM (SELECT price, count(*) FROM facts GROUP BY price) t",
    "SELECT count(*) FROM (SELECT amount, count(*) FROM facts GROUP BY amount) t",
    "SELECT count(*) FROM (SELECT date_trunc('month', made), sum(price) FROM facts GROUP BY 1) t",
    "SELECT count(*) FROM (SELECT day, kind, sum(price) FROM facts GROUP BY 1, 2) t",
    "SELECT id FROM facts ORDER BY price DESC, id LIMIT 10",
    "SELECT id FROM facts ORDER BY name, id LIMIT 10",
    "SELECT id FROM facts ORDER BY made DESC, id OFFSET 100000 LIMIT 10",
    "SELECT max(r) FROM (SELECT rank() OVER (ORDER BY price) AS r FROM facts) t",
    "SELECT max(r) FROM (SELECT sum(price) OVER (PARTITION BY kind ORDER BY id) AS r FROM facts) t",
    "SELECT max(r) FROM (SELECT lag(total) OVER (PARTITION BY kind ORDER BY id) AS r FROM facts) t",
    "SELECT count(*) FROM facts a JOIN facts b ON a.id = b.id",
    "SELECT count(*) FROM facts a WHERE EXISTS (SELECT 1 FROM facts b WHERE b.id = a.qty)",
    "SELECT count(*) FROM facts WHERE price > (SELECT avg(price) FROM facts)",
)

Connection = psycopg.Connection[Any]


def questions() -> Iterator[str]:
    yield "SELECT count(*) FROM facts"
    yield from (f"SELECT count(*) FROM facts WHERE {each}" for each in COUNTED)
    yield from (f"SELECT {each} FROM facts" for each in GIVEN)
    yield from WHOLE


def line(at: int) -> str:
    mixed = at * 2654435761 % 2**32
    month, day = mixed % 12 + 1, mixed % 28 + 1
    date = f"2024-{month:02d}-{day:02d}"
    cells = (
        *(at, mixed % 100, mixed % 7 + 1, f"{mixed % 100000 / 100}", f"{mixed % 100000 / 100:.2f}"),
        *(mixed % 1000 / 4, f"{date} {mixed % 24:02d}:{mixed % 60:02d}:00", date),
        *(f"name {mixed % 5000}", "t" if mixed % 3 else "f"),
        f'{{"color": "{("red", "blue")[mixed % 2]}", "size": {mixed % 10}}}',
        f"{{a{mixed % 5},b}}",
        f"{mixed:08x}-0000-4000-8000-{at:012x}",
    )
    return "\t".join(map(str, cells)) + "\n"


def fill(connection: Connection, names: dict[str, str], place: str) -> None:
    connection.execute(f"CREATE TABLE facts ({FACTS.format(**names)}){place}")
    with connection.cursor().copy("COPY facts FROM STDIN") as copy:
        for start in range(0, ROWS, 10_000):
            copy.write("".join(map(line, range(start, min(start + 10_000, ROWS)))))


def measured(ours: Connection, theirs: Connection, only: str) -> Iterator[tuple[float, str]]:
    for text in questions():
        if only not in text:
            continue
        took: list[list[float]] = [[], []]
        try:
            for turn in range(ROUNDS + 1):
                for side, connection in zip(took, (ours, theirs), strict=True):
                    seconds, _ = asked(connection, text)
                    if turn:
                        side.append(seconds)
                if took[0] and took[0][0] > 3:
                    break
        except AssertionError as problem:
            yield 0.0, f"     ?  {problem}"
            continue
        mine, its = map(statistics.median, took)
        shown = f"{mine / ROWS * 1e6:8.3f} µs, PostgreSQL {its / ROWS * 1e6:7.3f} µs  {text}"
        yield its / mine, f"{its / mine:5.2f}×  {shown}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="questions with this in their text")
    given = options.parse_args()
    demo, peer = Demo(1), Postgres()
    try:
        print(
            f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"{peer.version()}, {ROWS:,} rows, load {os.getloadavg()[0]:.1f}\n"
        )
        with (
            psycopg.connect(demo.dsn(), autocommit=True) as ours,
            psycopg.connect(peer.dsn(), autocommit=True) as theirs,
        ):
            fill(ours, {"int": "INT", "real": "DOUBLE"}, " DISTRIBUTED BY (id)")
            fill(theirs, {"int": "BIGINT", "real": "FLOAT8"}, "")
            theirs.execute("VACUUM ANALYZE")
            theirs.execute("SET max_parallel_workers_per_gather = 0")
            theirs.execute("SET jit = off")
            for _, row in sorted(measured(ours, theirs, given.only)):
                print(row)
    finally:
        demo.stop()
        peer.stop()


if __name__ == "__main__":
    main()
