"""Users and roles: CREATE, ALTER and DROP."""

from __future__ import annotations

from dataclasses import replace

from cairn.model.errors import SyntaxProblem, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.sql.plans import AclPlan
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import OtherStatement, finish

_METHODS = ("md5", "chap-sha1", "scram-sha256", "scram-sha-256")


def acl_statement(tag: str, cursor: Cursor, plan: AclPlan) -> OtherStatement:
    """Whether it is allowed is asked where its names are looked up (`node/access`)."""
    tail = finish(cursor)
    return OtherStatement(tag, replace(plan, timeout=tail.timeout, wait_applied=tail.wait))


def _password(cursor: Cursor) -> tuple[str, str | None]:
    password = cursor.string()
    method = None
    if cursor.accept("using"):
        method = cursor.take().value
        while cursor.accept_op("-"):
            method += "-" + cursor.take().value
        if method == "ldap":
            raise Unsupported("LDAP is not supported")
        if method not in _METHODS:
            raise SyntaxProblem(f"unknown authentication method {method}")
    return password, method


def create_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    cursor.accept("with")
    if cursor.accept("using"):
        raise Unsupported(f"{cursor.take().value.upper()} users are not supported")
    cursor.expect("password")
    password, method = _password(cursor)
    plan = AclPlan("create_user", name, password, method, if_exists=quiet)
    return acl_statement("CREATE ROLE", cursor, plan)


def alter_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    name = cursor.name()
    cursor.accept("with")
    if cursor.accept("rename", "to"):
        plan = AclPlan("alter_user", name, new_name=cursor.name())
    elif cursor.accept("login"):
        plan = AclPlan("alter_user", name, login=True)
    elif cursor.accept("nologin"):
        plan = AclPlan("alter_user", name, login=False)
    else:
        cursor.expect("password")
        password, method = _password(cursor)
        plan = AclPlan("alter_user", name, password, method)
    return acl_statement("ALTER ROLE", cursor, plan)


def drop_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    return acl_statement("DROP ROLE", cursor, AclPlan("drop_user", name, if_exists=quiet))


def create_role(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    cursor.accept("with")
    while cursor.accept_one("nologin", "inherit", "nosuperuser", "nocreatedb", "nocreaterole"):
        pass  # all roles are so
    if cursor.looking_at("login"):
        raise Unsupported("a role cannot log in", hint="CREATE USER … WITH PASSWORD '…'")
    return acl_statement("CREATE ROLE", cursor, AclPlan("create_role", name, if_exists=quiet))


def drop_role(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    return acl_statement("DROP ROLE", cursor, AclPlan("drop_role", name, if_exists=quiet))
