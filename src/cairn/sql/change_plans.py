"""Plans of what changes no rows: the schema, users and rights, settings of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from cairn.model.log.ops import Ddl
from cairn.model.tables.catalog import Catalog
from cairn.model.types.enums import EnumType
from cairn.model.types.values import OIDS, ColumnType
from cairn.model.types.widths import Width

#: PRESERVE ROWS, DELETE ROWS, DROP.
OnCommit = Literal["preserve", "delete", "drop"]


@dataclass(frozen=True)
class DdlPlan:
    """`build` gives None when IF [NOT] EXISTS leaves nothing to do."""

    build: Callable[[Catalog, int, int], Ddl | None]
    wait_applied: Literal["globally", "locally"] = "globally"
    timeout: float | None = None
    notices: tuple[str, ...] = ()
    skipped: str = ""  # what to say when there is nothing to do
    more: tuple[DdlPlan, ...] = ()  # one after the other: DROP TABLE a, b
    fill: str = ""  # CREATE TABLE AS: what puts the rows into it
    temp: OnCommit | None = None  # CREATE TEMP TABLE: what a COMMIT does to it


@dataclass(frozen=True)
class AclPlan:
    """Users, roles and rights. Names are resolved by the one who runs it, at its position."""

    action: str  # create_user alter_user drop_user create_role drop_role grant revoke …
    name: str = ""
    password: str | None = field(default=None, repr=False)
    method: str | None = None
    if_exists: bool = False
    login: bool | None = None
    new_name: str | None = None
    privilege: str | None = None
    more: tuple[str, ...] = ()  # further rights of the same statement
    object_type: str | None = None
    object_name: str | None = None  # None: all objects of the type
    grantee: str | None = None
    every: str = ""  # "tables" or "sequences": all that there are, at its position
    also: tuple[AclPlan, ...] = ()  # the same for other objects and grantees
    timeout: float | None = None
    wait_applied: Literal["globally", "locally"] = "globally"


@dataclass(frozen=True)
class AlterSystemPlan:
    key: str | None  # None: every setting (RESET ALL)
    value: Any = None
    default: bool = False
    scope: str | None = None  # a tier; None: the cluster; "*": every tier
    timeout: float | None = None


@dataclass(frozen=True)
class OutColumn:
    name: str
    type: ColumnType
    scale: int | None = None  # digits after the point that a DECIMAL is shown with
    enum: EnumType | None = None  # that a text is a label of
    #: A column of a table as it is: the table's id, the column's number and its type modifier.
    origin: tuple[int, int, int] | None = field(default=None, compare=False)
    told_oid: int = 0  # when clients are told another type than its own
    narrow: Width | None = None  # of a whole number, or of those in a list

    @property
    def known(self) -> int | EnumType | Width | None:
        """What a statement that goes on with its values knows of them: see `scales`."""
        return self.enum or self.narrow or self.scale

    def code(self, format_: int) -> int:
        """A format code as `RowShape` has it."""
        return self.narrow.value if format_ and self.narrow is not None else format_

    @property
    def oid(self) -> int:
        """The number of its type that clients are told."""
        if self.narrow is not None:
            return self.narrow.oid(self.type)
        return self.told_oid or (OIDS[self.type] if self.enum is None else self.enum.oid)


@dataclass(frozen=True)
class RoutinePlan:
    """A procedure, a view or a type is made, changed, renamed or dropped."""

    action: Literal["create", "rename", "drop", "add"]
    name: str
    kind: Literal["procedure", "view", "type"] = "procedure"
    columns: tuple[OutColumn, ...] = ()  # of a view
    params: tuple[ColumnType, ...] | None = None  # None: not named
    body: str = ""
    new_name: str = ""
    labels: tuple[str, ...] = ()  # of a type, or the one that is added
    beside: tuple[str, str] = ("", "")  # before or after, and which label
    replaces: bool = False  # CREATE OR REPLACE
    if_exists: bool = False
    timeout: float | None = None
    wait_applied: Literal["globally", "locally"] = "globally"

    @property
    def skipped(self) -> str:
        """What is said when IF [NOT] EXISTS left nothing to do."""
        if self.action == "add":
            return f'enum label "{self.labels[0]}" already exists, skipping'
        words = "already exists" if self.action == "create" else "does not exist"
        return f'{self.kind} "{self.name}" {words}, skipping'
