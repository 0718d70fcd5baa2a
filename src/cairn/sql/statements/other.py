"""Settings, and what only the session does, read from tokens. Users and rights: `access`."""

from __future__ import annotations

from cairn.model.errors import CairnError, SyntaxProblem, UndefinedTable, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.sql.plans import AlterSystemPlan, SessionPlan
from cairn.sql.statements.access.rights import grant, revoke
from cairn.sql.statements.access.users import (
    alter_user,
    create_role,
    create_user,
    drop_role,
    drop_user,
)
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import OtherStatement, Tail, read_tail


def parse_other(cursor: Cursor, catalog: Catalog) -> OtherStatement | None:
    for words, handler in _HANDLERS:
        if cursor.accept(*words):
            return handler(cursor, catalog)
    return None


# --- settings -------------------------------------------------------------------------------------


def _scope(cursor: Cursor) -> str | None:
    if cursor.accept("for", "all", "tiers"):
        return "*"
    if cursor.accept("for", "tier"):
        return cursor.name()
    return None


def _timeout(cursor: Cursor) -> float | None:
    tail = Tail()
    while read_tail(cursor, tail):
        pass
    cursor.end()
    return tail.timeout


def _alter_system_set(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    key = cursor.name()
    if not cursor.accept_op("="):
        cursor.expect("to")
    if cursor.accept("default"):
        value, default = None, True
    else:
        value, default = _setting_value(cursor), False
    scope = _scope(cursor)
    plan = AlterSystemPlan(key, value, default, scope, _timeout(cursor))
    return OtherStatement("ALTER SYSTEM", plan, (("alter", "universe", 0, key),))


def _setting_value(cursor: Cursor) -> object:
    sign = -1 if cursor.accept_op("-") else 1
    token = cursor.take()
    if token.kind == "number":
        number = token.value
        return sign * (int(number) if number.isdigit() else float(number))
    if token.is_word("true", "on"):
        return True
    if token.is_word("false", "off"):
        return False
    if token.kind in ("string", "word", "quoted"):
        return token.value
    cursor.at -= 1
    raise cursor.error()


def _alter_system_reset(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    key = None if cursor.accept("all") else cursor.name()
    scope = _scope(cursor)
    plan = AlterSystemPlan(key, None, True, scope, _timeout(cursor))
    return OtherStatement("ALTER SYSTEM", plan, (("alter", "universe", 0, key or "all"),))


# --- the session ----------------------------------------------------------------------------------


def _set(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    if cursor.accept("transaction"):
        return OtherStatement("SET", SessionPlan("set_transaction", value=_modes(cursor)))
    if cursor.accept("session", "characteristics", "as", "transaction"):
        return OtherStatement("SET", SessionPlan("set_characteristics", value=_modes(cursor)))
    if cursor.accept("constraints"):
        return _constraints(cursor, catalog)
    if _is_own_role(cursor):
        return OtherStatement("SET", SessionPlan("reset", "session_authorization"))
    is_local = cursor.accept_one("session", "local") == "local"
    if cursor.accept("time", "zone"):
        name = "timezone"
    else:
        name = _dotted(cursor)
        if not cursor.accept_op("="):
            cursor.expect("to")
    following = cursor.peek(1)
    if following is None and cursor.accept("default"):
        if is_local:
            raise Unsupported("SET LOCAL … TO DEFAULT is not supported", hint="name the value")
        return OtherStatement("SET", SessionPlan("reset", name))
    parts = []
    while cursor.peek() is not None:
        token = cursor.take()
        parts.append(token.value)
    if not parts:
        raise cursor.error()
    value = "".join(f", {p}" if p != "," and at else p for at, p in enumerate(parts) if p != ",")
    return OtherStatement("SET", SessionPlan("set", name, value, is_local=is_local))


def _constraints(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    """`SET CONSTRAINTS ALL …`: none of them can wait for COMMIT, so there is nothing to do."""
    if not cursor.accept("all"):
        name = cursor.name()
        while cursor.accept_op("."):
            name = cursor.name()
        keys = (table.key_name for table in catalog.tables.values())
        checks = (check.name for table in catalog.tables.values() for check in table.checks)
        unique = (index.name for each in catalog.indexes.values() for index in each)
        known = {each.name for table in catalog.tables.values() for each in table.foreign_keys}
        if name in {*keys, *checks, *unique} - known:
            raise CairnError(f'constraint "{name}" is not deferrable', sqlstate="42809")
        if name not in known and catalog.setting("foreign_keys") != "ignore":
            raise CairnError(f'constraint "{name}" does not exist', sqlstate="42704")
    if not cursor.accept_one("deferred", "immediate"):
        raise cursor.error()
    cursor.end()
    deferred = any(key.is_deferred for t in catalog.tables.values() for key in t.foreign_keys)
    said = "SET CONSTRAINTS changes nothing: a key is looked at when it was declared to be"
    plan = SessionPlan("nothing", notices=(said,) * deferred)
    return OtherStatement("SET CONSTRAINTS", plan)


def _is_own_role(cursor: Cursor) -> bool:
    """`SET [SESSION | LOCAL] ROLE NONE` and its like: a session is always that of its user."""
    begun = cursor.at
    cursor.accept_one("session", "local")
    if cursor.accept("role", "none") or cursor.accept("authorization", "default"):
        cursor.end()
        return True
    if cursor.looking_at("role") or cursor.looking_at("authorization"):
        raise Unsupported(
            "SET ROLE and SET SESSION AUTHORIZATION are not supported", hint="log in as that user"
        )
    cursor.at = begun
    return False


def _dotted(cursor: Cursor) -> str:
    name = cursor.take().value
    while cursor.accept_op("."):
        name += "." + cursor.take().value
    return name


def _show(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    if cursor.accept("transaction", "isolation", "level"):
        name = "transaction_isolation"
    elif cursor.accept("time", "zone"):
        name = "timezone"
    else:
        name = _dotted(cursor)
    cursor.end()
    columns = ("name", "setting") if name == "all" else (name,)
    return OtherStatement("SHOW", SessionPlan("show", name), columns=columns)


def _reset(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    name = "timezone" if cursor.accept("time", "zone") else _dotted(cursor)
    cursor.end()
    return OtherStatement("RESET", SessionPlan("reset", name))


_MODES = (
    *(("isolation", "level", *level) for level in (("serializable",), ("repeatable", "read"))),
    *(("isolation", "level", "read", word) for word in ("committed", "uncommitted")),
    *(("read", "only"), ("read", "write"), ("deferrable",), ("not", "deferrable")),
)


def _modes(cursor: Cursor) -> str:
    """Those of a transaction, with commas or without; nothing else may follow."""
    found: list[str] = []
    while mode := next((each for each in _MODES if cursor.accept(*each)), None):
        found.append(" ".join(mode))
        if cursor.accept_op(",") and cursor.peek() is None:
            raise SyntaxProblem("syntax error at end of input")
    cursor.end()
    return ", ".join(found)


def _begin(tag: str):  # type: ignore[no-untyped-def]
    def handler(cursor: Cursor, catalog: Catalog) -> OtherStatement:
        cursor.accept_one("transaction", "work")
        return OtherStatement(tag, SessionPlan("begin", value=_modes(cursor) or None))

    return handler


def _ending(tag: str, action: str):  # type: ignore[no-untyped-def]
    def handler(cursor: Cursor, catalog: Catalog) -> OtherStatement:
        cursor.accept_one("transaction", "work")
        if action == "rollback" and cursor.accept("to"):
            cursor.accept("savepoint")
            return _named(cursor, "ROLLBACK", "rollback_to")
        if cursor.accept("and") and not cursor.accept("no"):
            raise Unsupported(f"{tag} AND CHAIN is not supported")
        cursor.accept("chain")
        cursor.end()
        return OtherStatement(tag, SessionPlan(action))

    return handler


def _savepoint(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    return _named(cursor, "SAVEPOINT", "savepoint")


def _release(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    cursor.accept("savepoint")
    return _named(cursor, "RELEASE", "release")


def _named(cursor: Cursor, tag: str, action: str) -> OtherStatement:
    name = cursor.name()
    cursor.end()
    return OtherStatement(tag, SessionPlan(action, name))


def _deallocate(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    cursor.accept("prepare")
    if cursor.accept("all"):
        cursor.end()
        return OtherStatement("DEALLOCATE ALL", SessionPlan("deallocate"))
    name = cursor.name()
    cursor.end()
    return OtherStatement("DEALLOCATE", SessionPlan("deallocate", name))


def _discard(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    what = cursor.accept_one("all", "plans", "sequences", "temp", "temporary")
    if what is None:
        raise cursor.error()
    cursor.end()
    return OtherStatement(f"DISCARD {what.upper()}", SessionPlan("discard", what))


def _nothing(tag: str):  # type: ignore[no-untyped-def]
    """What pools say when they take a connection back: there is nothing to close or forget."""

    def handler(cursor: Cursor, catalog: Catalog) -> OtherStatement:
        cursor.rest()
        return OtherStatement(tag, SessionPlan("nothing"))

    return handler


def _create_schema(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    """There is one schema, and it is there already."""
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.take().value
    if name != "public":
        raise Unsupported(
            "CREATE SCHEMA is not supported: all tables are in schema public",
            hint="put the name in front of the tables' names: sales_orders",
        )
    if not quiet:
        raise CairnError('schema "public" already exists', sqlstate="42P06")
    said = ('schema "public" already exists, skipping',)
    return OtherStatement("CREATE SCHEMA", SessionPlan("nothing", notices=said))


def _drop_schema(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.take().value
    if name == "public":
        raise Unsupported("DROP SCHEMA public is not supported", hint="drop the tables by name")
    if not quiet:
        raise CairnError(f'schema "{name}" does not exist', sqlstate="3F000")
    said = (f'schema "{name}" does not exist, skipping',)
    return OtherStatement("DROP SCHEMA", SessionPlan("nothing", notices=said))


def _upkeep(tag: str):  # type: ignore[no-untyped-def]
    """VACUUM and ANALYZE, which scripts for PostgreSQL have: space and plans need no care here."""

    def handler(cursor: Cursor, catalog: Catalog) -> OtherStatement:
        while cursor.accept_one("full", "freeze", "verbose", "analyze"):
            pass
        following = cursor.peek()
        if following is not None and following.is_op("("):
            cursor.skip_parens()
        while cursor.peek() is not None:
            name = cursor.name()
            if catalog.table(name) is None:
                raise UndefinedTable(f'table with name "{name}" not found')
            if not cursor.accept_op(","):
                break
        cursor.end()
        said = (f"{tag} has nothing to do here: free space is used again by itself",)
        return OtherStatement(tag, SessionPlan("nothing", notices=said))

    return handler


def _comment(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    """On what has no comments here: dumps have them, and nothing depends on them."""
    word = cursor.accept_one(
        *("index", "constraint", "view", "schema", "database", "extension", "sequence", "role")
    )
    if word is None:
        following = cursor.peek()
        raise Unsupported(
            f"COMMENT ON {'' if following is None else following.value.upper()} is not supported",
            hint="tables and columns have comments",
        )
    cursor.rest()
    said = (f"the comment is not kept: tables and columns have comments, {word} has none",)
    return OtherStatement("COMMENT", SessionPlan("nothing", notices=said))


_HANDLERS = (
    (("comment", "on"), _comment),
    (("create", "user"), create_user),
    (("alter", "user"), alter_user),
    (("alter", "role"), alter_user),
    (("drop", "user"), drop_user),
    (("create", "role"), create_role),
    (("drop", "role"), drop_role),
    (("grant",), grant),
    (("revoke",), revoke),
    (("alter", "system", "set"), _alter_system_set),
    (("alter", "system", "reset"), _alter_system_reset),
    (("set",), _set),
    (("show",), _show),
    (("reset",), _reset),
    (("begin",), _begin("BEGIN")),
    (("start", "transaction"), _begin("START TRANSACTION")),
    (("commit",), _ending("COMMIT", "commit")),
    (("end",), _ending("COMMIT", "commit")),
    (("rollback",), _ending("ROLLBACK", "rollback")),
    (("abort",), _ending("ROLLBACK", "rollback")),
    (("savepoint",), _savepoint),
    (("release",), _release),
    (("deallocate",), _deallocate),
    (("discard",), _discard),
    (("close", "all"), _nothing("CLOSE CURSOR ALL")),
    (("unlisten",), _nothing("UNLISTEN")),
    (("create", "schema"), _create_schema),
    (("drop", "schema"), _drop_schema),
    (("vacuum",), _upkeep("VACUUM")),
    (("analyze",), _upkeep("ANALYZE")),
)
