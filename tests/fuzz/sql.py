"""Statements from a grammar that knows every function, type, table and kind of statement.

Most of them are wrong. Each is answered by rows or by an error of the statement.
"""

from __future__ import annotations

import random

from cairn.model.tables.catalog import Catalog
from cairn.server.catalog.functions import Functions
from cairn.server.catalog.schema import TABLES as CATALOG_TABLES
from cairn.server.catalog.schema import columns_of
from cairn.sql.bind.expressions.functions import AGGREGATES, RANKING
from cairn.sql.functions.function_list import ABSENT, LATE_FUNCTIONS, PLAIN
from cairn.sql.typing_rules import TYPE_WORDS
from tests.fuzz.mutate import any_number, any_text, mutated

COLUMNS = ("id", "t", "d", "n", "b", "u", "at", "w", "y", "v", "j", "l", "s")
FUNCTIONS = sorted(
    {*PLAIN, *LATE_FUNCTIONS, *ABSENT, "concat", "concat_ws", "greatest", "least", "coalesce"}
    | {
        "nullif",
        "json_extract_path",
        "btrim",
        "ltrim",
        "rtrim",
        "pg_typeof",
        "now",
        "generate_series",
    }
    | {"array_length", "cardinality", "array_append", "array_cat", "array_position", "unnest"}
    | {"array_to_string", "array_remove", "array_prepend", "extract", "bucket_id"}
)
CATALOG_FUNCTIONS = sorted(
    Functions(Catalog()).names() - {"pg_terminate_backend", "pg_cancel_backend"}
)
TYPES = sorted(TYPE_WORDS) + [f"{word}[]" for word in ("int", "text", "decimal", "date", "uuid")]
OPERATORS = (
    *("+", "-", "*", "/", "%", "||", "=", "<>", "<", ">", "<=", ">=", "AND", "OR", "LIKE", "ILIKE"),
    *(
        "SIMILAR TO",
        "~",
        "~*",
        "!~",
        "&",
        "|",
        "#",
        "<<",
        ">>",
        "^",
        "->",
        "->>",
        "IS DISTINCT FROM",
    ),
    *("@>", "IN", "BETWEEN"),
)
SYSTEM = (
    "_pico_instance",
    "_pico_bucket",
    "_pico_user",
    "_pico_table",
    "_pico_db_config",
    "_cairn_event",
)
CALLS = (
    *("cairn_status", "cairn_compact", "cairn_subscribers", "cairn_ingest", "cairn_promote"),
    *("cairn_settle", "cairn_check", "cairn_rows", "cairn_rows_at", "cairn_replication"),
    *("cairn_put", "cairn_rebalance", "cairn_tier", "cairn_nothing"),
)


class Grammar:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.params: list[str | None] = []

    def statement(self) -> str:
        self.params = []
        kinds = (
            *((self.select, 8), (self._catalog, 3), (self._write, 4), (self._ddl, 1)),
            *((self._other, 2), (self._call, 1), (self._cursor, 2), (self._block, 2)),
            (self._named, 1),
        )
        make = self._chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        text = make()
        if self._chance.random() < 0.05:
            text = mutated(self._chance, text.encode()).decode(errors="replace").replace("\0", "")
        return text

    def _pick(self, *of: str) -> str:
        return self._chance.choice(of)

    def literal(self) -> str:
        chance = self._chance
        match chance.randrange(9):
            case 0:
                return str(any_number(chance))
            case 1:
                return chance.choice(("1.5", "1e308", "1e-400", "0.1", "123456789.123456789e40"))
            case 2:
                return chance.choice(("NULL", "TRUE", "FALSE"))
            case 3:
                return f"{self.type()} {quoted(any_text(chance))}"
            case 4:
                return f"ARRAY[{', '.join(self.literal() for _ in range(chance.randrange(3)))}]"
            case 5 if len(self.params) < 5:
                self.params.append(chance.choice((None, any_text(chance), str(any_number(chance)))))
                return f"${len(self.params)}"
            case 6:
                word = chance.choice(("1 day", "-3 months 2:00", "1 century", "5"))
                return f"INTERVAL '{word}'"
            case 7:
                return f"DATE '{chance.choice(('2026-01-31', '0001-01-01', '9999-12-31'))}'"
            case _:
                return quoted(any_text(chance))

    def type(self) -> str:
        word = self._chance.choice(TYPES)
        if self._chance.random() < 0.1:
            word += f"({any_number(self._chance)}, {any_number(self._chance)})"
        return word

    def expr(self, depth: int = 3) -> str:
        chance = self._chance
        kind = chance.randrange(12 if depth else 4)
        if kind < 2:
            return self.literal()
        if kind < 4:
            return chance.choice(COLUMNS)
        if kind < 7:
            count = chance.randrange(4)
            args = ", ".join(self.expr(depth - 1) for _ in range(count))
            return f"{chance.choice(FUNCTIONS)}({args})"
        if kind == 7:
            return f"CAST({self.expr(depth - 1)} AS {self.type()})"
        if kind == 8:
            one, two = self.expr(depth - 1), self.expr(depth - 1)
            return f"CASE WHEN {one} THEN {two} ELSE {self.expr(depth - 1)} END"
        if kind == 9:
            over = f" OVER (ORDER BY {self.expr(0)})" if chance.random() < 0.3 else ""
            name = chance.choice(sorted({*AGGREGATES, *RANKING}))
            distinct = "DISTINCT " if chance.random() < 0.2 else ""
            return f"{name}({distinct}{self.expr(depth - 1)}){over}"
        if kind == 10 and depth > 1:
            return f"({self.select(depth - 2)})"
        operator = chance.choice(OPERATORS)
        right = self.expr(depth - 1)
        if operator == "IN":
            right = f"({right}, {self.expr(0)})"
        elif operator == "BETWEEN":
            right = f"{right} AND {self.expr(0)}"
        return f"({self.expr(depth - 1)} {operator} {right})"

    def _source(self) -> str:
        chance = self._chance
        match chance.randrange(6):
            case 0:
                return chance.choice(SYSTEM)
            case 1:
                return f"generate_series(1, {chance.choice((3, 1000, 100_000))}) AS id"
            case 2:
                how = self._pick("JOIN", "LEFT JOIN", "CROSS JOIN", "FULL JOIN")
                on = "" if how.startswith("CROSS") else f" ON {self.expr(1)}"
                return f"things {how} names o{on}"
            case 3:
                return f"unnest({self.literal()}) AS t"
            case _:
                return "things"

    def select(self, depth: int = 3) -> str:
        chance = self._chance
        items = ", ".join(self.expr(depth) for _ in range(chance.randrange(1, 3)))
        text = f"SELECT {'DISTINCT ' if chance.random() < 0.1 else ''}{items}"
        if chance.random() < 0.8:
            text += f" FROM {self._source()}"
        if chance.random() < 0.4:
            text += f" WHERE {self.expr(2)}"
        if chance.random() < 0.2:
            text += f" GROUP BY {self.expr(1)}"
        if chance.random() < 0.1:
            text += f" HAVING {self.expr(1)}"
        if chance.random() < 0.3:
            text += f" ORDER BY {self.expr(1)}{self._pick('', ' DESC', ' NULLS FIRST')}"
        if chance.random() < 0.2:
            text += f" LIMIT {self.literal()} OFFSET {self.literal()}"
        if chance.random() < 0.1:
            text += f" {self._pick('UNION', 'EXCEPT', 'INTERSECT ALL')} SELECT {self.expr(1)}"
        if chance.random() < 0.05:
            text = f"WITH q AS ({text}) SELECT * FROM q"
        return text

    def _catalog(self) -> str:
        chance = self._chance
        table = chance.choice(sorted(CATALOG_TABLES))
        columns = [name for name, _ in columns_of(table)]
        shown = table.replace("information_schema_", "information_schema.")

        def one(depth: int) -> str:
            kind = chance.randrange(5 if depth else 2)
            if kind == 0:
                return self.literal()
            if kind < 3:
                return chance.choice(columns)
            args = ", ".join(one(depth - 1) for _ in range(chance.randrange(4)))
            return f"{chance.choice(CATALOG_FUNCTIONS)}({args})"

        text = f"SELECT {one(2)}, {one(2)} FROM {shown}"
        if chance.random() < 0.5:
            text += f" WHERE {one(2)} {chance.choice(OPERATORS)} {one(2)}"
        return text

    def _write(self) -> str:
        text = self._write_one()
        if self._chance.random() < 0.2:
            after = self._pick(f"SELECT {self.expr(1)} FROM w", self._write_one())
            text = f"WITH w AS ({text} RETURNING {self.expr(1)}, *) {after}"
        return text

    def _write_one(self) -> str:
        chance = self._chance
        table = self._pick("things", "things", "names")
        match chance.randrange(3):
            case 0:
                names = chance.sample(COLUMNS[1:], 2)
                key = chance.randrange(200)
                values = f"{key}, {self.expr(1)}, {self.expr(1)}"
                clash = self._pick("", " ON CONFLICT DO NOTHING", " ON CONFLICT DO REPLACE")
                return f"INSERT INTO {table} (id, {', '.join(names)}) VALUES ({values}){clash}"
            case 1:
                set_ = f"{chance.choice(COLUMNS)} = {self.expr(2)}"
                return f"UPDATE {table} SET {set_} WHERE id = {chance.randrange(200)}"
            case _:
                return f"DELETE FROM {table} WHERE id = {chance.randrange(200)} AND {self.expr(1)}"

    def _ddl(self) -> str:
        name = f"made{self._chance.randrange(3)}"
        how = self._pick("DISTRIBUTED GLOBALLY", "DISTRIBUTED BY (id)")
        return self._pick(
            f"CREATE TABLE {name} (id {self.type()} PRIMARY KEY, x {self.type()} "
            f"DEFAULT {self.literal()}) {how}",
            f"DROP TABLE IF EXISTS {name}",
            f"ALTER TABLE {name} ADD COLUMN y {self.type()}",
            f"CREATE INDEX {name}_i ON {name} (x)",
            f"TRUNCATE {name}",
            f"ALTER TABLE {name} RENAME COLUMN x TO {identifier(any_text(self._chance))}",
            f"CREATE USER u WITH PASSWORD {quoted(any_text(self._chance))}",
            f"GRANT {self._pick('READ', 'ALL', 'EXECUTE', 'x')} ON TABLE {name} TO u",
            "DROP USER IF EXISTS u",
        )

    def _other(self) -> str:
        word = quoted(any_text(self._chance))
        return self._pick(
            f"SET {self._pick('application_name', 'DateStyle', 'nothing')} = {word}",
            f"SET read_preference = {word}",
            f"SHOW {self._pick('all', 'application_name', 'nothing')}",
            *(
                "RESET ALL",
                "BEGIN",
                "COMMIT",
                "ROLLBACK",
                "SAVEPOINT a",
                "ROLLBACK TO a",
                "DISCARD ALL",
            ),
            *(
                "DEALLOCATE ALL",
                "VACUUM",
                ";",
                "",
                "LISTEN x",
                "LOCK TABLE things",
                "--",
                "/* /* */",
            ),
            f"EXPLAIN {self.select(2)}",
            f"EXPLAIN ANALYZE {self.select(2)}",
            self._explained(),
            f"EXPLAIN (RAW) {self.select(2)}",
            f"COPY ({self.select(1)}) TO STDOUT",
            f"ALTER SYSTEM SET sql_motion_row_max = {word}",
        )

    def _cursor(self) -> str:
        """Declared, read and closed in any order, in and out of blocks."""
        name = self._pick("c1", "c2", "c3")
        way = self._pick("", "NEXT ", "FORWARD ALL ", "ALL ", f"{any_number(self._chance)} ")
        return self._pick(
            f"DECLARE {name} {self._pick('', 'BINARY ', 'SCROLL ')}CURSOR "
            f"{self._pick('', 'WITH HOLD ', 'WITHOUT HOLD ')}FOR {self.select(2)}",
            f"DECLARE {name} CURSOR WITH HOLD FOR SELECT * FROM things",
            f"FETCH {way}FROM {name}",
            f"FETCH {way}{name}",
            f"MOVE {way}IN {name}",
            f"CLOSE {self._pick(name, 'ALL')}",
        )

    def _body(self) -> str:
        chance = self._chance
        steps = []
        for _ in range(chance.randrange(1, 4)):
            write = self._write()
            steps.append(
                self._pick(
                    write,
                    f"RETURN QUERY {self.select(1)}",
                    f"RETURN QUERY SELECT * FROM things WHERE id = {chance.randrange(200)}",
                    f"IF {self.expr(1)} THEN {write}; END IF",
                    f"LET x = {self.expr(1)}",
                    self._ddl(),
                )
            )
        return f"BEGIN {'; '.join(steps)}; {self._pick('END', '', 'END LOOP')}"

    def _block(self) -> str:
        return self._pick(
            f"DO $$ {self._body()} $$",
            f"DO $x$ {self._body()} $x$",
            f"DO {quoted(self._body())}",
            *("BEGIN", "BEGIN READ ONLY", "COMMIT", "ROLLBACK", "END"),
            f"BEGIN; {self._write()}; {self._write()}; {self._pick('COMMIT', 'ROLLBACK')}",
        )

    def _named(self) -> str:
        """Views and procedures, one above the other."""
        name, below = f"seen{self._chance.randrange(3)}", f"seen{self._chance.randrange(3)}"
        types = ", ".join(self.type() for _ in range(self._chance.randrange(3)))
        return self._pick(
            f"CREATE {self._pick('', 'OR REPLACE ')}VIEW {name} AS {self.select(2)}",
            f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {below}",
            f"CREATE OR REPLACE VIEW {name} (a, b) AS SELECT id, {self.expr(1)} FROM things",
            f"SELECT {self.expr(1)} FROM {name}",
            f"SELECT * FROM {name} JOIN {below} ON TRUE",
            f"ALTER VIEW {name} RENAME TO {below}",
            f"DROP VIEW {self._pick('', 'IF EXISTS ')}{name}",
            f"CREATE OR REPLACE PROCEDURE {name}({types}) LANGUAGE SQL AS $$ {self._body()} $$",
            f"CALL {name}({', '.join(self.literal() for _ in range(self._chance.randrange(3)))})",
            f"ALTER PROCEDURE {name} RENAME TO {below}",
            f"DROP PROCEDURE IF EXISTS {name}",
            f"GRANT {self._pick('READ', 'DROP', 'ALTER', 'EXECUTE')} ON "
            f"{self._pick('VIEW', 'PROCEDURE', 'TABLE')} {name} TO u",
        )

    def _explained(self) -> str:
        words = ("ANALYZE", "VERBOSE", "COSTS OFF", "BUFFERS", "TIMING FALSE", "FORMAT JSON")
        some = self._chance.sample((*words, "FORMAT TEXT", "RAW", "SUMMARY", "NOTHING"), 2)
        inner = self._pick(self.select(2), self._write(), "SELECT * FROM seen0", self._call())
        return f"EXPLAIN ({', '.join(some)}) {inner}"

    def _call(self) -> str:
        args = ", ".join(self.literal() for _ in range(self._chance.randrange(5)))
        return f"CALL {self._chance.choice(CALLS)}({args})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
