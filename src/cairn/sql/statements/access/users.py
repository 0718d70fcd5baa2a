"""Users and roles: CREATE, ALTER and DROP."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


#: What PostgreSQL can say of a role, and what is so of every user and role here.
_AS_IT_IS = (
    *("inherit", "nosuperuser", "nocreatedb", "nocreaterole", "noreplication", "nobypassrls"),
)
_REFUSED = {
    "superuser": "there is one administrator, admin",
    "createdb": "there is one database",
    "createrole": "GRANT CREATE USER TO …",
    "noinherit": "whoever has a role has its rights",
    "in": "GRANT role TO …",
    "role": "GRANT role TO …",
    "admin": "GRANT role TO …",
    "valid": "ALTER USER … NOLOGIN ends it",
    "connection": "ALTER SYSTEM SET pg_connections_per_user_max is for all users",
}


@dataclass
class _Options:
    """What follows the name, in any order."""

    password: str | None = None
    method: str | None = None
    login: bool | None = None


def _options(cursor: Cursor) -> _Options:
    found = _Options()
    while True:
        if word := cursor.accept_one("login", "nologin"):
            found.login = word == "login"
        elif cursor.accept_one(*_AS_IT_IS) or _is_for_ever(cursor):
            continue
        elif cursor.accept("encrypted", "password") or cursor.accept("password"):
            found.password, found.method = _password(cursor)
        elif word := cursor.accept_one(*_REFUSED):
            raise Unsupported(f"{word.upper()} of a role is not supported", hint=_REFUSED[word])
        else:
            return found


def _is_for_ever(cursor: Cursor) -> bool:
    """`VALID UNTIL 'infinity'`, which every password is."""
    value = cursor.peek(2)
    if not cursor.looking_at("valid", "until") or value is None or value.value != "infinity":
        return False
    cursor.at += 3
    return True


def create_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    return _created(cursor, is_user=True)


def create_role(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    """With LOGIN it is a user."""
    return _created(cursor, is_user=False)


def _created(cursor: Cursor, *, is_user: bool) -> OtherStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    cursor.accept("with")
    if cursor.accept("using"):
        raise Unsupported(f"{cursor.take().value.upper()} users are not supported")
    options = _options(cursor)
    if options.login is None:
        options.login = is_user
    if not options.login:
        if options.password is not None:
            raise Unsupported("a role that cannot log in has no password", hint="add LOGIN")
        plan = AclPlan("create_role", name, if_exists=quiet)
    elif options.password is None:
        if is_user and cursor.peek() is not None:
            raise cursor.error()
        raise SyntaxProblem("a user needs a password", hint="CREATE USER … WITH PASSWORD '…'")
    else:
        plan = AclPlan("create_user", name, options.password, options.method, if_exists=quiet)
    return acl_statement("CREATE ROLE", cursor, plan)


def alter_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    name = cursor.name()
    cursor.accept("with")
    if cursor.accept("rename", "to"):
        plan = AclPlan("alter_user", name, new_name=cursor.name())
        return acl_statement("ALTER ROLE", cursor, plan)
    options = _options(cursor)
    plans: list[AclPlan] = []
    if options.password is not None:
        plans.append(AclPlan("alter_user", name, options.password, options.method))
    if options.login is not None:
        plans.append(AclPlan("alter_user", name, login=options.login))
    if len(plans) > 1:
        raise Unsupported("a password and LOGIN are changed one by one")
    if not plans:
        raise cursor.error()
    return acl_statement("ALTER ROLE", cursor, plans[0])


def drop_user(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    return acl_statement("DROP ROLE", cursor, AclPlan("drop_user", name, if_exists=quiet))


def drop_role(cursor: Cursor, catalog: Catalog) -> OtherStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    return acl_statement("DROP ROLE", cursor, AclPlan("drop_role", name, if_exists=quiet))
