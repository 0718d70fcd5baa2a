"""Random statements that have one answer, whoever is asked. Same seed, same statements."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

TABLES = {
    "item": {"id": "i", "grp": "i", "n": "i", "s": "t", "d": "n", "f": "f", "ok": "b", "at": "w"},
    "part": {"item_id": "i", "no": "i", "price": "n", "note": "t"},
    "pair": {"a": "i", "b": "t", "v": "i"},
    "kind": {"id": "i", "name": "t", "factor": "n"},
    "note": {"id": "i", "tag": "t", "n": "i"},
}
KEYS = {
    "item": ("id",),
    "part": ("item_id",),
    "pair": ("b", "a"),
    "note": ("tag",),
    "kind": ("id",),
}
NULLS = {
    "i": "bigint",
    "n": "numeric",
    "f": "float8",
    "t": "text",
    "b": "boolean",
    "w": "timestamptz",
}
LINES = (
    *("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count"),
    *("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
)
FRAMES = (
    "",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS UNBOUNDED PRECEDING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
)
#: What the indexes of expressions and of some rows are made for (`postgres.INDEXES`).
INDEXED = {
    "item": ("lower({0}.s) = {1}", "{0}.n % 3 = {2}", "{0}.ok = true AND {0}.grp = {2}"),
    "part": ("upper({0}.note) = {1}",),
    "note": ("abs({0}.n) = {2}", "lower({0}.tag) IN ({1}, {1})"),
}
TEXTS = ("apple", "x", "y", "z", "", "Banana", "one")
Scope = list[tuple[str, str]]  # (alias, table)


class Generator:
    def __init__(self, rng: random.Random, *, with_params: bool = False) -> None:
        self.rng = rng
        self.count = 0
        self.with_params = with_params
        self.params: list[Any] = []

    # --- pieces ---

    def alias(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def columns(self, scope: Scope, kind: str) -> list[str]:
        return [
            f"{alias}.{name}"
            for alias, table in scope
            for name, type_ in TABLES[table].items()
            if type_ == kind
        ]

    def column(self, scope: Scope, kind: str) -> str | None:
        found = self.columns(scope, kind)
        return self.rng.choice(found) if found else None

    def literal(self, kind: str) -> str:
        if self.with_params and kind in "intb" and self.chance(60):
            return self.param(kind)
        return self.constant(kind)

    def param(self, kind: str) -> str:
        value: Any = {
            "i": self.rng.randrange(-3, 13),
            "n": Decimal(self.rng.choice(("1.5", "0.5", "2.50", "-1.25", "3"))),
            "t": self.rng.choice(TEXTS),
            "b": self.chance(50),
        }[kind]
        self.params.append(value)
        return f"${len(self.params)}::text" if kind == "t" else f"${len(self.params)}"

    def constant(self, kind: str) -> str:
        rng = self.rng
        if self.chance(4):
            return f"NULL::{NULLS[kind]}"
        if kind == "i":
            return str(rng.randrange(-3, 13))
        if kind == "n":
            return rng.choice(("1.5", "0.5", "2.50", "-1.25", "3", "0.001", "100.0"))
        if kind == "f":
            return rng.choice(("1e0", "2.5e0", "0.5::float8", "-3e0"))
        if kind == "t":
            return f"'{rng.choice(TEXTS)}'"
        if kind == "b":
            return rng.choice(("true", "false"))
        return rng.choice(("'2024-01-01 00:00:00+00'::timestamptz", "'2024-06-01'::timestamptz"))

    def expr(self, scope: Scope, kind: str, depth: int = 2) -> str:
        column = self.column(scope, kind)
        if depth <= 0 or self.chance(40):
            return column if column is not None and self.chance(75) else self.literal(kind)
        if self.chance(12):
            return self.case(scope, kind, depth)
        if self.chance(8):
            return f"coalesce({self.expr(scope, kind, depth - 1)}, {self.literal(kind)})"
        return {
            "i": self.integer,
            "n": self.number,
            "f": self.double,
            "t": self.text,
            "b": self.boolean,
            "w": lambda scope, _: column or self.literal("w"),
        }[kind](scope, depth)

    def case(self, scope: Scope, kind: str, depth: int) -> str:
        return (
            f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {self.expr(scope, kind, depth - 1)} "
            f"ELSE {self.expr(scope, kind, depth - 1)} END"
        )

    def integer(self, scope: Scope, depth: int) -> str:
        a, b = self.expr(scope, "i", depth - 1), self.expr(scope, "i", depth - 1)
        match self.rng.randrange(7):
            case 0 | 1:
                return f"({a} {self.rng.choice('+-')} {b})"
            case 2:
                return f"({a} * {self.rng.randrange(-3, 4)})"
            case 3:
                return f"({a} {self.rng.choice('/%')} {self.rng.choice((2, 3, -4, 7))})"
            case 4:
                return f"abs({a})"
            case 5:
                return f"length({self.expr(scope, 't', depth - 1)})"
            case _:
                return f"nullif({a}, {self.literal('i')})"

    def number(self, scope: Scope, depth: int) -> str:
        a, b = self.expr(scope, "n", depth - 1), self.expr(scope, "n", depth - 1)
        match self.rng.randrange(6):
            case 0 | 1:
                return f"({a} {self.rng.choice('+-')} {b})"
            case 2:
                return f"({a} * {self.rng.choice(('2', '0.5', '-1.5'))})"
            case 3:
                return f"({a} / {self.rng.choice(('2', '3', '0.7'))})"
            case 4:
                return f"({a} + {self.expr(scope, 'i', depth - 1)})"
            case _:
                return f"round({a}, {self.rng.randrange(3)})"

    def double(self, scope: Scope, depth: int) -> str:
        a = self.expr(scope, "f", depth - 1)
        return self.rng.choice((f"({a} + 1e0)", f"(-{a})", f"abs({a})", f"({a} / 2)"))

    def text(self, scope: Scope, depth: int) -> str:
        a, b = self.expr(scope, "t", depth - 1), self.expr(scope, "t", depth - 1)
        match self.rng.randrange(6):
            case 0 | 1:
                return f"({a} || {b})"
            case 2:
                return f"lower({a})"
            case 3:
                return f"substr({a}, {self.rng.randrange(-1, 4)}, {self.rng.randrange(4)})"
            case 4:
                return f"cast({self.expr(scope, 'i', depth - 1)} AS text)"
            case _:
                return f"replace({a}, 'p', {self.literal('t')})"

    def boolean(self, scope: Scope, depth: int) -> str:
        if depth <= 0:
            return self.comparison(scope, 0)
        match self.rng.randrange(10):
            case 0 | 1:
                return f"({self.boolean(scope, depth - 1)} AND {self.boolean(scope, depth - 1)})"
            case 2 | 3:
                return f"({self.boolean(scope, depth - 1)} OR {self.boolean(scope, depth - 1)})"
            case 4:
                return f"(NOT {self.boolean(scope, depth - 1)})"
            case 5:
                kind = self.rng.choice("intbw")
                word = self.rng.choice(("IS NULL", "IS NOT NULL"))
                return f"({self.expr(scope, kind, depth - 1)} {word})"
            case 6:
                return (
                    f"({self.expr(scope, 't', 1)} LIKE '{self.rng.choice(('a%', '%p%', '_', ''))}')"
                )
            case _:
                return self.comparison(scope, depth - 1)

    def comparison(self, scope: Scope, depth: int) -> str:
        kind = self.rng.choice("iiiittnnwb")
        a, b = self.expr(scope, kind, depth), self.expr(scope, kind, depth)
        match self.rng.randrange(6):
            case 0:
                items = ", ".join(self.literal(kind) for _ in range(self.rng.randrange(1, 4)))
                return f"({a} {self.rng.choice(('IN', 'NOT IN'))} ({items}))"
            case 1 if kind in "in":
                return f"({a} BETWEEN {b} AND {self.literal(kind)})"
            case 2:
                return f"({a} IS DISTINCT FROM {b})"
            case _:
                return f"({a} {self.rng.choice(('=', '=', '<', '>', '<=', '>=', '<>'))} {b})"

    # --- sub-queries ---

    def subquery_condition(self, scope: Scope, depth: int = 1) -> str:
        table = self.rng.choice(list(TABLES))
        alias = self.alias()
        inner: Scope = [(alias, table)]
        where = self.boolean(inner, 1)
        outer = self.column(scope, "i")
        mine = self.column(inner, "i")
        if outer is not None and self.chance(50):
            where += f" AND {mine} = {outer}"
        if depth and self.chance(20):
            where += f" AND {self.subquery_condition([*scope, *inner], depth - 1)}"
        match self.rng.randrange(5):
            case 0 | 1:
                word = self.rng.choice(("EXISTS", "NOT EXISTS"))
                return f"{word} (SELECT 1 FROM {table} {alias} WHERE {where})"
            case 2:
                word = self.rng.choice(("IN", "NOT IN"))
                left = outer or "1"
                return f"{left} {word} (SELECT {mine} FROM {table} {alias} WHERE {where})"
            case _:
                what = self.rng.choice((f"max({mine})", "count(*)", f"min({mine})"))
                left = outer or "1"
                sign = self.rng.choice(("=", "<", ">="))
                return f"{left} {sign} (SELECT {what} FROM {table} {alias} WHERE {where})"

    # --- FROM ---

    def source(self) -> tuple[str, Scope]:
        table = self.rng.choice(("item", "item", "part", "pair", "note", "kind"))
        alias = self.alias()
        text, scope = f"{table} {alias}", [(alias, table)]
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            other = self.rng.choice(list(TABLES))
            name = self.alias()
            both = [*scope, (name, other)]
            kind = self.rng.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN"))
            shown = other
            if self.chance(15):  # a derived table with the same columns
                where = self.boolean([(other, other)], 1)
                shown = f"(SELECT * FROM {other} WHERE {where})"
            text += f" {kind} {shown} {name} ON {self.join_condition(scope, name, other, both)}"
            scope = both
        return text, scope

    def join_condition(self, scope: Scope, name: str, other: str, both: Scope) -> str:
        alias, table = self.rng.choice(scope)
        parts = []
        if self.chance(55) and len(KEYS[table]) == len(KEYS[other]):
            pairs = zip(KEYS[table], KEYS[other], strict=True)
            same = [(a, b) for a, b in pairs if TABLES[table][a] == TABLES[other][b]]
            parts = [f"{alias}.{a} = {name}.{b}" for a, b in same]
        if not parts:
            left = self.column([(alias, table)], "i")
            right = self.column([(name, other)], "i")
            parts = [f"{left} = {right}"]
        if self.chance(30):
            parts.append(self.comparison(both, 1))
        return " AND ".join(parts)

    def where(self, scope: Scope) -> str:
        parts = []
        if self.chance(60):
            parts.append(self.boolean(scope, 2))
        if self.chance(25):
            alias, table = self.rng.choice(scope)
            types = TABLES[table]
            parts += [f"{alias}.{key} = {self.literal(types[key])}" for key in KEYS[table]]
        if self.chance(15):
            parts.append(self.key_choice(scope))
        alias, table = self.rng.choice(scope)
        if table in INDEXED and self.chance(15):
            text = self.rng.choice(INDEXED[table])
            number, word = str(self.rng.randrange(4)), f"'{self.rng.choice(TEXTS).lower()}'"
            parts.append(text.format(alias, word, number))
        if self.chance(25):
            parts.append(self.subquery_condition(scope))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def key_choice(self, scope: Scope) -> str:
        """Several keys at once, which is several buckets."""
        alias, table = self.rng.choice(scope)
        types = TABLES[table]

        def one() -> str:
            return " AND ".join(f"{alias}.{k} = {self.literal(types[k])}" for k in KEYS[table])

        if self.chance(50):
            return f"(({one()}) OR ({one()}))"
        return " AND ".join(
            f"{alias}.{k} IN ({self.literal(types[k])}, {self.literal(types[k])})"
            for k in KEYS[table]
        )

    # --- queries ---

    def query(self) -> tuple[str, bool]:
        """A statement, and whether its ORDER BY is total."""
        self.count = 0
        self.params = []
        match self.rng.randrange(14):
            case 0 | 1 | 2 | 3:
                text, width = self.plain()
            case 4 | 5 | 6 | 7:
                text, width = self.grouped()
            case 8:
                text, width = self.windowed()
            case 9:
                text, width = self.set_operation()
            case 10:
                text, width = self.rng.choice((self.derived, self.limited, self.expressions))()
            case 11:
                text, width = self.lateral()
            case 12:
                text, width = self.asked()
            case _:
                text, width = self.scalar_items()
        # PostgreSQL 15 forgets ORDER BY of a column that WHERE compares with a constant, also where
        # a grouping set has made it NULL.
        if self.chance(60) and not any(word in text for word in ("ROLLUP", "CUBE", "GROUPING")):
            order = ", ".join(
                f"{at}{self.rng.choice(('', ' DESC', ' NULLS FIRST'))}"
                for at in range(1, width + 1)
            )
            text += f" ORDER BY {order}"
            if self.chance(50):
                text += f" LIMIT {self.rng.randrange(1, 7)}"
                if self.chance(40):
                    text += f" OFFSET {self.rng.randrange(4)}"
            return text, True
        return text, False

    def items(self, scope: Scope, count: int) -> str:
        kinds = [self.rng.choice("iinttbw") for _ in range(count)]
        return ", ".join(self.expr(scope, kind) for kind in kinds)

    def plain(self) -> tuple[str, int]:
        source, scope = self.source()
        count = self.rng.randrange(1, 4)
        distinct = "DISTINCT " if self.chance(25) else ""
        text = f"SELECT {distinct}{self.items(scope, count)} FROM {source}{self.where(scope)}"
        return text, count

    def statistics(self, scope: Scope) -> str:
        """Of pairs, bits and places. What is nothing but for rounding is nothing."""
        a, b = (f"({self.expr(scope, 'i', 1)} % 50)" for _ in range(2))
        match self.rng.randrange(5):
            case 0 | 1:
                found = f"{self.rng.choice(LINES)}({a}, {b})"
                return f"(CASE WHEN abs({found}) < 1e-6 THEN 0e0 ELSE {found} END)"
            case 2:
                return f"{self.rng.choice(('bit_and', 'bit_or', 'bit_xor'))}({a})"
            case 3:
                name = self.rng.choice(("rank", "dense_rank", "percent_rank", "cume_dist"))
                order = self.rng.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
                return f"{name}({self.constant('i')}) WITHIN GROUP (ORDER BY {a}{order})"
            case _:
                name = self.rng.choice(("stddev", "var_pop", "stddev_pop", "variance"))
                return f"round({name}({'DISTINCT ' if self.chance(50) else ''}{a}), 4)"

    def aggregate(self, scope: Scope) -> str:
        if self.chance(12):
            return self.statistics(scope)
        kind = self.rng.choice("iint")
        arg = self.expr(scope, kind, 1)
        if kind == "t":
            text = self.rng.choice((f"min({arg})", f"max({arg})", f"count(DISTINCT {arg})"))
        else:
            name = self.rng.choice(("sum", "avg", "min", "max", "count"))
            text = f"{name}({'DISTINCT ' if self.chance(20) else ''}{arg})"
        if self.chance(15):
            text = "count(*)"
        if self.chance(15):
            text += f" FILTER (WHERE {self.boolean(scope, 1)})"
        return text

    def grouped(self) -> tuple[str, int]:
        source, scope = self.source()
        keys = [
            key
            for key in (self.column(scope, self.rng.choice("iitbnw")) for _ in range(2))
            if key is not None
        ][: self.rng.randrange(3)]
        keys = list(dict.fromkeys(keys))
        aggregates = [self.aggregate(scope) for _ in range(self.rng.randrange(1, 4))]
        text = f"SELECT {', '.join((*keys, *aggregates))} FROM {source}{self.where(scope)}"
        if keys:
            text += f" GROUP BY {self.sets(keys)}"
        if self.chance(25):
            text += f" HAVING count(*) {self.rng.choice(('>', '<', '='))} {self.rng.randrange(4)}"
        return text, len(keys) + len(aggregates)

    def asked(self) -> tuple[str, int]:
        """Aggregates that stand in sub-queries and belong to the query around them."""
        source, scope = self.source()
        key, name, where = self.column(scope, "i"), self.alias(), self.where(scope)
        over = self.column(scope, "i")
        distinct = "DISTINCT " if self.chance(20) else ""
        asked = f"{self.rng.choice(('sum', 'min', 'max', 'count'))}({distinct}{over})"
        sign = self.rng.choice(("<", ">", "="))
        one = f"(SELECT {asked} FROM kind {name} WHERE {name}.id = {self.rng.randrange(1, 5)})"
        many = f"(SELECT count(*) FROM part {name} WHERE {name}.no {sign} {asked})"
        shown = self.rng.choice((one, many))
        if self.chance(30):
            return f"SELECT {shown}, {self.aggregate(scope)} FROM {source}{where}", 2
        text = f"SELECT {key}, {shown} FROM {source}{where} GROUP BY {key}"
        if self.chance(40):
            table, column = self.rng.choice((("kind", "id"), ("part", "no"), ("note", "n")))
            other = self.alias()
            found = f"SELECT 1 FROM {table} {other} WHERE {other}.{column} {sign} count({over})"
            text += f" HAVING {self.rng.choice(('', 'NOT '))}EXISTS ({found})"
        return text, 2

    def sets(self, keys: list[str]) -> str:
        """GROUP BY of these: plain, or several sets of them."""
        listed = ", ".join(keys)
        if self.chance(75):
            return listed
        sets = [*(f"({key})" for key in keys), f"({listed})", "()"]
        chosen = self.rng.sample(sets, self.rng.randrange(1, len(sets)))
        choices = (f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({', '.join(chosen)})")
        text = self.rng.choice(choices)
        if text.startswith("G") and any(f"({key})" not in chosen for key in keys):
            text += f", {listed}" if self.chance(50) else f", ROLLUP ({listed})"
        return text

    def windowed(self) -> tuple[str, int]:
        if self.chance(50):
            return self.rng.choice((self.windows_at_owners, self.windows_over_groups))()
        table = self.rng.choice(("item", "part", "note"))
        key = {"item": "id", "part": "item_id, no", "note": "id"}[table]
        scope = [("w", table)]
        partition = self.column(scope, "i")
        frame = self.rng.choice(FRAMES)
        name = self.rng.choice(("sum", "count", "min", "max", "avg", "bit_or", "last_value"))
        text = (
            f"SELECT {key}, {name}({self.expr(scope, 'i', 1)}) OVER (PARTITION BY {partition} "
            f"ORDER BY {key}{frame}), row_number() OVER (ORDER BY {key}) FROM {table} w"
            f"{self.where(scope)}"
        )
        return text, 3 + key.count(",")

    def windows_at_owners(self) -> tuple[str, int]:
        """All rows of a partition have one owner; some of these tables have NULL there."""
        table, keys, order = self.rng.choice(
            (("item", "w.id", "id"), ("part", "w.item_id", "no"), ("note", "w.tag", "id")),
        )
        scope = [("w", table)]
        partition = self.rng.choice((keys, f"{keys}, {self.column(scope, 'i')}"))
        name = self.rng.choice(("sum", "count", "min", "max", "avg"))
        over = f"OVER (PARTITION BY {partition} ORDER BY w.{order})"
        inner = (
            f"SELECT {keys} AS k, row_number() {over} AS n, "
            f"{name}({self.expr(scope, 'i', 1)}) {over} AS v FROM {table} w{self.where(scope)}"
        )
        match self.rng.randrange(3):
            case 0:
                return inner, 3
            case 1:
                return f"SELECT max(x.n), count(x.v), count(DISTINCT x.k) FROM ({inner}) x", 3
        return f"SELECT x.n, count(*), max(x.v) FROM ({inner}) x GROUP BY x.n", 3

    def windows_over_groups(self) -> tuple[str, int]:
        """Groups of all owners are put together before a window looks at them."""
        source, scope = self.source()
        key = self.column(scope, "i") or "1"
        name, value = self.rng.choice(("sum", "max", "count")), self.expr(scope, "i", 1)
        over = self.rng.choice(("", f"ORDER BY {key} NULLS FIRST", "PARTITION BY count(*)"))
        text = (
            f"SELECT {key}, count(*), sum({name}({value})) OVER ({over}), sum({key}), "
            f"sum({key}) OVER (), rank() OVER (ORDER BY count(*), {name}({value})) "
            f"FROM {source}{self.where(scope)} GROUP BY {key}"
        )
        return text, 6

    def set_operation(self) -> tuple[str, int]:
        kinds = [self.rng.choice("intb") for _ in range(self.rng.randrange(1, 3))]

        def side() -> str:
            source, scope = self.source()
            shown = ", ".join(self.expr(scope, kind, 1) for kind in kinds)
            return f"SELECT {shown} FROM {source}{self.where(scope)}"

        word = self.rng.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
        return f"{side()} {word} {side()}", len(kinds)

    def derived(self) -> tuple[str, int]:
        source, scope = self.source()
        key = self.column(scope, "i") or "1"
        inner = (
            f"SELECT {key} AS a, {self.aggregate(scope)} AS b FROM {source}{self.where(scope)} "
            f"GROUP BY {key}"
        )
        if self.chance(40):
            return f"WITH x AS ({inner}) SELECT x.a, i.s, i.id FROM x JOIN item i ON i.id = x.a", 3
        if self.chance(50):
            return f"SELECT x.a, count(*) FROM ({inner}) x WHERE x.a > 0 GROUP BY x.a", 2
        return f"SELECT i.id, x.a FROM item i LEFT JOIN ({inner}) x ON x.a = i.id", 2

    def limited(self) -> tuple[str, int]:
        """A derived table cut by LIMIT, or FULL JOIN, or a grouped one beside a table."""
        source, scope = self.source()
        a, b = self.expr(scope, "i", 1), self.expr(scope, "t", 1)
        inner = f"SELECT {a} AS a, {b} AS b FROM {source}{self.where(scope)}"
        inner += f" ORDER BY 1, 2 LIMIT {self.rng.randrange(1, 6)}"
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        table = self.rng.choice(("item", "kind", "note"))
        where = f" WHERE {self.boolean([('i', table)], 1)}" if self.chance(40) else ""
        return f"SELECT i.id, x.a, x.b FROM {table} i {kind} ({inner}) x ON x.a = i.id{where}", 3

    def expressions(self) -> tuple[str, int]:
        """Grouping by expressions, aggregates inside expressions, sub-queries in HAVING."""
        source, scope = self.source()
        key = self.expr(scope, self.rng.choice("itb"), 2)
        one, two = self.aggregate(scope), self.aggregate(scope)
        text = (
            f"SELECT {key} AS k, coalesce(cast({one} IS NULL AS text), '-') || 'x', "
            f"CASE WHEN count(*) > 2 THEN {two} END "
            f"FROM {source}{self.where(scope)} GROUP BY 1"
        )
        if self.chance(40):
            text += f" HAVING count(*) <= (SELECT count(*) FROM {self.rng.choice(list(TABLES))})"
        return text, 3

    def scalar_items(self) -> tuple[str, int]:
        source, scope = self.source()
        table = self.rng.choice(list(TABLES))
        alias = self.alias()
        outer, mine = self.column(scope, "i"), self.column([(alias, table)], "i")
        link = f" WHERE {mine} = {outer}" if self.chance(70) else ""
        what = self.rng.choice((f"sum({mine})", "count(*)", f"max({mine})"))
        shown = f"{outer}, (SELECT {what} FROM {table} {alias}{link})"
        return f"SELECT {shown} FROM {source}{self.where(scope)}", 2

    def lateral(self) -> tuple[str, int]:
        """Rows, the first rows, or aggregates of another table for each row of a source."""
        source, scope = self.source()
        table, alias = self.rng.choice(list(TABLES)), self.alias()
        own: Scope = [(alias, table)]
        tie = f"{self.column(own, 'i')} = {self.column(scope, 'i')}"
        inside = f"FROM {table} {alias} WHERE {tie}"
        if self.chance(40):
            inside += f" AND {self.boolean(own, 1)}"
        match self.rng.randrange(4):
            case 0:
                query = (
                    f"SELECT {self.expr(own, 'i', 1)} AS a, {self.expr(own, 't', 1)} AS b {inside}"
                )
            case 1:
                first = f"ORDER BY 1, 2 LIMIT {self.rng.randrange(1, 4)}"
                offset = " OFFSET 1" if self.chance(30) else ""
                columns = f"{self.column(own, 'i')} AS a, {self.column(own, 't') or 1} AS b"
                query = f"SELECT {columns} {inside} {first}{offset}"
            case 2:
                query = f"SELECT {self.aggregate(own)} AS a, {self.aggregate(own)} AS b {inside}"
            case _:
                key = self.column(own, "i")
                query = f"SELECT {key} AS a, {self.aggregate(own)} AS b {inside} GROUP BY {key}"
        outer = self.column(scope, "i")
        left = self.chance(50)
        join = (
            f"LEFT JOIN LATERAL ({query}) l ON true" if left else f"CROSS JOIN LATERAL ({query}) l"
        )
        return f"SELECT {outer}, l.a, l.b FROM {source} {join}{self.where(scope)}", 3

    # --- writes ---

    def write(self) -> str:
        """DML on `spare` (id, n, s, d) that succeeds."""
        self.count = 0
        scope: Scope = [("spare", "spare")]
        TABLES["spare"] = {"id": "i", "n": "i", "s": "t", "d": "n"}
        KEYS["spare"] = ("id",)
        try:
            return self._write(scope)
        finally:
            del TABLES["spare"], KEYS["spare"]

    def _write(self, scope: Scope) -> str:
        rng = self.rng
        match rng.randrange(8):
            case 0 | 1 | 2:
                rows = ", ".join(
                    f"({rng.randrange(40)}, {self.literal('i')}, {self.literal('t')}, "
                    f"{self.literal('n')})"
                    for _ in range(rng.randrange(1, 4))
                )
                return f"INSERT INTO spare VALUES {rows} ON CONFLICT DO NOTHING"
            case 3:
                source, inner = self.source()
                first = rng.randrange(100, 10_000)
                return (
                    f"INSERT INTO spare SELECT {first}, max({self.expr(inner, 'i', 1)}), "
                    f"min({self.expr(inner, 't', 1)}), round(sum({self.expr(inner, 'n', 1)}), 9) "
                    f"FROM {source}{self.where(inner)} ON CONFLICT DO NOTHING"
                )
            case 4 | 5:
                sets = [f"n = {self.integer(scope, 1)} % 1000"]
                if self.chance(50):
                    sets.append(f"s = substr({self.text(scope, 1)}, 1, 20)")
                if self.chance(50):
                    sets.append(f"d = round(d * {self.literal('n')}, 2) % 1000")
                return f"UPDATE spare SET {', '.join(sets)}{self.where(scope)}"
            case 6:
                return (
                    f"UPDATE spare SET n = k.id FROM kind k WHERE k.id = spare.id AND "
                    f"{self.boolean(scope, 1)}"
                )
            case _:
                extra = f" AND {self.boolean(scope, 1)}"
                return f"DELETE FROM spare WHERE id % 5 = {rng.randrange(5)}{extra}"
