"""Every function of SQL with giant arguments, and how statements with them end."""

# ruff: noqa: E501 (a statement in a line)

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from cairn.model.types.values import ColumnType
from cairn.sql.functions.function_list import PLAIN
from tests.cluster.harness import Node

TIMEOUT_S = 0.1  # of a statement, which is asked to end by then
WINDOW_S = 0.08  # in which an instance without work runs for a moment at most

TEXT = "repeat('ab cd', 8000000)"  # 40 MB
WIDE = "repeat('äb', 15000000)"  # 45 MB, two bytes in Python as well
NUMBERS = "'[' || repeat('1,', 5000000) || '1]'"
MEMBERS = "'{' || repeat('\"a\":[1],', 1500000) || '\"b\":{}}'"
ITEMS = "'{' || repeat('a,', 3000000) || 'a}'"
JSON, LIST, INTS = (
    f"({NUMBERS})::json",
    f"({ITEMS})::text[]",
    "('{' || repeat('1,', 3000000) || '1}')::int[]",
)
ROWS = "FROM generate_series(1, 400000) g"

_GIANTS: dict[Any, str] = {
    ColumnType.STRING: TEXT,
    ColumnType.ANY: JSON,
    ColumnType.STRINGS: LIST,
}
_SMALL: dict[Any, str] = {
    ColumnType.STRING: "'b'",
    ColumnType.ANY: "'[1]'::json",
    ColumnType.STRINGS: "ARRAY['0']",
    ColumnType.INTEGER: "50000000",
    ColumnType.DOUBLE: "1.5e0",
    ColumnType.DECIMAL: "power(10, 300)::decimal",
    ColumnType.BOOLEAN: "true",
}


def of_functions() -> Iterator[tuple[str, str]]:
    """Each overload once with its first argument as a giant, once with all that can be one."""
    for name, overloads in sorted(PLAIN.items()):
        for number, (_, types, _) in enumerate(overloads):
            if not any(type_ in _GIANTS for type_ in types) or any(t not in _SMALL for t in types):
                continue
            found = [at for at, type_ in enumerate(types) if type_ in _GIANTS]
            for which in {(found[0],), tuple(found)}:
                args = [
                    (_GIANTS if at in which else _SMALL)[type_] for at, type_ in enumerate(types)
                ]
                call = f"{name}({', '.join(args)})"
                yield f"{name} {number} {which}", f"SELECT ({call})::text IS NULL"


OTHERS = {
    **{f"wide {name}": f"SELECT {name}({WIDE}) IS NULL" for name in ("upper", "lower", "reverse", "initcap", "md5")},
    "replace much": f"SELECT length(replace({TEXT}, 'b', 'xy'))",
    "translate all": f"SELECT length(translate({TEXT}, 'abcd ', 'ABCD_'))",
    "regexp_replace all": f"SELECT length(regexp_replace({TEXT}, 'b', 'c', 'g'))",
    "regexp_replace once": f"SELECT length(regexp_replace({TEXT}, 'zz', 'c'))",
    "regexp_count all": f"SELECT regexp_count({TEXT}, '[a-z]')",
    "regexp none": f"SELECT {TEXT} ~ '(x+x+)+y'",
    "regexp classes": f"SELECT {WIDE} ~* '\\w+\\s\\w{{5}}z'",
    "like": f"SELECT {TEXT} LIKE '%b_c%zz%'",
    "ilike": f"SELECT {WIDE} ILIKE '%b_c%zz%'",
    "similar": f"SELECT {TEXT} SIMILAR TO '%(bz|cz)%'",
    "trim": f"SELECT length(trim(both 'abcd ' FROM {TEXT}))",
    "equal": f"SELECT {TEXT} = {TEXT}",
    "concat": f"SELECT length({TEXT} || {TEXT})",
    "concat_ws": f"SELECT length(concat_ws(',', {TEXT}, {TEXT}))",
    "format": f"SELECT length(format('%s %L', {TEXT}, {TEXT}))",
    "many fields of format": "SELECT length(format(repeat('%1$s', 2000000), 'x'))",
    "as json": f"SELECT ({NUMBERS})::json IS NULL",
    "members as json": f"SELECT ({MEMBERS})::json IS NULL",
    "broken json": f"SELECT ({NUMBERS} || ']')::json IS NULL",
    "escaped json": "SELECT ('[' || repeat('\"\\u00e9\\ud83d\\ude00\",', 1500000) || '1]')::json IS NULL",
    "json length": f"SELECT json_array_length({JSON})",
    "json item": f"SELECT {JSON} -> 4999999",
    "json path": f"SELECT ({MEMBERS})::json #> '{{b,c}}'",
    "json contains": f"SELECT ({JSON})::jsonb @> '[1]'",
    "json contains much": "SELECT ('[' || repeat('1,', 20000) || '2]')::jsonb @> ('[' || repeat('2,', 20000) || '1]')::jsonb",
    "json has": f"SELECT jsonb_exists({JSON}, 'a')",
    "json joined": f"SELECT length((({JSON})::jsonb || '[2]')::text)",
    "json without": f"SELECT length((({JSON})::jsonb - 5)::text)",
    "json elements": f"SELECT count(*) FROM json_array_elements({JSON})",
    "json each": f"SELECT count(*) FROM json_each(({MEMBERS})::json)",
    "to_json": f"SELECT length(to_json({TEXT})::text)",
    "list of a text": f"SELECT array_length({INTS}, 1)",
    "list of texts": f"SELECT cardinality({LIST})",
    "list as text": f"SELECT length(({INTS})::text)",
    "list of others": f"SELECT cardinality(({INTS})::text[])",
    "list contains": f"SELECT {INTS} @> ARRAY[1]",
    "list overlaps": f"SELECT {INTS} && ARRAY[2]",
    "any of a list": f"SELECT 2 = ANY({INTS})",
    "item of a list": f"SELECT ({INTS})[2999999]",
    "append": f"SELECT cardinality(array_append({INTS}, 2))",
    "position": f"SELECT array_position({INTS}, 2)",
    "remove": f"SELECT cardinality(array_remove({INTS}, 1))",
    "array_to_string": f"SELECT length(array_to_string({INTS}, ','))",
    "list to json": f"SELECT length(to_json({INTS})::text)",
    "unnest": f"SELECT count(*) FROM unnest({INTS}) u",
    "characters": "SELECT cardinality(string_to_array(repeat('a', 249000), NULL))",
    "array_agg": f"SELECT cardinality(array_agg(g)) {ROWS}",
    "array_agg of texts": f"SELECT cardinality(array_agg(g::text)) {ROWS}",
    "string_agg": f"SELECT length(string_agg(g::text, ',')) {ROWS}",
    "string_agg distinct": f"SELECT length(string_agg(DISTINCT g::text, ',')) {ROWS}",
    "json_agg": f"SELECT length(json_agg(g)::text) {ROWS}",
    "json_object_agg": f"SELECT length(json_object_agg(g::text, g)::text) {ROWS}",
    "percentile_cont": f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY g) {ROWS}",
    "percentile_disc": f"SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY g) {ROWS}",
    "mode": f"SELECT mode() WITHIN GROUP (ORDER BY g) {ROWS}",
    "sum of decimals": f"SELECT sum(g::decimal / 7) {ROWS}",
    "a growing window": "SELECT max(cardinality(l)) FROM (SELECT array_agg(g) OVER (ORDER BY g) AS l FROM generate_series(1, 20000) g) x",
    "a sliding window": "SELECT max(cardinality(l)) FROM (SELECT array_agg(g) OVER (ORDER BY g ROWS 5000 PRECEDING) AS l FROM generate_series(1, 20000) g) x",
    "series of times": "SELECT count(*) FROM generate_series('2000-01-01'::timestamp, '2900-01-01'::timestamp, '1 hour'::interval)",
    "a number of many digits": "SELECT length((('1' || repeat('0', 100000))::decimal)::text)",
    "a product of many digits": "SELECT (('1' || repeat('7', 100000))::decimal * ('1' || repeat('7', 30000))::decimal) IS NULL",
    "a quotient of many digits": "SELECT (('1' || repeat('7', 100000))::decimal / ('1' || repeat('7', 3000))::decimal) IS NULL",
    "a text that is no number": f"SELECT ({TEXT})::decimal",
    "digits that are no int": "SELECT (repeat('1', 40000000))::int",
    "a text that is no date": f"SELECT ({TEXT})::timestamp",
    "a text that is no interval": "SELECT (repeat('1 day ', 8000000))::interval",
    "a text that is no uuid": f"SELECT ({TEXT})::uuid",
    "sorted giants": f"SELECT count(*) FROM (SELECT DISTINCT {TEXT} || g AS t FROM generate_series(1, 4) g ORDER BY 1) x",
    "a list in the text": "SELECT 1 WHERE 1 IN (" + ",".join(map(str, range(300_000))) + ")",
    "texts in the text": "SELECT 1 WHERE 'a' IN (" + ",".join(f"'{n}'" for n in range(200_000)) + ")",
    "rows in the text": "SELECT count(*) FROM (VALUES " + ",".join(f"({n}, 'x')" for n in range(60_000)) + ") v",
    "a sum in the text": "SELECT 1" + "+1" * 100_000,
    "depth in the text": "SELECT " + "(" * 900 + "1" + ")" * 900,
    "cases in the text": "SELECT CASE " + "".join(f"WHEN {n} = 1 THEN {n} " for n in range(40_000)) + "END",
    "a json in the text": f"SELECT '[{'1,' * 3_000_000}1]'::json IS NULL",
    "a list of ints in the text": f"SELECT cardinality('{{{'1,' * 2_000_000}1}}'::int[])",
    "statements in the text": "SELECT 1;" * 60_000,
}  # fmt: skip


def quick_sample() -> dict[str, str]:
    names = (
        *("as json", "json length", "list contains", "percentile_cont", "regexp_count all"),
        *("translate all", "wide upper", "texts in the text"),
    )
    return {name: OTHERS[name] for name in names}


class Ending:
    """Of one statement: how long after its time its client was told, and its work was over; and
    the longest wait of another session until then."""

    def __init__(self, told_s: float, over_s: float, silence_s: float, state: str | None) -> None:
        self.told_s, self.over_s, self.silence_s = told_s, over_s, silence_s
        self.sqlstate = state

    @property
    def worst_s(self) -> float:
        return max(self.told_s, self.over_s, self.silence_s)

    def __repr__(self) -> str:
        return (
            f"told after {self.told_s:.2f} s, over after {self.over_s:.2f} s, "
            f"silence of {self.silence_s:.2f} s, {self.sqlstate}"
        )


def ending_of(node: Node, text: str) -> Ending:
    """What a busy machine took from the instance is not counted."""
    threads = Threads(node.child_pid)
    ended, states, took = threading.Event(), [], [0.0]

    def attack() -> None:
        try:
            with node.connect() as connection:
                connection.execute(f"SET statement_timeout = {int(TIMEOUT_S * 1000)}")
                begun, before = time.monotonic(), threads.waited_s()
                try:
                    connection.execute(text)
                except psycopg.Error as problem:
                    states.append(problem.sqlstate)
                waited = threads.waited_s() - before
                took[0] = max(time.monotonic() - begun - waited, 0.0)
        finally:
            ended.set()

    thread = threading.Thread(target=attack)
    silence, told_at, looked_at, busy_s = 0.0, 0.0, 0.0, 0.0
    with node.connect() as other:
        thread.start()
        while True:
            begun, before = time.monotonic(), threads.waited_s()
            assert other.execute("SELECT 1").fetchone() == (1,)
            silence = max(silence, time.monotonic() - begun - (threads.waited_s() - before))
            if not ended.is_set():
                continue
            now = time.monotonic()
            told_at = told_at or now
            if now - looked_at > WINDOW_S:
                ran, waited = threads.others_s()
                if looked_at and ran + waited < WINDOW_S / 4:
                    break
                busy_s += ran if looked_at else 0.0
                looked_at = now
        thread.join()
    return Ending(max(took[0] - TIMEOUT_S, 0.0), busy_s, silence, states[0] if states else None)


class Threads:
    """Of an instance: how long they ran, and how long they were ready and had no core."""

    def __init__(self, pid: int) -> None:
        self._pid, self._before = pid, (0.0, 0.0)

    def waited_s(self) -> float:
        """Of all: who waits for the interpreter waits for the core of the thread that has it."""
        return sum(self._times(tid)[1] for tid in self._all())

    def others_s(self) -> tuple[float, float]:
        """All but the event loop's, since the last time."""
        found = [self._times(tid) for tid in self._all() if tid != self._pid]
        now = sum(each[0] for each in found), sum(each[1] for each in found)
        before, self._before = self._before, now
        return now[0] - before[0], now[1] - before[1]

    def _all(self) -> list[int]:
        return [int(task.name) for task in Path(f"/proc/{self._pid}/task").iterdir()]

    def _times(self, tid: int) -> tuple[float, float]:
        try:
            text = Path(f"/proc/{self._pid}/task/{tid}/schedstat").read_text().split()
        except OSError:  # it has ended
            return 0.0, 0.0
        return int(text[0]) / 1e9, int(text[1]) / 1e9
