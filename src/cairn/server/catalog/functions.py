"""Functions that queries on PostgreSQL's catalogue call, over one picture of ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import apsw

import cairn
from cairn.model.errors import UndefinedFunction, UndefinedTable
from cairn.model.quoting import identifier
from cairn.model.settings import parameters
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Index, Table
from cairn.model.types.interval_text import parse_interval
from cairn.node.watching.activity import Asker, Signals
from cairn.server.catalog.foreign_keys import definition as definition_of_key
from cairn.server.catalog.privileges import Privileges
from cairn.server.catalog.schema import DATABASE, TABLES, TEMP_SCHEMA, TYPES
from cairn.server.catalog.sequences import sequences
from cairn.server.catalog.sizes import pretty
from cairn.server.catalog.tables import (
    about,
    all_indexes,
    check_oid,
    definition,
    distribution,
    index_oid,
    is_primary,
    key_oid,
    sequence_oid,
    view_oid,
)
from cairn.sql.functions.functions import SCALARS
from cairn.sql.functions.lists import series
from cairn.sql.functions.numbers import known_by_name
from cairn.sql.functions.patterns import regexp
from cairn.sql.functions.splitting import c_format
from cairn.sql.functions.texts import c_like

NUMERIC, VARCHAR = 1700, 1043
STARTED_US = int(time.time() * 1e6)  # this is imported when an instance opens its doors

_ARRAY_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)')
CATALOG_OID = 12_000  # from here on, PostgreSQL's own tables
#: By which `classoid` names them, in tools too.
_POSTGRES_OIDS = {"pg_class": 1259, "pg_type": 1247, "pg_proc": 1255, "pg_constraint": 2606}
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_$]*")
_NOTHING = (
    "pg_get_triggerdef pg_get_partkeydef "
    "pg_get_statisticsobjdef_columns pg_tablespace_location "
    "shobj_description pg_get_function_result pg_get_function_arguments inet_server_addr "
    "pg_get_function_identity_arguments pg_get_function_sqlbody "
    "pg_get_functiondef pg_options_to_table pg_stat_get_numscans pg_get_statisticsobjdef "
    "pg_describe_object pg_last_wal_receive_lsn pg_last_wal_replay_lsn "
    "pg_last_xact_replay_timestamp"
)
_TRUE = (
    "pg_type_is_visible pg_function_is_visible "
    "pg_statistics_obj_is_visible pg_conversion_is_visible pg_opclass_is_visible "
    "pg_opfamily_is_visible pg_operator_is_visible pg_collation_is_visible pg_ts_config_is_visible "
    "pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible"
)
_FALSE = (
    "pg_relation_is_publishable pg_is_other_temp_schema row_security_active pg_is_in_recovery "
    "pg_relation_is_updatable pg_is_wal_replay_paused pg_is_in_backup"
)


#: The same as outside of the catalogues: people shorten and cut what sessions and tables say.
_OF_TEXTS = (
    *("left", "right", "lpad", "rpad", "split_part", "regexp_replace", "initcap"),
    *("translate", "starts_with", "quote_literal", "reverse", "repeat", "md5", "ascii", "chr"),
)


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whose arguments nobody has looked at: `known_by_name` tells of them."""
    inner = getattr(function, "__wrapped__", function)
    return lambda *args: None if None in args else inner(*args)


def _text(value: Any) -> str | None:
    """Columns of the catalogue have no types here: a number is looked at as its text."""
    return value if value is None or isinstance(value, str) else str(value)


_PROPERTIES = {
    **dict.fromkeys(("asc", "nulls_last", "orderable", "search_array", "search_nulls"), 1),
    **dict.fromkeys(("desc", "nulls_first", "distance_orderable", "returnable"), 0),
}


class Functions:
    """The functions of one picture. `asker` is whoever asks at the moment."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.asker = Asker()
        self.signals: Signals | None = None
        self._tables = catalog.by_id
        self._checks = {
            check_oid(table.id, at): check.text
            for table in self._tables.values()
            for at, check in enumerate(table.checks)
        }
        self._keys = {
            key_oid(table.id, at): (table, key)
            for table in self._tables.values()
            for at, key in enumerate(table.foreign_keys)
        }
        self._indexes: dict[int, tuple[Table, Index]] = {
            index_oid(table.id, index.id): (table, index)
            for table in self._tables.values()
            for index in all_indexes(catalog, table)
        }

    def _format_type(self, oid: Any, *modifier: Any) -> str | None:
        for each in self._catalog.types.values():
            if oid in (each.oid, each.oid + 1):
                return f"{quoted(each.name)}{'[]' if oid != each.oid else ''}"
        return _format_type(oid, *modifier)

    def _regtype(self, value: Any) -> int | None:
        name = str(value).rpartition(".")[2]
        name = name.strip('"') if name.startswith('"') else name.lower()
        found = self._catalog.types.get(name.removesuffix("[]"))
        if found is None or isinstance(value, int):
            return _regtype(value)
        return found.oid + name.endswith("[]")

    def register(self, connection: apsw.Connection) -> None:
        for name, function in self._all().items():
            connection.create_scalar_function(name, known_by_name(name, function), -1)
        connection.create_aggregate_function("array_agg", _ArrayAgg, -1)
        connection.create_aggregate_function("string_agg", _StringAgg, -1)
        connection.create_aggregate_function("bool_and", _BoolAnd, 1)

    def names(self) -> set[str]:
        return {*self._all(), "array_agg", "string_agg", "bool_and"}

    def _all(self) -> dict[str, Callable[..., Any]]:
        return {**_PLAIN, **self._of_the_catalogue(), **self._of_the_asker()}

    def _of_the_catalogue(self) -> dict[str, Callable[..., Any]]:
        return {
            **Privileges(self._catalog, lambda: self.asker, self._regclass).functions(),
            "pg_table_is_visible": self._is_visible,
            "pg_my_temp_schema": lambda: TEMP_SCHEMA if self._catalog.temps else 0,
            "pg_get_ruledef": self._distribution,
            "current_setting": lambda name, *_: parameters.default(self._catalog, name or ""),
            "format_type": self._format_type,
            "to_regtype": self._regtype,
            "pg_regtype": self._regtype,
            "pg_regtype_name": lambda oid: self._format_type(self._regtype(oid)),
            "to_regclass": self._regclass,
            "pg_regclass": self._named_regclass,
            "pg_regclass_name": lambda oid: self._relation_name(self._regclass(oid)),
            "pg_get_userbyid": self._user_name,
            "pg_get_indexdef": self._index_definition,
            "pg_get_constraintdef": self._constraint,
            "pg_get_serial_sequence": self._serial_sequence,
            "pg_index_column_has_property": self._index_property,
            "pg_get_viewdef": self._view_text,
            "obj_description": lambda oid, *_: (
                about(self._tables[oid]) if oid in self._tables else None
            ),
            "col_description": self._comment,
        }

    def _of_the_asker(self) -> dict[str, Callable[..., Any]]:
        return {
            "current_user": lambda: self.asker.user,
            "session_user": lambda: self.asker.user,
            "pg_backend_pid": lambda: self.asker.pid,
            "pg_cancel_backend": lambda pid: self._may_signal().cancel(pid),
            "pg_terminate_backend": lambda pid, *wait: self._may_signal().terminate(pid),
        }

    def _may_signal(self) -> Signals:
        assert self.signals is not None, "a query is described without being run"
        return self.signals

    def _comment(self, oid: Any, at: Any) -> str | None:
        """Of a column, by its number from 1."""
        table = self._tables.get(oid)
        if table is None or not isinstance(at, int) or not 1 <= at <= len(table.columns):
            return None
        return table.columns[at - 1].comment or None

    def _user_name(self, oid: Any) -> str:
        user = self._catalog.user_by_id(oid)
        return f"unknown (OID={oid})" if user is None else user.name

    def _is_visible(self, oid: Any, *_: Any) -> int:
        """A temporary table hides one of the same name."""
        table = self._tables.get(oid)
        is_hidden = table is not None and table.name in self._catalog.hides and not table.is_temp
        return int(not is_hidden)

    def _regclass(self, value: Any) -> int | None:
        """An oid, its digits, or a name that may be quoted and may have a schema."""
        if value is None or isinstance(value, int):
            return value
        if str(value).isdecimal():
            return int(value)
        name = _last_name(str(value))
        is_public = self._catalog.hides and str(value).startswith("public.")
        table = (self._catalog.public if is_public else self._catalog).table(name)
        if table is not None:
            return table.id
        for each in sequences(self._catalog):
            if each.name == name:
                return sequence_oid(each.table)
        return next((oid for oid, (_, index) in self._indexes.items() if index.name == name), None)

    def _serial_sequence(self, table: Any, column: Any, *_: Any) -> str | None:
        """As its name is written, with the schema before it."""
        oid = self._regclass(table)
        for each in sequences(self._catalog):
            if each.table.id == oid and each.table.columns[each.at - 1].name == column:
                return f"public.{quoted(each.name)}"
        return None

    def _index_property(self, oid: Any, at: Any, word: Any) -> int | None:
        """All columns of all indexes are alike: ascending, NULLs last as PostgreSQL sorts them."""
        _, index = self._indexes.get(oid, (None, None))
        if index is None or not isinstance(at, int) or not 1 <= at <= len(index.parts):
            return None
        return _PROPERTIES.get(str(word).lower())

    def _named_regclass(self, value: Any) -> int | None:
        """A cast: unlike `to_regclass`, a name that nothing has is an error."""
        found = self._regclass(value)
        if found is not None or value is None:
            return found
        name = _last_name(str(value))
        if name in TABLES:
            return _POSTGRES_OIDS.get(name) or CATALOG_OID + list(TABLES).index(name)
        raise UndefinedTable(f'relation "{value}" does not exist')

    def _relation_name(self, oid: int | None) -> str | None:
        if oid is None:
            return None
        if oid in self._tables:
            return quoted(self._tables[oid].name)
        for each in sequences(self._catalog):
            if sequence_oid(each.table) == oid:
                return quoted(each.name)
        return quoted(self._indexes[oid][1].name) if oid in self._indexes else str(oid)

    def _index_definition(self, oid: Any, column: int = 0, *_: Any) -> str | None:
        found = self._indexes.get(oid)
        if found is None:
            return None
        table, index = found
        if not column:
            return definition(table, index)
        return index.words[column - 1] if column <= len(index.words) else None

    def _distribution(self, oid: Any, *_: Any) -> str | None:
        """psql's \\d prints what follows CREATE RULE: the place to say where the rows are."""
        table = self._tables.get(oid)
        return None if table is None else f"CREATE RULE {distribution(table)}"

    def _view_text(self, which: Any, *_: Any) -> str | None:
        """For its owner and administrators: there may be values in it."""
        for view in self._catalog.views.values():
            if which in (view.name, f"public.{view.name}", view_oid(view), str(view_oid(view))):
                is_told = view.owner == self.asker.user_id or self._catalog.is_super(
                    self.asker.user_id
                )
                return f" {view.body};" if is_told else None
        if isinstance(which, str) and not which.isdigit():
            raise UndefinedTable(f'relation "{which}" does not exist')
        return None

    def _constraint(self, oid: Any, *_: Any) -> str | None:
        found = self._indexes.get(oid)
        if oid in self._keys:
            return definition_of_key(self._catalog, *self._keys[oid], quoted)
        if oid in self._checks:
            return f"CHECK ({self._checks[oid]})"
        if found is None:
            return None
        kind = "PRIMARY KEY" if is_primary(*found) else "UNIQUE"
        return f"{kind} ({', '.join(str(quoted(name)) for name in found[1].columns)})"


def items(array: Any) -> list[str]:
    """`{a,"b c"}`, or an int2vector's `1 2`, taken apart."""
    text = str(array)
    if not text.startswith("{"):
        return text.split()
    return [str(quoted_ or plain) for quoted_, plain in _ARRAY_ITEM.findall(text)]


def _item(array: Any, at: Any) -> str | None:
    """From 0."""
    found = [] if array is None else items(array)
    return found[int(at)] if at is not None and 0 <= int(at) < len(found) else None


def _subscripted(array: Any, at: Any) -> str | None:
    """`a[1]` is the first of an array; in `indkey`, which is a vector, `indkey[0]` is."""
    is_array = str(array).startswith("{")
    return None if array is None or at is None else _item(array, int(at) - is_array)


def _nth(array: Any, at: int) -> Any:
    found = _item(array, at)
    return int(found) if found is not None and found.lstrip("-").isdecimal() else found


def _length(array: Any) -> int:
    return 0 if array is None else len(items(array))


def quoted(name: Any) -> str | None:
    if name is None:
        return None
    if _PLAIN_NAME.fullmatch(str(name)):
        return str(name)
    return identifier(name)


def _matches(pattern: Any, text: Any, flags: str) -> int | None:
    if pattern is None or text is None:
        return None
    return int(regexp(str(pattern), flags, captures=False).search(str(text)) is not None)


def _substring(text: Any, start: Any, length: Any = None) -> Any:
    if text is None or start is None:
        return None
    if isinstance(start, str):
        found = regexp(start).search(str(text))
        return None if found is None else found[1] if found.groups() else found[0]
    begin = max(start - 1, 0)
    return str(text)[begin : None if length is None else max(start - 1 + length, 0)]


def _format_type(oid: Any, modifier: Any = None, *_: Any) -> str | None:
    if oid is None:
        return None
    if oid in TYPES:
        return _modified(TYPES[oid][0], oid, modifier)
    return next((f"{each[0]}[]" for each in TYPES.values() if each[4] == oid), "???")


def _modified(name: str, oid: int, modifier: Any) -> str:
    """`numeric(10,2)`: the sizes are packed as PostgreSQL packs them."""
    if not isinstance(modifier, int) or modifier < 0:
        return name
    if oid == NUMERIC:
        sizes = modifier - 4
        return f"{name}({sizes >> 16},{sizes & 0xFFFF})"
    if oid == VARCHAR:
        return f"{name}({modifier - 4})"
    first, _, rest = name.partition(" ")  # timestamp(3) with time zone
    return f"{first}({modifier}) {rest}".rstrip()


def _regtype(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    name = str(value).rpartition(".")[2].strip('"').lower()
    for oid, (shown, internal, *_, array) in TYPES.items():
        if name in (shown, internal):
            return oid
        if name in (f"{shown}[]", f"{internal}[]", f"_{internal}"):
            return array
    return None


def _regproc(value: Any) -> Any:
    """There are no functions with a body to look at; those that read types are names."""
    if value is None or isinstance(value, int) or str(value).isdigit():
        return value
    name = str(value).removeprefix("pg_catalog.").partition("(")[0]  # with its arguments, or not
    if name == "array_in" or name in {f"{kind}in" for _, kind, *_ in TYPES.values()}:
        return name
    raise UndefinedFunction(f'function "{value}" does not exist')


class _ArrayAgg:
    def __init__(self) -> None:
        self._items: list[str] = []

    def step(self, value: Any = None, *_: Any) -> None:
        if value is None:
            self._items.append("NULL")
        elif re.fullmatch(r"[\w.-]+", str(value)):
            self._items.append(str(value))
        else:
            inner = str(value).replace("\\", "\\\\").replace('"', '\\"')
            self._items.append(f'"{inner}"')

    def final(self) -> str:
        return "{" + ",".join(self._items) + "}"


class _BoolAnd:
    def __init__(self) -> None:
        self._all: int | None = None

    def step(self, value: Any = None, *_: Any) -> None:
        if value is not None:
            self._all = int(bool(value) and self._all != 0)

    def final(self) -> int | None:
        return self._all


class _StringAgg:
    def __init__(self) -> None:
        self._items: list[str] = []
        self._separator = ","

    def step(self, value: Any = None, separator: Any = ",", *_: Any) -> None:
        self._separator = str(separator)
        if value is not None:
            self._items.append(str(value))

    def final(self) -> str | None:
        return self._separator.join(self._items) if self._items else None


_NAME_PARTS = re.compile(r'"((?:[^"]|"")*)"|[^".]+')


def _last_name(text: str) -> str:
    """Of a name that may be quoted and may have a schema."""
    parts = list(_NAME_PARTS.finditer(text))
    if not parts:
        return text
    quoted: str | None = parts[-1][1]
    return str(parts[-1][0]).lower() if quoted is None else quoted.replace('""', '"')


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


#: What needs to know neither the catalogue nor who asks.
_PLAIN: dict[str, Callable[..., Any]] = {
    **{name: _always(None) for name in _NOTHING.split()},
    **{name: _always(1) for name in _TRUE.split()},
    **{name: _always(0) for name in _FALSE.split()},
    # SQLite's own knows no backslash, and takes `A` for `a`.
    "like": lambda pattern, text, *escape: c_like(*map(_text, (text, pattern, *escape))),
    "pg_get_expr": lambda text, *_: text,
    "regexp": lambda pattern, text: _matches(pattern, text, ""),
    "iregexp": lambda pattern, text: _matches(pattern, text, "i"),
    "pg_any": lambda value, array: None if array is None else int(str(value) in items(array)),
    "array_to_string": lambda array, separator, *_: (
        None if array is None else separator.join(items(array))
    ),
    "array_length": lambda array, *_: None if array is None else len(items(array)) or None,
    "array_upper": lambda array, *_: None if array is None else len(items(array)) or None,
    "pg_item": _item,
    "pg_subscripted": _subscripted,
    "pg_nth": _nth,
    "pg_subscript": lambda array, at: (
        None if _nth(array, at) is None else at + str(array).startswith("{")
    ),
    "pg_generate_subscripts": lambda array, _: json.dumps(
        [at + str(array).startswith("{") for at in range(_length(array))]
    ),
    "pg_place": lambda array, at: None if _nth(array, at) is None else at + 1,
    "pg_places": lambda *arrays: json.dumps([*range(max(map(_length, arrays)))]),
    "pg_unnest": lambda array: json.dumps([] if array is None else items(array)),
    "pg_generate_series": lambda first, last: (
        "[]" if first is None or last is None else series(int(first), int(last), 1)
    ),
    "substring": _substring,
    "pg_regproc": _regproc,
    "pg_regprocedure": _regproc,
    "getdatabaseencoding": lambda: "UTF8",
    "pg_char_to_encoding": lambda *_: 6,
    "pg_regnamespace": lambda value: (
        {"pg_catalog": 11, "public": 2200}.get(value, value) if isinstance(value, str) else value
    ),
    "pg_encoding_to_char": lambda *_: "UTF8",
    "pg_size_pretty": pretty,
    "quote_ident": quoted,
    "format": lambda *given: c_format(*(None if each is None else str(each) for each in given)),
    "json_build_object": lambda *pairs: json.dumps(
        dict(zip(pairs[::2], pairs[1::2], strict=False))
    ),
    **{name: _strict(SCALARS[f"c_{name}"]) for name in _OF_TEXTS},
    "strpos": _strict(lambda text, part: (_text(text) or "").find(_text(part) or "") + 1),
    "btrim": _strict(lambda text, of=" ": (_text(text) or "").strip(of)),
    "greatest": lambda *values: max((each for each in values if each is not None), default=None),
    "least": lambda *values: min((each for each in values if each is not None), default=None),
    "pg_postmaster_start_time": lambda: STARTED_US,
    "pg_conf_load_time": lambda: STARTED_US,
    "now": lambda: int(time.time() * 1e6),
    "clock_timestamp": lambda: int(time.time() * 1e6),
    "pg_interval_us": lambda text: None if text is None else parse_interval(str(text)).length_us,
    "current_schema": lambda: "public",
    "current_schemas": lambda all_: "{pg_catalog,public}" if all_ else "{public}",
    "current_database": lambda: DATABASE,
    "current_catalog": lambda: DATABASE,
    "version": lambda: f"PostgreSQL 15.0 (Cairn {cairn.__version__})",
}
