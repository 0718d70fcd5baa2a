"""Somebody without rights asks in every way there is: the secret is in no answer, and stays."""

from __future__ import annotations

import random
from contextlib import closing

import psycopg
from psycopg import pq

from tests.cluster.harness import PASSWORD
from tests.fuzz.relations import Relations
from tests.fuzz.sql import Grammar
from tests.fuzz.target import Broken, Target

WORD = "Zx9-sesam-Qv7"  # no statement has it
KEPT = "SELECT id, t FROM secret ORDER BY id"
#: The other kinds work as the admin, who may `GRANT ALL ON ALL TABLES … TO public`.
GIVEN = """SELECT 1 FROM _pico_privilege WHERE object_type = 'table'
    AND object_id = (SELECT id FROM _pico_table WHERE name = 'secret')"""
NAMES = ("things", "names", "kin0", "kin1", "tmp1", "seen0", "seen1", "nobody")


def secrets(target: Target, chance: random.Random) -> None:
    """Statements of all kinds in which a table's name is that of the secret one, or of a view or
    procedure above it that belongs to the admin."""
    rows = _made(target)
    grammar = Grammar(chance)
    relations = Relations(grammar, chance)
    name, below = chance.choice(NAMES), chance.choice(("secret", "secret", "secret_view"))
    port = target.node.pg_port
    dsn = f"postgresql://spy:{PASSWORD}@127.0.0.1:{port}/cairn"
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        pg = connection.pgconn
        told: list[str] = []
        pg.notice_handler = lambda result: told.append(_texts(result))
        pg.exec_(b"SET statement_timeout = '1s'")
        for _ in range(15):
            text = grammar.statement() if chance.random() < 0.5 else relations.statement()
            text = text.replace(name, below)
            if grammar.params:
                values = [None if each is None else each.encode() for each in grammar.params]
                result = pg.exec_params(text.encode(), values)
            else:
                result = pg.exec_(text.encode())
            told.append(_texts(result))
            if result.status in (pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_IN):
                break
            if any(WORD in each for each in told):
                _blame(target, f"the secret was told: {text!r} {grammar.params}")
                return
    if target.node.sql(KEPT) != rows:
        _blame(target, f"the secret was changed, last by {text!r}")


def _blame(target: Target, what: str) -> None:
    """Unless the secret is none: an operation of the queue has given it away meanwhile."""
    if not target.node.sql(GIVEN):
        raise Broken(what)


def _texts(result: pq.abc.PGresult) -> str:
    fields = [result.error_field(each) for each in pq.DiagnosticField] if result.status else []
    rows = [
        result.get_value(row, column)
        for row in range(min(result.ntuples, 200))
        for column in range(result.nfields)
    ]
    return " ".join(each.decode(errors="replace") for each in (*fields, *rows) if each)


def _made(target: Target) -> list[tuple[int, str]]:
    """The secret, once for each instance that is fuzzed; `spy` may make tables of its own."""
    node, rows = target.node, [(number, f"{WORD} {number}") for number in (1, 2, 3)]
    if not node.sql("SELECT 1 FROM pg_roles WHERE rolname = 'spy'"):
        node.sql(
            "CREATE TABLE secret (id INT PRIMARY KEY, t TEXT, p INT) DISTRIBUTED BY ()",
        )
        for number, text in rows:
            node.sql(f"INSERT INTO secret VALUES ({number}, '{text}', NULL)")
        node.sql("CREATE VIEW secret_view AS SELECT * FROM secret")
        node.sql(f"CREATE USER spy WITH PASSWORD '{PASSWORD}'")
        for right in ("CREATE TABLE", "CREATE PROCEDURE"):
            node.sql(f"GRANT {right} TO spy")
    if node.sql(GIVEN):
        node.sql("REVOKE ALL ON TABLE secret FROM public")
        node.sql("DELETE FROM secret")
        for number, text in rows:
            node.sql(f"INSERT INTO secret VALUES ({number}, '{text}', NULL)")
    return rows
