"""`has_table_privilege` and its kind: what somebody may do, by the rules that statements obey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.model.errors import (
    CairnError,
    InvalidParameter,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
)
from cairn.model.tables.catalog import ALL_OBJECTS, Catalog, View
from cairn.node.watching.activity import Asker
from cairn.server.catalog.schema import DATABASE
from cairn.server.catalog.tables import view_oid
from cairn.sql.api import prepare

#: PostgreSQL's words for rights on a table, as we have them. None: nobody has it but by owning it.
_OF_TABLES: dict[str, str | None] = {
    "select": "read",
    **{name: name for name in ("insert", "update", "delete", "truncate", "references")},
    **dict.fromkeys(("trigger", "maintain")),
}
NAMES = (
    *("has_table_privilege", "has_any_column_privilege", "has_column_privilege"),
    *("has_schema_privilege", "has_database_privilege", "pg_has_role"),
)
Relation = Callable[[Any], int | None]


class Privileges:
    """Of one picture. `asker` is whoever asks at the moment, `relation` finds tables by name."""

    def __init__(self, catalog: Catalog, asker: Callable[[], Asker], relation: Relation) -> None:
        self._catalog, self._asker, self._relation = catalog, asker, relation
        self._views = {view_oid(view): view for view in catalog.views.values()}

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "has_table_privilege": self._told(2, self._on_table),
            "has_any_column_privilege": self._told(2, self._on_table),
            "has_column_privilege": self._told(3, self._on_column),
            "has_schema_privilege": self._told(2, self._on_schema),
            "has_database_privilege": self._told(2, self._on_database),
            "pg_has_role": self._told(2, self._of_role),
        }

    def _told(self, count: int, work: Callable[..., bool | None]) -> Callable[..., Any]:
        """With a user before the other arguments, or about whoever asks."""

        def function(*given: Any) -> int | None:
            if not count <= len(given) <= count + 1:
                raise InvalidParameter(f"{count} or {count + 1} arguments are needed")
            if None in given:
                return None
            whose = self._asker().user_id if len(given) == count else self._user(given[0])
            found = work(whose, *given[-count:])
            return None if found is None else int(found)

        return function

    def _user(self, value: Any) -> int:
        if isinstance(value, int):
            return value
        user = self._catalog.users.get(str(value))
        if user is None:
            raise UndefinedObject(f'role "{value}" does not exist')
        return user.id

    def _on_table(self, whose: int, which: Any, words: str) -> bool | None:
        """None for a number that no table has: it may have been dropped meanwhile."""
        wanted = _read(words, _OF_TABLES)
        catalog, oid = self._catalog, self._found(which)
        if oid is None and not isinstance(which, int):
            raise UndefinedTable(f'relation "{which}" does not exist')
        if oid in self._views:
            return any(self._may_use(whose, self._views[oid], right) for right in wanted)
        table = None if oid is None else catalog.table_by_id(oid)
        if table is None:
            return None
        if table.owner == whose or catalog.is_super(whose):
            return True
        return any(right and catalog.allows(whose, right, "table", table.id) for right in wanted)

    def _found(self, which: Any) -> int | None:
        oid = self._relation(which)
        if oid is not None:
            return oid
        name = str(which).removeprefix("public.")
        return next((oid for oid, view in self._views.items() if view.name == name), None)

    def _may_use(self, whose: int, view: View, right: str | None) -> bool:
        """A view is read with the rights on what it reads."""
        if right != "read":
            return False
        try:
            prepare(view.body, self._catalog, user_id=whose).check_rights(whose, self._catalog)
        except CairnError:
            return False
        return True

    def _on_column(self, whose: int, which: Any, column: Any, words: str) -> bool | None:
        """There are no rights on columns: those on the table count."""
        oid = self._found(which)
        table = None if oid is None else self._catalog.table_by_id(oid)
        names = [] if table is None else [each.name for each in table.columns]
        if names and isinstance(column, str) and column not in names:
            raise UndefinedColumn(f'column "{column}" of relation "{which}" does not exist')
        return self._on_table(whose, which, words)

    def _on_schema(self, whose: int, _: Any, words: str) -> bool:
        wanted = _read(words, {"usage": "usage", "create": "create"})
        may_create = self._catalog.allows(whose, "create", "table", ALL_OBJECTS)
        return "usage" in wanted or may_create

    def _on_database(self, whose: int, which: Any, words: str) -> bool | None:
        if isinstance(which, str) and which != DATABASE:
            raise UndefinedObject(f'database "{which}" does not exist')
        wanted = _read(words, {"connect": "connect", "create": "", "temporary": "", "temp": ""})
        catalog = self._catalog
        return "connect" in wanted and (catalog.may_log_in(whose) or catalog.is_super(whose))

    def _of_role(self, whose: int, role: Any, words: str) -> bool:
        _read(words, {"usage": "", "member": "", "set": ""})
        return self._catalog.is_super(whose) or self._user(role) in self._catalog.roles_of(whose)


def _read(words: Any, known: dict[str, Any]) -> list[Any]:
    """`SELECT, INSERT WITH GRANT OPTION`: any of them is enough."""
    found = []
    for word in str(words).lower().split(","):
        name = word.strip().removesuffix("with grant option").strip()
        if name not in known:
            raise InvalidParameter(f'unrecognized privilege type: "{word.strip()}"')
        found.append(known[name])
    return found
