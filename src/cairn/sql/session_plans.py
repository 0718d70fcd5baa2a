"""Plans of what only the session does, and what it is asked to show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class AskedSetting:
    """A setting that is asked for, or given a value first."""

    name: str
    value: str | None = None
    is_quiet: bool = False  # NULL for one that nobody knows
    is_local: bool = False  # until the end of the transaction


@dataclass(frozen=True)
class SessionPlan:
    """What only the session does: SET, SHOW, BEGIN, DEALLOCATE …"""

    action: str
    name: str | None = None
    value: str | None = None
    notices: tuple[str, ...] = ()
    asked: tuple[AskedSetting, ...] = ()
    is_local: bool = False  # SET LOCAL


@dataclass(frozen=True)
class LockCall:
    """A function of advisory locks, as it is called."""

    action: Literal["lock", "try", "unlock", "unlock all"]
    mode: Literal["exclusive", "shared"] = "exclusive"
    of_block: bool = False  # it ends with the transaction
    name: str = ""
    arguments: int = 0

    def called(self, name: str, arguments: int) -> LockCall:
        return replace(self, name=name, arguments=arguments)

    @property
    def is_void(self) -> bool:
        return self.action in ("lock", "unlock all")


@dataclass(frozen=True)
class LockPlan:
    """Locks that the session takes and gives up; `query` has the arguments, and what else stands
    in the list."""

    items: tuple[LockCall | None, ...]
    query: str


@dataclass(frozen=True)
class AttemptPlan:
    """One statement that may fail with some codes, or is run on a condition."""

    statement: str
    condition: str = ""
    codes: tuple[str, ...] = ()  # "" is any

    def forgives(self, code: str) -> bool:
        """As in PostgreSQL, `others` is not the end of a statement by somebody's wish."""
        return code in self.codes or ("" in self.codes and code != "57014")


#: Plans whose statements are inside of them, as texts.
INSIDE = (LockPlan, AttemptPlan)


@dataclass(frozen=True)
class CatalogRead:
    """A query on PostgreSQL's own catalogue, translated for SQLite (`server/catalog`)."""

    sql: str


@dataclass(frozen=True)
class EmptyPlan:
    pass


@dataclass(frozen=True)
class ExplainOptions:
    """What EXPLAIN shows. `facets` are the parts that Picodata names; none of them: all that
    PostgreSQL's options ask for."""

    facets: tuple[str, ...] = ()
    is_run: bool = False  # ANALYZE: the statement is carried out, and measured
    is_verbose: bool = False  # with the SQL of the owners
    has_times: bool = True
    has_summary: bool = True
    is_json: bool = False
    notices: tuple[str, ...] = ()
