"""Plans of what changes no rows: the schema, users and rights, settings of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from cairn.model.log.ops import Ddl
from cairn.model.tables.catalog import Catalog


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
    timeout: float | None = None
    wait_applied: Literal["globally", "locally"] = "globally"


@dataclass(frozen=True)
class AlterSystemPlan:
    key: str | None  # None: every setting (RESET ALL)
    value: Any = None
    default: bool = False
    scope: str | None = None  # a tier; None: the cluster; "*": every tier
    timeout: float | None = None
