"""GRANT and REVOKE: `GRANT READ ON TABLE t TO u`, `GRANT CREATE TABLE TO u`, `GRANT role TO u`."""

from __future__ import annotations

from dataclasses import replace

from cairn.model.errors import CairnError, UndefinedObject, Unsupported
from cairn.model.tables.catalog import OF_TABLES, Catalog
from cairn.sql.plans import AclPlan, SessionPlan
from cairn.sql.statements.access.users import acl_statement
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import OtherStatement, finish

PRIVILEGES = ("read", "write", *OF_TABLES, "execute", "login", "create", "drop", "alter")
_AS_PRIVILEGE = {"select": "read"}
_ALL = ("read", "write", "references", "create", "alter", "drop")
_KINDS = ("table", "user", "role", "procedure", "sequence")
_OF_DATABASE = ("connect", "temp", "temporary", "create")
_OF_SCHEMA = ("usage", "create")


def grant(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    return _rights(cursor, catalog, "grant", "to")


def revoke(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    return _rights(cursor, catalog, "revoke", "from")


def _rights(cursor: Cursor, catalog: Catalog, action: str, link: str) -> OtherStatement:
    following, first = cursor.peek(1), cursor.peek()
    is_login = first is not None and first.is_word("login")  # a right, though it stands alone
    if following is not None and following.is_word(link) and not is_login:
        role = cursor.name()
        plan = AclPlan(action + "_role", object_type="role", object_name=role, privilege="execute")
        return _to_all(f"{action.upper()} ROLE", cursor, [plan], action, link)
    if is_login:
        return _login(cursor, action, link)
    privilege, *more = _privileges(cursor)
    plan = AclPlan(action, privilege=privilege, more=tuple(more))
    if not cursor.accept("on"):
        object_type = cursor.accept_one("table", "user", "role", "procedure")
        if object_type is None:
            raise cursor.error()
        return _to_all(
            action.upper(), cursor, [replace(plan, object_type=object_type)], action, link
        )
    if cursor.accept("all"):
        return _to_all(action.upper(), cursor, [_every(cursor, plan)], action, link)
    if cursor.accept("schema"):
        return _on_schema(cursor, catalog, plan, link)
    if cursor.accept("database"):
        return _on_database(cursor, catalog, plan, link)
    kind = cursor.accept_one(*_KINDS) or "table"
    plans = [_on(cursor, plan, kind)]
    while cursor.accept_op(","):
        plans.append(_on(cursor, plan, kind))
    return _to_all(action.upper(), cursor, plans, action, link)


def _on(cursor: Cursor, plan: AclPlan, kind: str) -> AclPlan:
    """The same for the object whose name comes next."""
    found = _fitting(replace(plan, object_name=cursor.name()), kind)
    if kind == "procedure" and cursor.looking_at_op("("):
        cursor.skip_parens()  # a name has one procedure: its types say no more
    return found


def _every(cursor: Cursor, plan: AclPlan) -> AclPlan:
    """`ALL {TABLES | SEQUENCES} IN SCHEMA public`: those that there are when it is carried out."""
    kind = cursor.accept_one("tables", "sequences")
    if kind is None:
        word = cursor.take().value.upper()
        raise Unsupported(
            f"{plan.action.upper()} ON ALL {word} is not supported", hint="name them one by one"
        )
    cursor.expect("in", "schema")
    _public(cursor)
    return replace(_fitting(plan, kind.removesuffix("s")), every=kind)


def _fitting(plan: AclPlan, kind: str) -> AclPlan:
    """With the object's type, and rights that it can have."""
    named = (plan.privilege or "", *plan.more)
    if "usage" in named:
        if kind != "sequence":
            raise CairnError(f"invalid privilege type USAGE for {kind}", sqlstate="0LP01")
        # Taking numbers changes a sequence: it is the same right here.
        named = tuple(dict.fromkeys("update" if each == "usage" else each for each in named))
    object_type = "table" if kind == "sequence" else kind
    for each in named:
        wrong = each in _OF_DATABASE and each != "create"
        if wrong or (each in OF_TABLES and object_type != "table"):
            raise CairnError(
                f"invalid privilege type {each.upper()} for {object_type}", sqlstate="0LP01"
            )
    first, *more = named
    return replace(plan, privilege=first, more=tuple(more), object_type=object_type)


def _to_all(
    tag: str, cursor: Cursor, plans: list[AclPlan], action: str, link: str
) -> OtherStatement:
    """What was read so far, for everybody who is named from here on."""
    names = _grantees(cursor, action, link)
    first, *rest = [replace(plan, grantee=name) for name in names for plan in plans]
    return acl_statement(tag, cursor, replace(first, also=tuple(rest)))


def _grantees(cursor: Cursor, action: str, link: str) -> list[str]:
    cursor.expect(link)
    names = [cursor.name()]
    while cursor.accept_op(","):
        names.append(cursor.name())
    if cursor.looking_at("with"):
        raise Unsupported(
            "WITH GRANT OPTION is not supported", hint="the owner of an object gives rights to it"
        )
    if action == "revoke":
        cursor.accept_one("cascade", "restrict")  # no right depends on another one
    return names


def _privileges(cursor: Cursor) -> list[str]:
    """`SELECT, INSERT` or `ALL [PRIVILEGES]`, in our words and each once."""
    if cursor.accept("all"):
        cursor.accept("privileges")
        return list(_ALL)
    found: list[str] = []
    while True:
        word = cursor.take().value
        privilege = _AS_PRIVILEGE.get(word, word)
        if privilege not in (*PRIVILEGES, *_OF_SCHEMA, *_OF_DATABASE):
            cursor.at -= 1
            raise cursor.error()
        found.append(privilege)
        if not cursor.accept_op(","):
            return list(dict.fromkeys(found))


def _login(cursor: Cursor, action: str, link: str) -> OtherStatement:
    """`GRANT LOGIN TO u` is `ALTER USER u WITH LOGIN` in other words."""
    cursor.expect("login")
    cursor.expect(link)
    plan = AclPlan("alter_user", cursor.name(), login=action == "grant")
    return acl_statement(action.upper(), cursor, plan)


# --- what there is one of -------------------------------------------------------------------------


def _on_schema(cursor: Cursor, catalog: Catalog, plan: AclPlan, link: str) -> OtherStatement:
    """CREATE on it is the right to make tables. Everybody may use it."""
    _public(cursor)
    named = (plan.privilege, *plan.more)
    if named != _ALL:
        _check_kind(named, _OF_SCHEMA, "schema")
    if "create" in named:
        made = replace(plan, privilege="create", more=(), object_type="table")
        return _to_all(plan.action.upper(), cursor, [made], plan.action, link)
    if plan.action == "revoke":
        raise Unsupported(
            "USAGE of schema public cannot be revoked: everybody has it",
            hint="REVOKE … ON TABLE … takes rights to a table",
        )
    return _granted_already(cursor, catalog, plan, link, "everybody may use schema public")


def _on_database(cursor: Cursor, catalog: Catalog, plan: AclPlan, link: str) -> OtherStatement:
    """There is one, and who may log in may connect to it."""
    cursor.name()
    named = (plan.privilege, *plan.more)
    if named != _ALL:
        _check_kind(named, _OF_DATABASE, "database")
    if plan.action == "revoke":
        raise Unsupported(
            "rights on the database cannot be revoked",
            hint="ALTER USER … WITH NOLOGIN keeps somebody out, auth_rules says who may come",
        )
    said = "whoever may log in may connect to the database and make temporary tables"
    return _granted_already(cursor, catalog, plan, link, said)


def _check_kind(named: tuple[str | None, ...], known: tuple[str, ...], kind: str) -> None:
    for each in named:
        if each not in known:
            word = "SELECT" if each == "read" else str(each).upper()
            raise CairnError(f"invalid privilege type {word} for {kind}", sqlstate="0LP01")


def _granted_already(
    cursor: Cursor, catalog: Catalog, plan: AclPlan, link: str, said: str
) -> OtherStatement:
    for name in _grantees(cursor, plan.action, link):
        if name not in catalog.users:
            raise UndefinedObject(f"user or role {name} does not exist")
    finish(cursor)
    return OtherStatement("GRANT", SessionPlan("nothing", notices=(said,)))


def _public(cursor: Cursor) -> None:
    name = cursor.name()
    if name != "public":
        raise UndefinedObject(f'schema "{name}" does not exist', sqlstate="3F000")
