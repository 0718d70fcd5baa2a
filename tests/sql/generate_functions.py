"""Random calls of functions, operators and casts with odd values. Same seed, same calls.

A thousand of them: CAIRN_FUNCTION_CALLS=1000 .venv/bin/pytest tests/sql -k generated_calls
"""

# ruff: noqa: E501 (a form to a line)

from __future__ import annotations

import random
import re

#: Letter → the type of PostgreSQL, and values that people did not think of.
VALUES: dict[str, tuple[str, tuple[str, ...]]] = {
    "s": (
        "text",
        (
            "",
            "a",
            "Abc dEF",
            "żółć é",
            "a,b,,c",
            "  pad  ",
            "12",
            "-1.50",
            "x" * 20,
            "%_\\",
            "one two  three",
            "O'Reilly",
            "𝄞z",
            "a\nb",
            "abcabc",
            "2024-02-29",
            "true",
            "{a,b}",
            '{"a": 1}',
            "ǅ",
            "1e3",
            "ab.cd.ef",
        ),
    ),
    "p": ("text", ("", "a", "b", "bc", ",", " ", "é", "ab", "abc", "x", "zz", "\n", "xyz")),
    "l": (
        "text",
        (
            "%",
            "_",
            "",
            "a%",
            "%c",
            "%b%",
            "_b%",
            "a\\%",
            "%\\_%",
            "__",
            "%a%c%",
            "A%",
            "é%",
            "%é",
            "\\\\%",
        ),
    ),
    "g": (
        "text",
        (
            "a",
            "^a",
            "c$",
            "[a-c]+",
            "(a)(b)",
            "\\d+",
            "\\s",
            "\\w+",
            "a|b",
            "a*",
            "^$",
            "(?i)ABC",
            "[^,]+",
            "b?",
            "(a|b)+",
            "[[:alpha:]]+",
            "x{2,3}",
            "(x)(y)?",
            "\\.",
        ),
    ),
    "i": (
        "bigint",
        (
            "0",
            "1",
            "-1",
            "2",
            "3",
            "7",
            "-13",
            "100",
            "9223372036854775807",
            "-9223372036854775808",
            "2147483648",
            "12345",
        ),
    ),
    "k": ("int", ("0", "1", "2", "3", "-1", "-2", "5", "10", "40", "-100")),
    "n": (
        "numeric",
        (
            "0",
            "1",
            "-1",
            "1.5",
            "-2.50",
            "0.001",
            "123456.789",
            "99999999999999999999",
            "-0.5",
            "2.5",
            "3.5",
            "1e-10",
            "100.00",
            "0.00",
        ),
    ),
    "f": (
        "float8",
        (
            "0",
            "1",
            "-1",
            "0.1",
            "2.5",
            "-2.5",
            "1e300",
            "1e-300",
            "123456789.123",
            "3.0",
            "1e15",
            "1e16",
            "1e-5",
            "0.0001",
        ),
    ),
    "b": ("boolean", ("true", "false")),
    "y": (
        "date",
        (
            "2024-02-29",
            "1999-12-31",
            "2000-01-01",
            "1969-07-20",
            "2023-03-26",
            "2024-12-30",
            "2021-01-03",
        ),
    ),
    "m": (
        "timestamp",
        (
            "2024-02-29 12:34:56.789012",
            "1999-12-31 23:59:59.999999",
            "2000-01-01",
            "1969-07-20 20:17:40",
            "2024-01-31 10:00",
            "2021-01-03 00:30:00.5",
        ),
    ),
    "t": (
        "timestamptz",
        (
            "2024-02-29 12:34:56.789012+00",
            "1999-12-31 23:59:59.999999+01",
            "2000-01-01 00:00+00",
            "1969-07-20 20:17:40-05",
            "2024-03-31 01:30+00",
            "2024-10-27 00:30+00",
            "2021-01-03 00:30:00.5+00",
        ),
    ),
    "v": (
        "interval",
        (
            "0",
            "1 day",
            "-1 day",
            "1 mon",
            "1 year 2 mons 3 days 04:05:06.789",
            "-00:00:00.5",
            "36:00:00",
            "-1 mon +5 days",
            "15 days 12:00",
            "1 mon -1 day",
            "00:00:00.000001",
        ),
    ),
    "h": ("time", ("00:00", "23:59:59.999999", "12:34:56", "01:02:03.5")),
    "u": ("uuid", ("102be9bf-215f-4180-b4c9-cc11983e988d", "00000000-0000-0000-0000-000000000000")),
    "x": ("bytea", ("", "\\x00", "\\x616263", "\\xff00fe", "abc\\\\d", "\\xc3a9")),
    "I": (
        "bigint[]",
        ("{}", "{1}", "{1,2,3}", "{3,NULL,1}", "{NULL}", "{1,1,2,2}", "{-5,9223372036854775807}"),
    ),
    "S": (
        "text[]",
        ("{}", "{a}", "{a,b,c}", '{"a b",NULL,"NULL",""}', '{"x,y","\\"q\\""}', "{b,a,b}", "{é,z}"),
    ),
    "N": ("numeric[]", ("{}", "{1.5,2.25,NULL}", "{0}", "{1,2}")),
    "J": (
        "jsonb",
        (
            "{}",
            "[]",
            "null",
            "1",
            '"a"',
            "true",
            '{"a": 1, "b": null}',
            '{"a": {"b": [1, 2, {"c": "d"}]}}',
            "[1, 2, 3]",
            '["a", null, {"a": 1}]',
            "[[1], [2, [3]]]",
            '{"b": 1.50, "a": "x"}',
            '"é\\n\\""',
            '[{"id": 1}, {"id": 2}]',
            '{"a": ""}',
            "-0.5",
            '{"a": [1, "1", true]}',
        ),
    ),
    "P": (
        "text[]",
        ("{a}", "{a,b}", "{a,b,1}", "{0}", "{-1}", "{x}", "{}", "{a,b,2,c}", "{1,1,0}"),
    ),
    "j": ("text", ("a", "b", "0", "1", "x", "")),
}
UNITS = (
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "week",
    "quarter",
    "decade",
    "century",
    "millennium",
)
FIELDS = (*UNITS, "dow", "isodow", "doy", "isoyear", "epoch", "microseconds", "milliseconds")
PATTERNS = (
    "YYYY-MM-DD",
    "HH24:MI:SS",
    "HH12:MI AM",
    "Mon DD, YYYY",
    "FMMonth FMDD",
    "Day",
    "FMDay, DDth",
    "IYYY-IW-ID",
    "DDD",
    "Q",
    "WW",
    "CC",
    "J",
    "MS US",
    "YY",
    "Y,YYY",
    "am",
    "MON",
    "month",
    "dy",
    "D",
    "SSSS",
    "RM",
    "FF3",
    '"at" HH',
    "YYYYMMDD",
    "FMMM/FMDD",
    "W",
    "ID",
    "BC",
    "IYY",
)
HOURS = ("hour", "minute", "second", "epoch", "microseconds", "milliseconds")
SPANS = (
    "YYYY-MM-DD",
    "HH24:MI:SS",
    "HH12:MI AM",
    "YY",
    "Y,YYY",
    "CC",
    "DDD",
    "Q",
    "WW",
    "W",
    "FF3",
    "MS US",
    "SSSS",
    "FMDD FMHH24",
    '"in" DD',
    "Month",
    "dy",
    "D",
    "ID",
    "BC",
)
NUMBERS = (
    "999",
    "000",
    "9,999.99",
    "FM999.00",
    "FM9990.0",
    "S999",
    "999MI",
    "990.9",
    "999PR",
    "0000.00",
    "FM999,999",
    "9.9",
    "V99",
    "99V9",
    "SG999",
    "FM0.00",
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+03", "Asia/Kolkata", "EST")

#: `{s}` is a value of the kind s; `<UNITS>` one word of the list.
FORMS = """
lower({s})|upper({s})|initcap({s})|length({s})|octet_length({s})|bit_length({s})|reverse({s})|char_length({s})
left({s}, {k})|right({s}, {k})|lpad({s}, {k}, {p})|rpad({s}, {k}, {p})|lpad({s}, {k})|rpad({s}, {k})
repeat({s}, {k})|replace({s}, {p}, {p})|translate({s}, {s}, {p})|strpos({s}, {p})|position({p} in {s})
substr({s}, {k})|substr({s}, {k}, {k})|substring({s} from {k} for {k})|substring({s} from {g})|substring({s} for {k})
overlay({s} placing {p} from {k})|overlay({s} placing {p} from {k} for {k})
trim({s})|trim({p} from {s})|trim(leading {p} from {s})|trim(trailing from {s})|btrim({s}, {p})|ltrim({s}, {p})|rtrim({s}, {p})|ltrim({s})
split_part({s}, {p}, {k})|starts_with({s}, {p})|ascii({s})|chr({k})|md5({s})|concat({s}, {i}, {b}, {n})|concat_ws({p}, {s}, {i}, {s})
quote_ident({s})|quote_literal({s})|quote_nullable({s})|to_hex({i})|format('%s-%I-%L', {s}, {s}, {s})|format('%%[%5s][%-5s]', {s}, {p})|format('%2$s %1$s', {s}, {i})|format({s})|format('%s', {I})
{s} LIKE {l}|{s} NOT LIKE {l}|{s} ILIKE {l}|{s} LIKE {l} ESCAPE '!'|{s} SIMILAR TO {l}|{s} ~ {g}|{s} ~* {g}|{s} !~ {g}|{s} !~* {g}
regexp_replace({s}, {g}, {p})|regexp_replace({s}, {g}, {p}, 'g')|regexp_replace({s}, {g}, '<\\&>', 'gi')|regexp_replace({s}, {g}, '[\\1]')|regexp_match({s}, {g})|regexp_count({s}, {g})|regexp_like({s}, {g})|regexp_like({s}, {g}, 'i')|regexp_substr({s}, {g})|regexp_substr({s}, {g}, 1, 2)|regexp_instr({s}, {g})|regexp_split_to_array({s}, {g})|regexp_replace({s}, {g}, {p}, 2, 1)
string_to_array({s}, {p})|string_to_array({s}, NULL)|string_to_array({s}, {p}, {p})|{s} || {s}|{s} || {i}|{s} || {n}|{s} || {b}|{s} || {y}|{s} < {s}|{s} BETWEEN {s} AND {s}|{s} IN ({s}, {s})|greatest({s}, {s})|least({s}, {s}, {p})|coalesce({s}, {p})|nullif({s}, {s})
{s}::bigint|{s}::numeric|{s}::float8|{s}::boolean|{s}::date|{s}::timestamp|{s}::timestamptz|{s}::interval|{s}::time|{s}::uuid|{s}::bytea|{s}::jsonb|{s}::text[]|{s}::bigint[]|{s}::varchar(3)|{s}::numeric(4, 1)|{s}::json
{i} + {i}|{i} - {i}|{i} * {i}|{i} / {i}|{i} % {i}|-{i}|abs({i})|{i} & {i}|{i} # {i}|~{i}|mod({i}, {i})|div({n}, {n})|gcd({i}, {i})|lcm({i}, {i})|factorial({k})|sign({i})|power({k}, {k})|{k} ^ {k}|{i}::text|{i}::numeric(5, 2)|{i}::float8|{i} = {n}|{i} < {f}|{i} + {n}|{i} * {f}|{i} / {n}
{n} + {n}|{n} - {n}|{n} * {n}|{n} / {n}|{n} % {n}|-{n}|abs({n})|round({n})|round({n}, {k})|trunc({n})|trunc({n}, {k})|ceil({n})|floor({n})|sign({n})|scale({n})|min_scale({n})|trim_scale({n})|{n}::bigint|{n}::float8|{n}::text|{n}::int|{n} = {f}|{n} * {f}|{n} < {n}|mod({n}, {n})|width_bucket({n}, 0, 10, 5)|{n} BETWEEN {n} AND {i}|{n}::numeric(10, 1)
{f} + {f}|{f} * {f}|{f} / {f}|abs({f})|round({f})|trunc({f})|ceil({f})|floor({f})|{f}::bigint|{f}::numeric|{f}::text|sqrt({f})|cbrt({f})|exp({f})|ln({f})|log({f})|sin({f})|atan2({f}, {f})|degrees({f})|sign({f})|{f} = {f}|{f} || ''|radians({f})
to_char({n}, <NUMBERS>)|to_char({i}, <NUMBERS>)|to_char({m}, <PATTERNS>)|to_char({t}, <PATTERNS>)|to_char({y}, <PATTERNS>)|to_char({v}, <SPANS>)|to_char({m}, <PATTERNS> || ' ' || <PATTERNS>)
{b}::text|{b}::int|NOT {b}|{b} AND {b}|{b} OR {b}|{b} = {b}|{b} IS NOT TRUE|{b} IS UNKNOWN|{b} < {b}
{y} + {k}|{y} - {k}|{y} - {y}|{y} + {v}|{y} - {v}|{y}::timestamp|{y}::timestamptz|{y}::text|{y} < {m}|{y} = {t}|{y} + {h}|extract(<FIELDS> from {y})|date_part(<FIELDS>, {y})|date_trunc(<UNITS>, {y})|age({y}, {y})|make_date({k}, {k}, {k})|({y}, {y}) OVERLAPS ({y}, {y})|isfinite({y})
{m} + {v}|{m} - {v}|{m} - {m}|{m}::date|{m}::time|{m}::timestamptz|{m}::text|{m} < {t}|extract(<FIELDS> from {m})|date_part(<FIELDS>, {m})|date_trunc(<UNITS>, {m})|age({m}, {m})|{m} AT TIME ZONE <ZONES>|date_bin('15 minutes', {m}, '2001-01-01')|{m}::timestamp(2)|({m}, {v}) OVERLAPS ({m}, {v})|date_bin({v}, {m}, {m})
{t} + {v}|{t} - {v}|{t} - {t}|{t}::date|{t}::time|{t}::timestamp|{t}::text|extract(<FIELDS> from {t})|date_trunc(<UNITS>, {t})|date_trunc(<UNITS>, {t}, <ZONES>)|age({t}, {t})|{t} AT TIME ZONE <ZONES>|to_timestamp({k})|to_timestamp({f})|{t} = {y}|timezone(<ZONES>, {t})
{v} + {v}|{v} - {v}|-{v}|{v} * {k}|{v} * 1.5|{v} / {k}|{v} / 0.7|{v}::text|{v} < {v}|{v} = {v}|extract(<FIELDS> from {v})|date_part(<FIELDS>, {v})|date_trunc(<UNITS>, {v})|justify_days({v})|justify_hours({v})|justify_interval({v})|{v}::time|make_interval({k}, {k}, {k}, {k}, {k}, {k}, 1.5)|greatest({v}, {v})
{h} + {v}|{h} - {v}|{h} - {h}|{h}::text|{h}::interval|{h} < {h}|extract(<HOURS> from {h})|date_trunc(<CLOCKS>, {h})|make_time({k}, {k}, 1.5)
to_date('05 Dec 2000', 'DD Mon YYYY')|to_timestamp('2024-2-3 4:5', 'YYYY-MM-DD HH24:MI')|to_date('20240229', 'YYYYMMDD')
{u}::text|{u} < {u}|{u} = {u}|{x} || {x}|length({x})|encode({x}, 'hex')|encode({x}, 'base64')|encode({x}, 'escape')|substring({x} from {k} for 2)|md5({x})|sha256({x})|{x}::text|{x} < {x}|get_byte({x}, {k})|convert_from({x}, 'UTF8')|decode({s}, 'hex')|decode({s}, 'base64')|decode({s}, 'escape')|position({x} in {x})
{I} || {I}|{I} || {i}|{i} || {I}|({I})[{k}]|({I})[{k}:{k}]|array_length({I}, {k})|array_lower({I}, 1)|array_upper({I}, 1)|array_ndims({I})|cardinality({I})|array_append({I}, {i})|array_prepend({i}, {I})|array_cat({I}, {I})|array_remove({I}, {i})|array_replace({I}, {i}, {i})|array_position({I}, {i})|array_position({I}, {i}, {k})|array_positions({I}, {i})|trim_array({I}, {k})|array_to_string({I}, {p})|array_to_string({I}, {p}, {p})|{I} = {I}|{I} < {I}|{I} @> {I}|{I} <@ {I}|{I} && {I}|{i} = ANY({I})|{i} <> ALL({I})|{i} < ANY({I})|{i} >= ALL({I})|{I}::text|{I}::text[]|{I}::numeric[]|to_jsonb({I})
{S} || {S}|{S} || {s}::text|({S})[{k}]|array_to_string({S}, {p})|array_to_string({S}, {p}, '*')|array_position({S}, {s})|{S} @> {S}|{S} && {S}|{s} = ANY({S})|{s} LIKE ANY({S})|{s} <> ALL({S})|{S}::text|to_jsonb({S})|{S} < {S}|array_remove({S}, {p})|{S}::bigint[]|array_to_json({S})|{N} || {n}|({N})[{k}]|{n} = ANY({N})|{N}::text|{N} = {N}|to_jsonb({N})|unnest({S})|ARRAY[{i}, {i}]|ARRAY[{s}, {p}]|ARRAY[{n}, {i}]
{J} -> {j}|{J} ->> {j}|{J} #> {P}|{J} #>> {P}|{J} @> {J}|{J} <@ {J}|{J} ? {j}|{J} ?| {P}|{J} ?& {P}|{J} || {J}|{J} - {j}|{J} - {k}|{J} - {P}|{J} #- {P}|{J} = {J}|{J}::text|jsonb_typeof({J})|jsonb_array_length({J})|jsonb_set({J}, {P}, {J})|jsonb_set({J}, {P}, {J}, false)|jsonb_insert({J}, {P}, {J})|jsonb_insert({J}, {P}, {J}, true)|jsonb_strip_nulls({J})|{J} < {J}|{J} >= {J}|{J} BETWEEN {J} AND {J}|jsonb_pretty({J})|jsonb_extract_path({J}, {j}, {j})|jsonb_extract_path_text({J}, {j})|({J} -> {j})::bigint|({J} ->> {j})::numeric|({J})::bigint|({J})::boolean|({J})::numeric|({J})['a']|jsonb_exists({J}, {j})
to_jsonb({s})|to_jsonb({n})|to_jsonb({t})|to_jsonb({m})|to_jsonb({y})|to_jsonb({b})|to_jsonb({v})|to_json({f})|to_json({s})|jsonb_build_object({s}, {n})|jsonb_build_object({p}, {S}, 'n', {J})|jsonb_build_array({i}, {s}, {b}, {J})|json_build_object('t', {t}, 'y', {y})|json_build_array({u}, {f}, {x})|row_to_json(odd)
({i}, {s}) = ({i}, {s})|({i}, {i}) < ({i}, {i})|({s}, {n}) IN (({s}, {n}), ({s}, {n}))|({i}, {i}) IS DISTINCT FROM ({i}, {i})|ROW({i}, {s}) IS NULL|CASE {i} WHEN {i} THEN {s} ELSE {p} END|CASE WHEN {b} THEN {n} ELSE {i} END|coalesce({n}, {i})|greatest({i}, {n}, {f})|least({y}, {m})|num_nulls({i}, {s})|num_nonnulls({i}, {s}, {n})|{i} IS DISTINCT FROM {n}|nullif({i}, {n})|{n} = ANY(ARRAY[{n}, {n}])|{i} BETWEEN SYMMETRIC {i} AND {i}|{b} IS DISTINCT FROM {b}|({s} COLLATE "C") < {s}
"""
ALL_FORMS = [
    form
    for line in FORMS.strip().splitlines()
    for form in re.split(r"(?<!\|)\|(?![|&])(?! \{)", line)
]

LISTS = {
    "UNITS": UNITS,
    "FIELDS": FIELDS,
    "PATTERNS": PATTERNS,
    "NUMBERS": NUMBERS,
    "ZONES": ZONES,
    "HOURS": HOURS,
    "CLOCKS": HOURS[:3],
    "SPANS": SPANS,
}
NAMES = {kind: f"c_{kind}{'s' if kind.isupper() else ''}" for kind in VALUES}
TABLE = f"CREATE TABLE odd (id BIGINT PRIMARY KEY, {', '.join(f'{NAMES[k]} {t}' for k, (t, _) in VALUES.items())})"
ROWS = 12


class CallGenerator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def literal(self, kind: str) -> str:
        type_, values = VALUES[kind]
        if self.rng.random() < 0.04:
            return f"NULL::{type_}"
        value = self.rng.choice(values)
        if kind in "ikn" and not value.startswith("-") and "e" not in value:
            return value
        quoted = value.replace("'", "''")
        return f"'{quoted}'" if kind in "plgj" else f"'{quoted}'::{type_}"

    def row(self, key: int) -> str:
        return f"INSERT INTO odd VALUES ({key}, {', '.join(self.literal(k) for k in VALUES)})"

    def value(self, kind: str, columns: int) -> str:
        return NAMES[kind] if self.rng.random() * 100 < columns else self.literal(kind)

    def form(self, form: str, columns: int) -> str:
        filled = re.sub(r"\{(\w)\}", lambda found: self.value(found[1], columns), form)
        return re.sub(r"<([A-Z]+)>", lambda found: f"'{self.rng.choice(LISTS[found[1]])}'", filled)

    def query(self, form: str | None = None) -> str:
        """One call over one row (or of constants alone): its errors are compared as well."""
        columns = self.rng.choice((0, 50, 100))
        call = self.form(form or self.rng.choice(ALL_FORMS), columns)
        row = f" FROM odd WHERE id = {self.rng.randrange(1, ROWS + 1)}" if columns else ""
        if columns and self.rng.random() < 0.2:  # each of its values, at the owners
            return f"SELECT id, {call} FROM odd WHERE id > {self.rng.randrange(ROWS)}"
        return f"SELECT {call}{row}"
