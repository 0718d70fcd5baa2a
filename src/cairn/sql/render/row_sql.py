"""SQLite's text for changing single physical rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cairn.model.errors import CardinalityViolation
from cairn.model.tables.schema import (
    BUCKET_COLUMN,
    Table,
    compared_column,
    compared_values,
    physical_column,
)
from cairn.model.types.values import to_physical
from cairn.sql.bind.changes import Conflict, OnConflict
from cairn.sql.ir import Item, Param, walk
from cairn.sql.plans import Row
from cairn.sql.render.render import Renderer, literal
from cairn.sql.render.slots import Params, Slots


def insert_sql(table: Table, on_conflict: OnConflict, values: Sequence[str] | None = None) -> str:
    """INSERT of one physical row. DO REPLACE answers to the key; other unique indexes fail."""
    columns = table.physical_columns
    shown = values or [f"?{at + 1}" for at in range(len(columns))]
    text = f"INSERT INTO {table.physical_name} ({', '.join(columns)}) VALUES ({', '.join(shown)})"
    if on_conflict == "nothing":
        return text + " ON CONFLICT DO NOTHING"
    if on_conflict == "replace":
        key = key_columns(table)
        sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
        what = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
        return f"{text} ON CONFLICT ({', '.join(key)}) {what}"
    return text


def upsert_sql(
    table: Table, conflict: Conflict, slots: Slots, values: Sequence[str] | None = None
) -> str:
    """INSERT with whatever ON CONFLICT says; `slots` take the parameters of its SET and WHERE."""
    if conflict.columns is None:
        return insert_sql(table, conflict.action, values)
    names = [compared_column(table, table.position(name)) for name in conflict.columns]
    if conflict.columns == table.primary_key:
        names = key_columns(table)
    text = f"{insert_sql(table, 'fail', values)} ON CONFLICT ({', '.join(names)})"
    if conflict.action == "nothing":
        return f"{text} DO NOTHING"
    renderer = Renderer(slots)
    renderer.aliases = {conflict.rel: table.physical_name, conflict.excluded: "excluded"}
    sets = ", ".join(f"{physical_column(at)} = {renderer.expr(e)}" for at, e in conflict.sets)
    where = f" WHERE {renderer.expr(conflict.where)}" if conflict.where is not None else ""
    return f"{text} DO UPDATE SET {sets}{where}"


def key_columns(table: Table) -> list[str]:
    names = [physical_column(at) for at in table.key_positions]
    return names if table.is_global else [BUCKET_COLUMN, *names]


def delete_sql(table: Table, seen: Sequence[int]) -> str:
    """By key, if the row has still the values that follow the key: those of the columns `seen`."""
    keys = key_columns(table)
    where = [f"{name} = ?{n}" for n, name in enumerate(keys, 1)]
    where += _still(seen, len(keys) + 1)
    return f"DELETE FROM {table.physical_name} WHERE {' AND '.join(where)}"


def update_sql(table: Table, changed: Sequence[int], seen: Sequence[int]) -> str:
    """Its rows begin with bucket and key, as those of every statement by key. What `changed`
    becomes follows, then what `seen` has to be still."""
    keys = [f"{name} = ?{n}" for n, name in enumerate(key_columns(table), 1)]
    sets = [f"{physical_column(at)} = ?{n}" for n, at in enumerate(changed, len(keys) + 1)]
    where = [*keys, *_still(seen, len(keys) + len(changed) + 1)]
    return f"UPDATE {table.physical_name} SET {', '.join(sets)} WHERE {' AND '.join(where)}"


def _still(seen: Sequence[int], first: int) -> list[str]:
    return [f"{physical_column(at)} IS ?{n}" for n, at in enumerate(seen, first)]


def check_each_once(conflict: Conflict, table: Table, rows: Iterable[Row]) -> None:
    """DO UPDATE meets a row once; twice would leave it to chance which of them wins."""
    if conflict.action != "update":
        return
    places = [table.position(name) for name in conflict.columns or ()]
    seen: set[Any] = set()
    for row in rows:
        key = compared_values(table, places, row)
        if None not in key and key in seen:
            raise CardinalityViolation(
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
                hint="Ensure that no rows proposed for insertion within the same command have "
                "duplicate constrained values.",
            )
        seen.add(key)


class _Literals(Slots):
    """Parameters as literals: RETURNING is added to statements whose `?n` are taken."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        self._params = params

    def param(self, param: Param) -> str:
        assert param.type is not None
        return literal(to_physical(param.type, self._params[param.number - 1]))


def returning_clause(table: Table, items: tuple[Item, ...], *, keyed: bool) -> Callable[..., str]:
    """Parameters to ` RETURNING …`; with `keyed` the row's key follows what was asked for."""
    rels = {node.rel for node in walk(tuple(items)) if hasattr(node, "rel")}
    keys = key_columns(table) if keyed else []

    def text(params: Params) -> str:
        renderer = Renderer(_Literals(params))
        renderer.aliases = dict.fromkeys(rels, "")
        shown = [renderer.expr(item.expr) for item in items]
        return f" RETURNING {', '.join((*shown, *keys))}"

    if any(isinstance(node, Param) for node in walk(tuple(items))):
        return text
    always = text(())
    return lambda params: always
