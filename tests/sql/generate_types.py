"""Random queries over columns of many types. Same seed, same queries.

Ten thousand of them: CAIRN_TYPE_QUERIES=10000 .venv/bin/pytest tests/sql -k generated_types
"""

from __future__ import annotations

import random

#: Kind of value → its columns in `typed`.
COLUMNS = {
    "i": ("i", "id"),
    "n": ("n",),
    "s": ("s",),
    "y": ("y", "y2"),
    "m": ("m",),
    "t": ("t",),
    "v": ("v",),
    "h": ("h", "h2"),
    "x": ("x",),
    "li": ("li",),
    "ls": ("ls",),
}
TABLE = (
    "CREATE TABLE typed (id BIGINT PRIMARY KEY, i BIGINT, n NUMERIC(8, 2), s VARCHAR(20), y DATE, "
    "y2 DATE, m TIMESTAMP, t TIMESTAMPTZ, v INTERVAL, h TIME, h2 TIME(1), x BYTEA, "
    "li BIGINT[], ls TEXT[])"
)
NAMES = {
    "i": "bigint", "n": "numeric(8,2)", "s": "text", "y": "date", "m": "timestamp",
    "t": "timestamptz", "v": "interval", "li": "bigint[]", "ls": "text[]",
    "h": "time", "x": "bytea",
}  # fmt: skip


class TypeGenerator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def constant(self, kind: str) -> str:
        rng = self.rng
        day = f"20{rng.randrange(10, 30)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        clock = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.choice(('00', '30.5'))}"
        interval = rng.choice(
            ("1 day", "-2 mons", "1 year 3 days", "04:05:06.5", "-00:30:00", "30 days", "1 mon")
        )
        words = [rng.choice(("a", "b c", "", "NULL", "x,y")) for _ in range(rng.randrange(3))]
        numbers = [str(rng.randrange(-2, 5)) for _ in range(rng.randrange(4))]
        found = {
            "i": str(rng.randrange(-3, 9)),
            "n": f"{rng.randrange(-9, 30)}.{rng.randrange(100):02d}",
            "s": rng.choice(("'a'", "''", "'2024-01-01'", "'b c'")),
            "y": f"'{day}'::date",
            "m": f"'{day} {clock}'::timestamp",
            "t": f"'{day} {clock}+0{rng.randrange(4)}'::timestamptz",
            "v": f"'{interval}'::interval",
            "h": f"'{clock}'::time",
            "x": rng.choice(("'a'", "''", "'\\x00ff'", "'\\x616263'", "'b\\\\c'")) + "::bytea",
            "li": f"'{{{','.join(numbers)}}}'::bigint[]",
            "ls": "'{" + ",".join(f'"{word}"' for word in words) + "}'::text[]",
        }
        return found[kind]

    def literal(self, kind: str) -> str:
        return f"NULL::{NAMES[kind]}" if self.rng.random() < 0.06 else self.constant(kind)

    def row(self, key: int) -> str:
        kinds = ("i", "n", "s", "y", "y", "m", "t", "v", "h", "h", "x", "li", "ls")
        cells = ", ".join(self.literal(kind) for kind in kinds)
        return f"INSERT INTO typed VALUES ({key}, {cells})"

    def expr(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.rng.random() < 0.3:
            is_column = self.rng.random() < 0.8
            return self.rng.choice(COLUMNS[kind]) if is_column else self.literal(kind)

        def inner(other: str) -> str:
            return self.expr(other, depth - 1)

        place, small = self.rng.randrange(4), self.rng.randrange(-3, 4)
        forms = {
            "i": (
                f"({inner('i')} + {inner('i')})", f"({inner('y')} - {inner('y')})",
                f"cardinality({inner('li')})", f"({inner('li')})[{place}]",
                f"extract(day FROM {inner('y')})::bigint", f"length({inner('s')})",
                f"coalesce({inner('i')}, 0)", f"array_position({inner('li')}, {small})",
                f"date_part('day', {inner('v')})::bigint", f"num_nulls({inner('s')}, {inner('v')})",
                f"extract(minute FROM {inner('h')})::bigint", f"length({inner('x')})",
            ),
            "n": (
                f"({inner('n')} + {inner('n')})", f"({inner('n')} * {small})",
                f"(-{inner('n')})", f"round({inner('n')}, 1)", f"abs({inner('n')})",
                f"({inner('n')} - 0.25)", f"({inner('n')} * 1.50)",
            ),
            "s": (
                f"{inner('y')}::text", f"{inner('v')}::text", f"{inner('m')}::text",
                f"({inner('ls')})[{place}]", f"({inner('s')} || {inner('y')})",
                f"to_char({inner('m')}, 'YYYY-MM')", f"{inner('n')}::text",
                f"array_to_string({inner('li')}, '-', '?')",
                f"to_char({inner('v')}, 'DD HH24:MI:SS')", f"concat({inner('n')}, {inner('y')})",
                f"to_jsonb({inner('n')})::text", f"(to_jsonb({inner('ls')}) ->> {place})",
                f"{inner('h')}::text", f"encode({inner('x')}, 'hex')", f"{inner('x')}::text",
                f"encode({inner('x')}, 'escape')", f"to_char({inner('h')}, 'HH12:MI AM')",
            ),
            "y": (
                f"({inner('y')} + {small})", f"({inner('y')} - {small})", f"{inner('m')}::date",
                f"coalesce({inner('y')}, {self.constant('y')})",
                f"CASE WHEN {self.truth(depth - 1)} THEN {inner('y')} ELSE {inner('y')} END",
            ),
            "m": (
                f"({inner('m')} + {inner('v')})", f"({inner('y')} + {inner('v')})",
                f"({inner('m')} - {inner('v')})", f"date_trunc('month', {inner('m')})",
                f"{inner('y')}::timestamp", f"{inner('t')}::timestamp",
                f"({inner('y')} + {inner('h')})", f"({inner('m')} - {inner('h')})",
            ),
            "t": (
                f"({inner('t')} + {inner('v')})", f"{inner('m')}::timestamptz",
                f"({inner('t')} - {inner('v')})", f"date_trunc('day', {inner('t')})",
            ),
            "v": (
                f"({inner('m')} - {inner('m')})", f"({inner('t')} - {inner('t')})",
                f"({inner('v')} + {inner('v')})", f"({inner('v')} * {small})",
                f"({inner('h')} - {inner('h')})", f"{inner('h')}::interval",
                f"(-{inner('v')})", f"({inner('v')} - {inner('v')})",
                f"justify_days({inner('v')})", f"justify_hours({inner('v')})",
                f"justify_interval({inner('v')})", f"date_trunc('day', {inner('v')})",
            ),
            "h": (
                f"({inner('h')} + {inner('v')})", f"({inner('h')} - {inner('v')})",
                f"{inner('m')}::time", f"{inner('v')}::time", f"least({inner('h')}, {inner('h')})",
                f"coalesce({inner('h')}, {self.constant('h')})",
            ),
            "x": (
                f"({inner('x')} || {inner('x')})", f"substring({inner('x')} from {place})",
                f"substring({inner('x')} from {small} for {place})", f"sha256({inner('x')})",
                f"decode(encode({inner('x')}, 'base64'), 'base64')",
                f"convert_to({inner('s')}, 'UTF8')", f"coalesce({inner('x')}, '')",
            ),
            "li": (
                f"({inner('li')} || {inner('li')})", f"array_append({inner('li')}, {small})",
                f"ARRAY[{small}, {inner('i')}]::bigint[]", f"array_remove({inner('li')}, 1)",
                f"({inner('li')})[{place}:{small}]", f"({inner('li')})[:{place}]",
                f"array_replace({inner('li')}, {small}, {inner('i')})",
            ),
            "ls": (
                f"({inner('ls')} || {inner('ls')})", f"array_append({inner('ls')}, 'z')",
                f"{inner('li')}::text[]", f"({inner('ls')})[{place}:]",
            ),
        }  # fmt: skip
        return self.rng.choice(forms[kind])

    def truth(self, depth: int = 1) -> str:
        kind = self.rng.choice(("i", "n", "s", "y", "m", "t", "v", "h", "x", "li"))
        left, right = self.expr(kind, depth), self.expr(kind, depth)
        match self.rng.randrange(6):
            case 0:
                return f"{left} IS NULL"
            case 1:
                return f"{left} IS DISTINCT FROM {right}"
            case 2 if kind == "y":
                return f"{left} < {self.expr('m', depth)}"
            case 3 if kind in ("y", "m", "t", "n", "h", "x"):
                return f"{left} BETWEEN {right} AND {self.constant(kind)}"
            case 4 if kind == "i":
                return f"{left} = ANY({self.expr('li', depth)})"
        return f"{left} {self.rng.choice(('=', '<', '>=', '<>'))} {right}"

    def query(self) -> str:
        rng = self.rng
        where = f" WHERE {self.truth(2)}" if rng.random() < 0.6 else ""
        match rng.randrange(7):
            case 5:
                word = rng.choice((", ", " CROSS JOIN LATERAL ", " LEFT JOIN LATERAL "))
                on = f" ON e <> {rng.randrange(4)}" if "LEFT" in word else ""
                rows = rng.choice((f"unnest({self.expr('li', 1)})", "generate_series(1, i)"))
                return f"SELECT id, e, {self.expr('s', 1)} FROM typed{word}{rows} e{on}{where}"
            case 6:
                ends = "min(justify_interval(v)), max(justify_interval(v))"  # 30 days are 1 mon
                shown = f"sum({self.expr('v', 1)}), avg({self.expr('v', 1)}), {ends}"
                return f"SELECT {self.expr('i', 1)}, {shown} FROM typed{where} GROUP BY 1"
            case 0:
                key = self.expr(rng.choice("inymshx"), 1)
                shown = ", ".join(
                    rng.choice(
                        (f"sum({self.expr('n', 1)})", f"min({self.expr('y', 1)})",
                         f"max({self.expr('m', 1)})", f"count({self.expr('v', 1)})",
                         f"max({self.expr('n', 1)})", "count(*)", f"max({self.expr('h', 1)})")
                    )
                    for _ in range(2)
                )  # fmt: skip
                return f"SELECT {key}, {shown} FROM typed{where} GROUP BY 1"
            case 1:
                return f"SELECT DISTINCT {self.expr('y')}, {self.expr('n', 1)} FROM typed{where}"
            case 2:
                kind = rng.choice("inythx")
                on = f"a.{COLUMNS[kind][0]} = b.{COLUMNS[kind][-1]}"
                return f"SELECT a.id, b.y, b.v, a.li, a.n + b.n FROM typed a JOIN typed b ON {on}"
            case _:
                kinds = [rng.choice(list(COLUMNS)) for _ in range(3)]
                shown = ", ".join(self.expr(kind) for kind in kinds)
                return f"SELECT {shown} FROM typed{where}"
