"""What all schema changes share: their tail clauses, rights, and the look-up of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from cairn.model.errors import (
    AccessDenied,
    CairnError,
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedTable,
    Unsupported,
)
from cairn.model.log.ops import (
    Ddl,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.sql.change_plans import OnCommit
from cairn.sql.plans import AclPlan, AlterSystemPlan, DdlPlan, Right, SessionPlan
from cairn.sql.statements.cursor import Cursor

MAX_TABLES, MAX_INDEXES = 65000, 128
MAX_COLUMNS = 1600  # as in PostgreSQL
Build = Callable[[Catalog, int, int], Ddl | None]


def check_own_name(name: str, catalog: Catalog | None = None) -> None:
    """Tables of the system that are to come would not find their names free. They come by the
    governor's upgrades, which may give such names."""
    is_upgrade = catalog is not None and catalog.is_upgrading
    if name.startswith(("_pico_", "_cairn_", "pg_")) and not is_upgrade:
        raise Unsupported(f"names like {name} belong to the system")


def accept_temp(cursor: Cursor) -> bool:
    """`CREATE [GLOBAL | LOCAL] TEMP` of a table; what else may be temporary elsewhere is not."""
    begun = cursor.at
    if cursor.accept("create"):
        cursor.accept_one("global", "local")  # the standard's words: they mean nothing
        if cursor.accept_one("temp", "temporary") and cursor.looking_at("table"):
            return True
    cursor.at = begun
    return False


@dataclass(frozen=True)
class DdlStatement:
    tag: str
    plan: DdlPlan
    rights: tuple[Right, ...]
    tables: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherStatement:
    tag: str
    plan: AclPlan | AlterSystemPlan | SessionPlan
    rights: tuple[Right, ...] = ()
    columns: tuple[str, ...] = field(default=())


@dataclass
class Tail:
    """Clauses that may follow any schema change."""

    wait: Literal["globally", "locally"] = "globally"
    timeout: float | None = None
    notices: list[str] = field(default_factory=list)
    skipped: str = ""
    temp: OnCommit | None = None

    def plan(self, build: Build) -> DdlPlan:
        notices = tuple(self.notices)
        return DdlPlan(build, self.wait, self.timeout, notices, self.skipped, temp=self.temp)


def read_tail(cursor: Cursor, tail: Tail) -> bool:
    """One tail clause; whether there was one."""
    if cursor.accept("wait", "applied"):
        if cursor.accept("globally"):
            tail.wait = "globally"
        else:
            cursor.expect("locally")
            tail.wait = "locally"
        return True
    if cursor.accept("option"):
        cursor.expect_op("(")
        cursor.expect("timeout")
        cursor.expect_op("=")
        tail.timeout = cursor.number()
        cursor.expect_op(")")
        if tail.timeout < 0:
            raise CairnError("TIMEOUT must not be negative", sqlstate="22023")
        return True
    return False


def finish(cursor: Cursor) -> Tail:
    tail = Tail()
    while read_tail(cursor, tail):
        pass
    cursor.end()
    return tail


_STORAGE = frozenset(
    (
        *("fillfactor", "toast_tuple_target", "parallel_workers", "user_catalog_table"),
        *("vacuum_index_cleanup", "vacuum_truncate", "log_autovacuum_min_duration"),
        "deduplicate_items",
    )
)


def storage_options(cursor: Cursor) -> list[str]:
    """`(fillfactor = 90, autovacuum_enabled = false)`, as dumps and pgbench write it: notices."""
    cursor.expect_op("(")
    found = []
    while True:
        name = cursor.take().value
        if cursor.accept_op("."):  # toast.autovacuum_enabled
            name = f"{name}.{cursor.take().value}"
        plain = name.removeprefix("toast.")
        if plain not in _STORAGE and not plain.startswith("autovacuum_"):
            raise InvalidTableDefinition("table engine memtx does not support options")
        if cursor.accept_op("=") and name == "fillfactor":
            if not 10 <= cursor.number() <= 100:
                raise InvalidTableDefinition(
                    "fillfactor must be between 10 and 100", sqlstate="22023"
                )
        elif not cursor.looking_at_op(",") and not cursor.looking_at_op(")"):
            cursor.take()
        why = "pages are filled as rows come" if name == "fillfactor" else "there is no VACUUM"
        found.append(f"{name} is ignored: {why}")
        if not cursor.accept_op(","):
            break
    cursor.expect_op(")")
    return found


#: Altering these would make them inoperable while the governor needs them (upstream's deadlock).
_TOPOLOGY = ("_pico_instance", "_pico_replicaset", "_pico_tier", "_pico_bucket", "_pico_property")


def check_column_count(count: int) -> None:
    if count > MAX_COLUMNS:
        raise LimitExceeded(f"tables can have at most {MAX_COLUMNS} columns", sqlstate="54011")


def existing_table(catalog: Catalog, name: str, *, quiet: bool = False) -> Table | None:
    table = catalog.table(name)
    if table is None:
        if quiet:
            return None
        raise UndefinedTable(f'table with name "{name}" not found')
    if table.is_sequence:
        raise CairnError(
            f'"{name}" is not a table', sqlstate="42809", hint="see DROP SEQUENCE, ALTER SEQUENCE"
        )
    if table.is_system and not catalog.is_upgrading:
        raise AccessDenied(f'table "{name}" belongs to the system and cannot be changed')
    if table.is_system and name in _TOPOLOGY:
        raise AccessDenied(
            f'table "{name}" holds the topology: while it changes, no instance could go Offline'
        )
    return table


def ddl_statement(
    tag: str, tail: Tail, build: Build, table: Table | None, privilege: str
) -> DdlStatement:
    rights: tuple[Right, ...] = ()
    tables = {}
    if table is not None:
        rights = ((privilege, "table", table.id, table.name),)
        tables = {table.id: table.schema_version}
    return DdlStatement(tag, tail.plan(build), rights, tables)


def one_by_one(tag: str, each: list[DdlStatement]) -> DdlStatement:
    first, rest = each[0], each[1:]
    return DdlStatement(
        tag,
        replace(first.plan, more=tuple(other.plan for other in rest)),
        tuple(right for other in each for right in other.rights),
        {table: version for other in each for table, version in other.tables.items()},
    )
