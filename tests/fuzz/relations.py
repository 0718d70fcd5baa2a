"""Statements about what a session or the catalogue keeps: temporary tables, sequences, enums,
foreign keys, MERGE, jsonpath, prepared statements, rights. Most of them are wrong."""

from __future__ import annotations

import random

from tests.fuzz.mutate import any_number, any_text
from tests.fuzz.sql import Grammar, identifier, quoted

PATHS = (
    *("$", "$.a", "$[*]", "$.**", "strict $.a[0 to last]", "lax $.a.b", "$.**{2 to last}.a"),
    *("$.a.type()", "$.a.size() + 1", "-$.a", "$.keyvalue()", "$x", "$.a.double() / 0"),
)
TESTS = ("@ > 1", "@ == $x", 'exists(@.b) && !(@ like_regex "^(a+)+$" flag "i")', "@.a is unknown")
RIGHTS = ("SELECT", "INSERT, UPDATE", "REFERENCES", "ALL", "USAGE", "TRUNCATE", "CREATE", "EXECUTE")


class Relations:
    """Beside a grammar, whose expressions it uses and whose `params` are filled."""

    def __init__(self, grammar: Grammar, chance: random.Random) -> None:
        self._grammar, self._chance = grammar, chance

    def statement(self) -> str:
        self._grammar.params = []
        kinds = (
            *(self._temporary, self._sequence, self._enum, self._key, self._merge),
            *(self._jsonpath, self._prepared, self._rights, self._like, self._size),
        )
        return self._chance.choice(kinds)()

    def _pick(self, *of: str) -> str:
        return self._chance.choice(of)

    def _expr(self) -> str:
        return self._grammar.expr(1)

    def _temp(self) -> str:
        return self._pick("tmp0", "tmp1", "pg_temp.tmp0", "things", "names")

    def _temporary(self) -> str:
        name, other, expr = self._temp(), self._temp(), self._expr
        ending = self._pick(
            "", "ON COMMIT DROP", "ON COMMIT DELETE ROWS", "ON COMMIT PRESERVE ROWS"
        )
        type_ = self._grammar.type()
        return self._pick(
            f"CREATE TEMP TABLE {name} (id INT, x {type_} DEFAULT {expr()}) {ending}",
            f"CREATE TEMP TABLE IF NOT EXISTS {name} (id SERIAL PRIMARY KEY, x {type_} UNIQUE)",
            f"CREATE TEMP TABLE {name} {ending} AS SELECT {expr()} AS id, * FROM {other}",
            f"SELECT {expr()} AS id INTO TEMP {name} FROM {other}",
            f"INSERT INTO {name} SELECT * FROM {other} LIMIT 50",
            f"INSERT INTO {name} (id) VALUES ({expr()}) ON CONFLICT DO NOTHING RETURNING *",
            f"UPDATE {name} SET id = {expr()} FROM {other} o WHERE {name}.id = o.id",
            f"DELETE FROM {name} USING {other} o WHERE {expr()}",
            f"SELECT {expr()} FROM {name} JOIN {other} o ON TRUE ORDER BY 1 LIMIT 9",
            f"CREATE {self._pick('', 'UNIQUE ')}INDEX ON {name} (id)",
            f"ALTER TABLE {name} ADD COLUMN z {type_} DEFAULT {expr()}",
            f"ALTER TABLE tmp0 {self._pick('RENAME TO tmp1', 'DROP COLUMN x')}",
            f"TRUNCATE {name} RESTART IDENTITY",
            f"DROP TABLE IF EXISTS {name}, {other}" if "tmp" in name + other else "DISCARD TEMP",
            *("BEGIN", "SAVEPOINT a", "ROLLBACK TO a", "COMMIT", "ROLLBACK"),
        )

    def _sequence(self) -> str:
        name, number = (
            self._pick("seq0", "seq1", "things", "names_id_seq"),
            any_number(self._chance),
        )
        return self._pick(
            f"CREATE SEQUENCE IF NOT EXISTS {name} START {number} INCREMENT {self._pick('1', '7')}",
            f"ALTER SEQUENCE {name} RESTART WITH {number}",
            f"DROP SEQUENCE IF EXISTS {name}" if "seq" in name else "SELECT lastval()",
            f"SELECT nextval('{name}'), currval('{name}'), {self._expr()}",
            f"SELECT setval('{name}', {self._expr()}) FROM generate_series(1, 2000) g",
            f"SELECT setval('{name}', {number}, {self._pick('true', 'false', 'NULL')})",
            f"SELECT count(nextval('{name}')) FROM things",
            f"UPDATE things SET l = ARRAY[nextval('{name}')] WHERE id < 5",
            f"CREATE TEMP TABLE tmp0 (id INT DEFAULT nextval('{name}'), x TEXT)",
        )

    def _enum(self) -> str:
        name, label = self._pick("mood0", "mood1", "text"), quoted(any_text(self._chance))
        return self._pick(
            f"CREATE TYPE {name} AS ENUM ({label}, 'b', 'c')",
            f"ALTER TYPE {name} ADD VALUE IF NOT EXISTS {label} BEFORE 'b'",
            f"ALTER TYPE {name} RENAME VALUE 'b' TO {label}",
            f"ALTER TYPE {name} RENAME TO {self._pick('mood0', 'mood1')}",
            f"DROP TYPE IF EXISTS {name}",
            f"SELECT {label}::{name} < 'c'::{name}, enum_range(NULL::{name})",
            f"CREATE TEMP TABLE tmp1 (id INT, m {name} DEFAULT {label})",
            f"SELECT {self._expr()}::{name} FROM things",
        )

    def _key(self) -> str:
        child, parent = self._pick("kin0", "kin1", "kin2"), self._pick("kin0", "kin1", "things")
        doing = self._pick("", " ON DELETE CASCADE", " ON DELETE SET NULL ON UPDATE CASCADE")
        late = self._pick("", " DEFERRABLE INITIALLY DEFERRED")
        number = self._chance.randrange(6)
        return self._pick(
            f"CREATE TABLE {child} (id INT PRIMARY KEY, p INT REFERENCES {parent}{doing}{late}) "
            "DISTRIBUTED BY ()",
            f"ALTER TABLE {child} ADD CONSTRAINT k FOREIGN KEY (p) REFERENCES {parent} (id){doing}",
            f"ALTER TABLE {child} DROP CONSTRAINT IF EXISTS k",
            f"INSERT INTO {child} VALUES ({number}, {self._chance.randrange(6)})",
            f"UPDATE {child} SET {self._pick('id', 'p')} = {self._expr()} WHERE id = {number}",
            f"DELETE FROM {child} WHERE id = {number}",
            f"TRUNCATE {child}, kin1 {self._pick('', 'CASCADE')}",
            f"DROP TABLE IF EXISTS {child} {self._pick('', 'CASCADE')}",
            *("BEGIN", "SET CONSTRAINTS ALL DEFERRED", "COMMIT"),
        )

    def _merge(self) -> str:
        target = self._pick("things", "names", "tmp0", "kin0")
        source = self._pick("names", "things", "tmp1", f"({self._grammar.select(1)})")
        clauses = [
            self._pick(
                f"WHEN MATCHED AND {self._expr()} THEN DELETE",
                f"WHEN MATCHED THEN UPDATE SET id = {self._expr()}",
                "WHEN MATCHED THEN DO NOTHING",
                f"WHEN NOT MATCHED THEN INSERT (id) VALUES ({self._expr()})",
                "WHEN NOT MATCHED THEN INSERT VALUES (s.id)",
            )
            for _ in range(self._chance.randrange(1, 4))
        ]
        before = self._pick("", "EXPLAIN ", "EXPLAIN ANALYZE ", "PREPARE m AS ")
        on = self._pick(f"{target}.id = s.id", self._expr())
        return f"{before}MERGE INTO {target} USING {source} s ON {on} {' '.join(clauses)}"

    def _jsonpath(self) -> str:
        path = self._pick(*PATHS) + self._pick("", f" ? ({self._pick(*TESTS)})")
        path = path if self._chance.random() < 0.9 else path + any_text(self._chance)
        name = self._pick(*(f"jsonb_path_{each}" for each in ("exists", "match", "query_array")))
        value = self._pick(
            "j::jsonb", '\'{"a": [1, {"b": "aaaa"}]}\'::jsonb', f"to_jsonb({self._expr()})"
        )
        given = self._pick("", ", '{\"x\": 1}'", f", '{{}}', {self._pick('true', 'false')}")
        return self._pick(
            f"SELECT {name}({value}, {quoted(path)}{given}) FROM things",
            f"SELECT * FROM jsonb_path_query('[1, {{}}]'::jsonb, {quoted(path)})",
            f"SELECT {value} {self._pick('@?', '@@')} {quoted(path)} FROM things",
        )

    def _prepared(self) -> str:
        name = self._pick("p0", "p1", identifier(any_text(self._chance)))
        text = self._pick(self._grammar.select(1), "SELECT $1", "INSERT INTO names VALUES ($1, $2)")
        values = ", ".join(self._expr() for _ in range(self._chance.randrange(3)))
        return self._pick(
            f"PREPARE {name} ({self._grammar.type()}) AS {text}",
            f"PREPARE {name} AS {text}",
            f"EXECUTE {name} ({values})",
            f"EXPLAIN EXECUTE {name}({values})",
            f"CREATE TEMP TABLE tmp0 AS EXECUTE {name}({values})",
            f"DEALLOCATE {self._pick(name, 'ALL')}",
        )

    def _rights(self) -> str:
        of = ", ".join(self._chance.sample(("things", "names", "kin0", "seq0", "nobody"), 2))
        who = ", ".join(self._chance.sample(("u", "r", "public", "nobody"), 2))
        what = self._pick(f"ON {of}", f"ON SEQUENCE {of}", "ON ALL TABLES IN SCHEMA public")
        return self._pick(
            f"GRANT {self._pick(*RIGHTS)} {what} TO {who}",
            f"REVOKE {self._pick(*RIGHTS)} {what} FROM {who} CASCADE",
            f"CREATE ROLE {self._pick('r', 'u')} {self._pick('', 'LOGIN', 'NOSUPERUSER')}",
            "CREATE ROLE u LOGIN PASSWORD 'Passw0rd-1'",
            f"DROP ROLE IF EXISTS {self._pick('u', 'r')}",
            f"GRANT r TO {self._pick('u', 'r')}",
            f"SELECT has_table_privilege({self._pick('', quoted('u') + ', ')}'things', "
            f"{quoted(self._pick(*RIGHTS))})",
        )

    def _like(self) -> str:
        words = self._pick("", "INCLUDING ALL", "INCLUDING DEFAULTS EXCLUDING INDEXES")
        other = self._pick("things", "names", "tmp0", "seen0", "_pico_user", "kin0")
        kind = self._pick("TEMP ", "")
        return f"CREATE {kind}TABLE IF NOT EXISTS made0 (LIKE {other} {words}, extra INT)"

    def _size(self) -> str:
        name = self._pick("pg_relation_size", "pg_total_relation_size", "pg_database_size")
        return f"SELECT {name}({self._pick(quoted(any_text(self._chance)), self._expr())})"
