"""A picture of the schema at one moment: tables, indexes, tiers, users, rights and settings.

Built from the system tables when a schema entry is applied; never changed afterwards, so a
statement is planned against one consistent picture.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from cairn.model.members.topology import Tier
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, ForeignKey, Index, Table
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType

ADMIN_ID, GUEST_ID, PUBLIC_ID, SUPER_ID, SERVICE_ID = 1, 0, 2, 31, 32
FIRST_USER_ID = 33  # those before belong to the system
FIRST_ROUTINE_ID = 1 << 40  # ids of tables stay below
ALL_OBJECTS = -1

#: Rights on a table that have a name together. SELECT is READ by another name.
WRITES = ("insert", "update", "delete", "truncate")
SETS = {"write": WRITES}
OF_TABLES = (*WRITES, "references")  # rights that nothing else has
_NAMED_BY = {part: whole for whole, parts in SETS.items() for part in parts}


class User(msgspec.Struct, frozen=True):
    id: int
    name: str
    kind: str = "user"  # user | role
    auth: tuple[str, str] | None = None  # (method, verifier)
    owner: int = ADMIN_ID
    schema_version: int = 0


class Routine(msgspec.Struct, frozen=True):
    """A procedure: its text, which is planned anew with every CALL that is understood."""

    id: int
    name: str
    params: tuple[ColumnType, ...]
    body: str
    owner: int
    schema_version: int


class View(msgspec.Struct, frozen=True):
    """A query with a name. It is read with the rights of whoever reads it."""

    id: int
    name: str
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    body: str
    owner: int
    schema_version: int


class Privilege(msgspec.Struct, frozen=True):
    grantee_id: int
    privilege: str  # read write (or a part of it) references execute login create drop alter
    object_type: str  # table role user universe procedure
    object_id: int  # ALL_OBJECTS: every object of the type


class Catalog(msgspec.Struct, frozen=True, weakref=True, dict=True):
    """Look-ups that SQL and access checks need. `version` changes with every schema entry."""

    version: int = 0
    tables: dict[str, Table] = {}
    indexes: dict[int, tuple[Index, ...]] = {}  # by table id, without the primary key
    tiers: dict[str, Tier] = {}
    users: dict[str, User] = {}
    routines: dict[str, Routine] = {}
    views: dict[str, View] = {}
    types: dict[str, EnumType] = {}
    privileges: frozenset[Privilege] = frozenset()
    settings: dict[tuple[str, str], Any] = {}  # (key, scope) → value; scope "" is the cluster
    problems: tuple[str, ...] = ()  # rows that could not be understood as they are
    is_upgrading: bool = False  # system tables may be changed: only for the governor's upgrade
    beneath: Catalog | None = None  # of a session with tables of its own: what everybody sees
    temps: dict[str, Table] = {}  # those tables, which are among `tables` too
    hides: frozenset[str] = frozenset()  # names that mean something else in this session
    plans: Any = None  # where plans are kept that are this session's alone
    session: int = 0  # its number

    @property
    def public(self) -> Catalog:
        """Without the tables of a session: what views and `public.` mean."""
        return self.beneath or self

    def table(self, name: str) -> Table | None:
        if "." in name and name.startswith("pg_temp."):
            return self.temps.get(name[8:])
        return self.tables.get(name)

    def table_by_id(self, table_id: int) -> Table | None:
        return self.by_id.get(table_id)

    @cached_property
    def by_id(self) -> dict[int, Table]:
        known = {} if self.beneath is None else self.beneath.by_id  # hidden ones too
        own = {table.id: table for table in self.temps.values()}
        return known | {table.id: table for table in self.tables.values()} | own

    @cached_property
    def sharded_tiers(self) -> frozenset[str]:
        """Tiers that have at least one sharded table."""
        shardings = (table.sharding for table in self.tables.values())
        return frozenset(each.tier for each in shardings if each is not None)

    @cached_property
    def _tied(self) -> dict[int, set[int]]:
        """Tables that foreign keys tie to each other directly, in both directions."""
        found: dict[int, set[int]] = {}
        for child in self.tables.values():
            for key in child.foreign_keys:
                found.setdefault(child.id, set()).add(key.parent)
                found.setdefault(key.parent, set()).add(child.id)
        return found

    def kin_of(self, table: Table) -> list[Table]:
        """Tables that are tied to one by foreign keys, in both directions and on and on: what is
        written to one of them looks at the others, or changes them."""
        found, queue = {table.id}, [table.id]
        while queue:
            for other in self._tied.get(queue.pop(), set()) - found:
                known = self.by_id.get(other)
                if known is not None and known.sharding is not None:  # others go on by themselves
                    found.add(other)
                    queue.append(other)
        kin = (self.by_id.get(each) for each in sorted(found - {table.id}))
        return [each for each in kin if each is not None]

    def children_of(self, table_id: int) -> list[tuple[Table, ForeignKey]]:
        tied = (self.by_id.get(each) for each in sorted(self._tied.get(table_id, ())))
        return [
            (child, key)
            for child in tied
            if child is not None
            for key in child.foreign_keys
            if key.parent == table_id
        ]

    def gives_numbers(self, table_id: int) -> bool:
        """A sequence, or a table with an identity column."""
        table = self.by_id.get(table_id)
        return table is not None and any(column.identity for column in table.columns)

    def sharded(self, versions: dict[int, int]) -> dict[int, int]:
        """Of the tables a statement uses, those whose rows live in replicasets."""
        return {
            table_id: version
            for table_id, version in versions.items()
            if (table := self.by_id.get(table_id)) is not None
            and not (table.is_global or table.is_temp)
        }

    @cached_property
    def versions(self) -> dict[int, int]:
        """Of everything that plans are made of, by id."""
        if self.beneath is not None:
            own = {table.id: table.schema_version for table in self.temps.values()}
            return self.beneath.versions | own
        known = {table.id: table.schema_version for table in self.tables.values()}
        known |= {each.id: each.schema_version for each in self.routines.values()}
        known |= {each.id: each.schema_version for each in self.types.values()}
        return known | {each.id: each.schema_version for each in self.views.values()}

    def owner_of(self, kind: str, object_id: int) -> int | None:
        """Who may do anything with a table or a procedure."""
        if kind == "table":
            table = self.table_by_id(object_id)
            return None if table is None else table.owner
        if kind == "procedure":
            return next((r.owner for r in self.routines.values() if r.id == object_id), None)
        if kind == "type":
            return next((t.owner for t in self.types.values() if t.id == object_id), None)
        if kind == "view":
            return next((v.owner for v in self.views.values() if v.id == object_id), None)
        return None

    def first_change(self, versions: dict[int, int]) -> tuple[int, int]:
        """(planned, present) version of the first table that differs; 0 when it is gone."""
        known = self.versions
        for table, version in versions.items():
            if known.get(table) != version:
                return version, known.get(table, 0)
        return 0, 0

    @property
    def default_tier(self) -> str:
        for tier in self.tiers.values():
            if tier.is_default:
                return tier.name
        return "default"

    def setting(self, key: str) -> Any:
        return self.settings.get((key, ""))

    @property
    def int_size(self) -> int:
        """Bytes of what is declared INT or INTEGER."""
        return 4 if self.setting("default_int_size") == 4 else 8

    def user_by_id(self, user_id: int) -> User | None:
        for user in self.users.values():
            if user.id == user_id:
                return user
        return None

    def roles_of(self, user_id: int) -> set[int]:
        """`user_id` itself and every role it has, directly or through another role."""
        found, queue = {user_id}, [user_id]
        while queue:
            holder = queue.pop()
            for right in self.privileges:
                if (
                    right.grantee_id == holder
                    and right.object_type == "role"
                    and right.privilege == "execute"
                    and right.object_id not in found
                ):
                    found.add(right.object_id)
                    queue.append(right.object_id)
        return found

    def is_super(self, user_id: int) -> bool:
        """Whether nothing is refused to it: the admin, and whoever has the role super."""
        return user_id in (ADMIN_ID, SERVICE_ID) or SUPER_ID in self.roles_of(user_id)

    def may_log_in(self, user_id: int) -> bool:
        return Privilege(user_id, "login", "universe", 0) in self.privileges

    def allows(self, user_id: int, privilege: str, object_type: str, object_id: int) -> bool:
        """Whether the user, or a role it has, holds the right on the object or on all of them.

        A right on all objects leaves out what would make its holder an administrator: tables of
        the system, users of the system and those who are super. To create is a right to make new
        ones: an index of somebody's table needs the right on that table.
        """
        holders = self.roles_of(user_id)
        if user_id in (ADMIN_ID, SERVICE_ID) or SUPER_ID in holders:
            return True
        objects = [(object_type, object_id)]
        is_new = privilege != "create" or object_id == ALL_OBJECTS
        if is_new and not self._is_kept_apart(object_type, object_id):
            objects += [(object_type, ALL_OBJECTS), ("universe", 0)]
        names = {privilege, _NAMED_BY.get(privilege, privilege)}
        return any(
            Privilege(holder, name, kind, object_) in self.privileges
            for holder in holders
            for name in names
            for kind, object_ in objects
        )

    def _is_kept_apart(self, object_type: str, object_id: int) -> bool:
        if object_id == ALL_OBJECTS:
            return False
        if object_type == "table":
            return object_id < FIRST_USER_TABLE_ID
        if object_type in ("user", "role"):
            return object_id < FIRST_USER_ID or self.is_super(object_id)
        return False
