"""Users, rights and settings: the rows that a statement about them changes. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cairn.model.errors import (
    AccessDenied,
    CairnError,
    DuplicateObject,
    InvalidGrant,
    InvalidParameter,
    LimitExceeded,
    NotInPrerequisiteState,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
)
from cairn.model.log import ops
from cairn.model.members.topology import Instance
from cairn.model.settings.auth_rules import parse_rules
from cairn.model.settings.nearest import nearest
from cairn.model.settings.parameters import SETTINGS
from cairn.model.settings.trace_endpoint import read_endpoint
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import (
    ADMIN_ID,
    FIRST_USER_ID,
    PUBLIC_ID,
    SETS,
    Catalog,
    Privilege,
    User,
)
from cairn.replication.graph import check_graph
from cairn.sql.api import prepare
from cairn.sql.plans import AclPlan, AlterSystemPlan, Prepared

_QUEUE = system.PICO_GOVERNOR_QUEUE
#: Settings that are one of some words.
_WORDS = {
    "read_preference": ("leader", "replica", "any"),
    "table_distribution": ("key", "together"),
    "foreign_keys": ("refuse", "ignore"),
}
MakeVerifier = Callable[[str], str]
USERS_MAX = 128
LAST_USER_ID = "last_user_id"  # a fact of the cluster: ids are never given again


def check_password(password: str, setting: Callable[[str], Any]) -> None:
    """The cluster's rules for passwords; a refusal names the rule, never the password."""
    least = int(setting("auth_password_length_min") or 0)
    if len(password) < least:
        raise InvalidParameter(
            f"invalid password: password is too short: expected at least {least}, "
            f"got {len(password)}"
        )
    for key, fits, what in (
        ("uppercase", any(c.isupper() for c in password), "one uppercase letter"),
        ("lowercase", any(c.islower() for c in password), "one lowercase letter"),
        ("digits", any(c.isdigit() for c in password), "one digit"),
        ("specialchars", any(not c.isalnum() for c in password), "one special character"),
    ):
        if setting(f"auth_password_enforce_{key}") and not fits:
            raise InvalidParameter(f"invalid password: password should contain at least {what}")


def _user(catalog: Catalog, name: str | None, kind: str | None = None) -> User:
    user = catalog.users.get(name or "")
    if user is None or (kind is not None and user.kind != kind):
        word = kind or "user or role"
        raise UndefinedObject(f"{word} {name} does not exist")
    return user


def check_access(plan: AclPlan, catalog: Catalog, user: int) -> None:
    """May this user run the statement? Asked at the position at which its names are looked up."""
    if not catalog.is_super(user):
        for each in _parts(plan, catalog):
            _check_part(each, catalog, user)


def _parts(plan: AclPlan, catalog: Catalog) -> list[AclPlan]:
    """One for each object that it names, and for each grantee."""
    found: list[AclPlan] = []
    for each in (replace(plan, also=()), *plan.also):
        if not each.every:
            found.append(each)
            continue
        is_sequence = each.every == "sequences"
        found += [
            replace(each, object_name=table.name, every="")
            for table in catalog.tables.values()
            if not table.is_system and table.is_sequence == is_sequence
        ]
    return found


def _check_part(plan: AclPlan, catalog: Catalog, user: int) -> None:
    match plan.action:
        case "create_user" | "create_role" as action:
            kind = action.removeprefix("create_")
            allowed = catalog.allows(user, "create", kind, -1)
            word, what, name = "Create", kind, plan.name
        case "alter_user":
            target = catalog.users.get(plan.name)
            is_own = target is not None and target.id == user
            allowed = target is None or catalog.allows(user, "alter", "user", target.id)
            if is_own and plan.password is None:  # who was locked out must not let itself in
                allowed = catalog.allows(user, "alter", "user", -1)
            word, what, name = "Alter", "user", plan.name
        case "drop_user" | "drop_role" as action:
            target = catalog.users.get(plan.name)
            kind = action.removeprefix("drop_") if target is None else target.kind
            allowed = (
                target is None
                or target.owner == user
                or catalog.allows(user, "drop", kind, target.id)
            )
            word, what, name = "Drop", kind, plan.name
        case _:  # rights are given by the owner of the object
            allowed = _owner(plan, catalog) == user
            word, what, name = "Grant", plan.object_type or "", plan.object_name or ""
    if not allowed:
        who = catalog.user_by_id(user)
        raise AccessDenied(
            f"{word} access to {what} '{name}' is denied for user "
            f"'{who.name if who is not None else user}'"
        )


def _owner(plan: AclPlan, catalog: Catalog) -> int | None:
    name = plan.object_name or ""
    if plan.object_type == "procedure":
        routine = catalog.routines.get(name)
        return None if routine is None else routine.owner
    table = catalog.table(name) if plan.object_type == "table" else None
    return None if table is None else table.owner


def access_ops(
    plan: AclPlan,
    catalog: Catalog,
    grantor: int,
    verifier: MakeVerifier,
    last_user_id: int = 0,
) -> tuple[ops.Dml, ...]:
    """The rows that a statement about users or rights changes."""
    check_access(plan, catalog, grantor)
    match plan.action:
        case "create_user" | "create_role":
            return _create(plan, catalog, grantor, verifier, last_user_id)
        case "alter_user":
            return _alter_user(plan, catalog, verifier)
        case "drop_user" | "drop_role":
            return _drop(plan, catalog)
        case "grant" | "grant_role":
            return tuple(
                ops.Insert(system.PICO_PRIVILEGE.id, rows.privilege_row(right, grantor))
                for right in _rights(plan, catalog)
                if right not in catalog.privileges
            )
        case "revoke" | "revoke_role":
            return _revoke(_rights(plan, catalog), catalog, grantor)
    raise AssertionError(plan.action)


def _check_no_circle(plan: AclPlan, catalog: Catalog) -> None:
    """A role that has itself, by whatever way, has no rights that can be understood."""
    if plan.action != "grant_role":
        return
    granted, grantee = _user(catalog, plan.object_name, "role"), _user(catalog, plan.grantee)
    if grantee.id in catalog.roles_of(granted.id):
        raise InvalidGrant(f'role "{grantee.name}" is a member of role "{granted.name}"')


def _revoke(rights: list[Privilege], catalog: Catalog, grantor: int) -> tuple[ops.Dml, ...]:
    """WRITE goes with all its parts; a part of it leaves the others."""
    gone, kept = set[Privilege](), set[Privilege]()
    for right in rights:
        gone.add(right)
        gone |= {_named(right, part) for part in SETS.get(right.privilege, ())}
        for whole, parts in SETS.items():
            if right.privilege in parts and _named(right, whole) in catalog.privileges:
                gone.add(_named(right, whole))
                kept |= {_named(right, part) for part in parts}
    kept -= gone | catalog.privileges
    table = system.PICO_PRIVILEGE.id
    return (
        *(
            ops.Delete(table, _right_key(right))
            for right in sorted(gone & catalog.privileges, key=_right_key)
        ),
        *(
            ops.Insert(table, rows.privilege_row(right, grantor))
            for right in sorted(kept, key=_right_key)
        ),
    )


def _named(right: Privilege, privilege: str) -> Privilege:
    return msgspec.structs.replace(right, privilege=privilege)


def _create(
    plan: AclPlan, catalog: Catalog, owner: int, verifier: MakeVerifier, last_user_id: int
) -> tuple[ops.Dml, ...]:
    kind = "user" if plan.action == "create_user" else "role"
    if plan.name in catalog.users:
        if plan.if_exists:
            return ()
        raise DuplicateObject(f"{kind} {plan.name} already exists")
    if len(catalog.users) >= USERS_MAX:
        raise LimitExceeded(f"a limit on the total number of users has been reached: {USERS_MAX}")
    known = (user.id for user in catalog.users.values())
    user_id = max([FIRST_USER_ID - 1, last_user_id, *known]) + 1
    auth = None
    if plan.password is not None:
        if plan.method in ("md5", "chap-sha1"):
            raise InvalidParameter(
                f"authentication method {plan.method} is not offered", hint="use scram-sha256"
            )
        auth = ("scram-sha256", verifier(plan.password))
    user = User(user_id, plan.name, kind, auth, owner)
    found: list[ops.Dml] = [
        ops.Insert(system.PICO_USER.id, rows.user_row(user)),
        ops.Replace(system.PICO_PROPERTY.id, (LAST_USER_ID, rows.to_json(user_id))),
    ]
    if kind == "user":
        rights = (
            Privilege(user_id, "login", "universe", 0),
            Privilege(user_id, "alter", "user", user_id),
            Privilege(user_id, "execute", "role", PUBLIC_ID),
        )
        table = system.PICO_PRIVILEGE.id
        found += [ops.Insert(table, rows.privilege_row(right, owner)) for right in rights]
    return tuple(found)


def _alter_user(plan: AclPlan, catalog: Catalog, verifier: MakeVerifier) -> tuple[ops.Dml, ...]:
    user = _user(catalog, plan.name, "user")
    table = system.PICO_USER
    if plan.new_name is not None:
        if plan.new_name in catalog.users:
            raise DuplicateObject(f"user {plan.new_name} already exists")
        change = (table.position("name"), plan.new_name)
        return (ops.Update(table.id, (user.id,), (change,)),)
    if plan.password is not None:
        auth = rows.to_json(["scram-sha256", verifier(plan.password)])
        return (ops.Update(table.id, (user.id,), ((table.position("auth"), auth),)),)
    right = Privilege(user.id, "login", "universe", 0)
    has = right in catalog.privileges
    if plan.login:
        # The row of the user changes too: every instance forgets failed logins when it does.
        version = (table.position("schema_version"), user.schema_version + 1)
        touched = ops.Update(table.id, (user.id,), (version,))
        if has:
            return (touched,)
        return (touched, ops.Insert(system.PICO_PRIVILEGE.id, rows.privilege_row(right)))
    if plan.login is False and has:
        if user.id == ADMIN_ID:
            raise NotInPrerequisiteState("the admin cannot be locked out")
        return (ops.Delete(system.PICO_PRIVILEGE.id, _right_key(right)),)
    return ()


def _drop(plan: AclPlan, catalog: Catalog) -> tuple[ops.Dml, ...]:
    if plan.name not in catalog.users and plan.if_exists:
        return ()
    if plan.name not in catalog.users:
        raise UndefinedObject(f"{plan.action.removeprefix('drop_')} {plan.name} does not exist")
    user = catalog.users[plan.name]  # a user or a role: to PostgreSQL both words are the same
    kind = user.kind
    if user.id < FIRST_USER_ID:
        raise NotInPrerequisiteState(f"{kind} {plan.name} belongs to the system")
    owned = sorted(
        (table.is_sequence, table.name)
        for table in catalog.tables.values()
        if table.owner == user.id
    )
    objects = [f"{'sequence' if is_one else 'table'} {name}" for is_one, name in owned]
    objects += [f"procedure {r.name}" for r in catalog.routines.values() if r.owner == user.id]
    objects += [f"view {v.name}" for v in catalog.views.values() if v.owner == user.id]
    objects += [f"type {t.name}" for t in catalog.types.values() if t.owner == user.id]
    if objects:
        raise NotInPrerequisiteState(
            f"{kind} {plan.name} cannot be dropped because some objects depend on it",
            detail=f"owner of {objects[0]}",
            sqlstate="2BP01",
        )
    found: list[ops.Dml] = [
        ops.Delete(system.PICO_PRIVILEGE.id, _right_key(right))
        for right in sorted(catalog.privileges, key=_right_key)
        if right.grantee_id == user.id
        or (right.object_type in ("role", "user") and right.object_id == user.id)
    ]
    return (*found, ops.Delete(system.PICO_USER.id, (user.id,)))


def _rights(plan: AclPlan, catalog: Catalog) -> list[Privilege]:
    """Each once, though an object or a grantee may be named twice."""
    found: dict[Privilege, None] = {}
    for part in _parts(plan, catalog):
        _check_no_circle(part, catalog)
        for privilege in (part.privilege, *part.more):
            found[_right(replace(part, privilege=privilege), catalog)] = None
    return list(found)


def _right(plan: AclPlan, catalog: Catalog) -> Privilege:
    grantee = _user(catalog, plan.grantee)
    assert plan.privilege is not None and plan.object_type is not None
    if plan.object_type == "universe":
        return Privilege(grantee.id, plan.privilege, "universe", 0)
    if plan.object_name is None:
        return Privilege(grantee.id, plan.privilege, plan.object_type, -1)
    if plan.object_type == "table":
        table = catalog.table(plan.object_name)
        if table is None:
            raise UndefinedTable(f'table with name "{plan.object_name}" not found')
        return Privilege(grantee.id, plan.privilege, "table", table.id)
    if plan.object_type == "procedure":
        routine = catalog.routines.get(plan.object_name)
        if routine is None:
            raise UndefinedFunction(f"procedure {plan.object_name} does not exist")
        return Privilege(grantee.id, plan.privilege, "procedure", routine.id)
    kind = "role" if plan.object_type == "role" else None
    return Privilege(
        grantee.id, plan.privilege, plan.object_type, _user(catalog, plan.object_name, kind).id
    )


def _right_key(right: Privilege) -> tuple[int, str, int, str]:
    return (right.grantee_id, right.object_type, right.object_id, right.privilege)


def setting_ops(
    plan: AlterSystemPlan, catalog: Catalog, instances: Mapping[str, Instance]
) -> tuple[ops.Dml, ...]:
    table = system.PICO_DB_CONFIG.id
    keys = list(SETTINGS) if plan.key is None else [plan.key]
    found: list[ops.Dml] = []
    for key in keys:
        if key not in SETTINGS:
            raise InvalidParameter(f"unknown parameter: '{key}'", hint=nearest(key, SETTINGS))
        if plan.scope is not None:
            raise InvalidParameter(f"parameter '{key}' is not scoped by tier")
        value = SETTINGS[key] if plan.default else checked_setting(key, plan.value)
        if key == "replication_graph":
            check_graph(str(value), {n: row.replicaset_name for n, row in instances.items()})
        if catalog.setting(key) != value:
            found.append(ops.Replace(table, (key, "", rows.to_json(value))))
    return tuple(found)


def checked_setting(key: str, value: Any) -> Any:
    """`value` if it is of the type of the default; numbers may be whole where fractions are."""
    default = SETTINGS[key]
    fits = type(value) is type(default) or (
        isinstance(default, float) and type(value) in (int, float)
    )
    if not fits:
        expected = {bool: "boolean", int: "unsigned", float: "double", str: "string"}
        raise InvalidParameter(
            f"invalid value for '{key}': expected {expected[type(default)]}, "
            f"got {expected.get(type(value), type(value).__name__)}"
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise InvalidParameter(f"invalid value for '{key}': it cannot be negative")
    if key.startswith("governor_") and not value:
        raise InvalidParameter(f"invalid value for '{key}': it must be above zero")
    if key == "auth_rules":
        parse_rules(value)
    if key == "trace_endpoint" and value:
        read_endpoint(value)
    if key == "trace_sample_ratio" and value > 1:
        raise InvalidParameter(f"invalid value for '{key}': it is 0 to 1")
    if key == "default_int_size" and value not in (4, 8):
        raise InvalidParameter(f"invalid value for '{key}': it is 4 or 8")
    if key in _WORDS and value not in _WORDS[key]:
        raise InvalidParameter(
            f"unknown {key} value: '{value}', expected one of {', '.join(_WORDS[key])}"
        )
    return float(value) if isinstance(default, float) else value


# --- the governor's queue -------------------------------------------------------------------------


def owned(change: ops.Dml, user: int) -> ops.Dml:
    """An operation of the queue belongs to who wrote its text, whatever the statement says."""
    if change.table != _QUEUE.id:
        return change
    at = _QUEUE.position("owner")
    match change:
        case ops.Insert(row=row) | ops.Replace(row=row):
            return msgspec.structs.replace(change, row=(*row[:at], user, *row[at + 1 :]))
        case ops.Update(changes=changes):
            kept = tuple(each for each in changes if each[0] != at)
            if any(place == _QUEUE.position("op") for place, _ in kept):
                kept = (*kept, (at, user))
            return msgspec.structs.replace(change, changes=kept)
    return change


def check_queued_rights(changes: tuple[ops.Dml, ...], catalog: Catalog, user: int) -> None:
    """An operation is run with the rights that its owner has then (`node/steering/queue_runner`).
    What they lack today is told at once; a row is changed later by an administrator alone."""
    queued = [change for change in changes if change.table == _QUEUE.id]
    if not queued or catalog.is_super(user):
        return
    for change in queued:
        if not isinstance(change, ops.Insert):
            raise AccessDenied(
                f"operations of {_QUEUE.name} are changed by an administrator alone",
                hint="queue a new one",
            )
        _check_queued(str(change.row[_QUEUE.position("op")]), catalog, user)


def _check_queued(text: str, catalog: Catalog, user: int) -> None:
    try:
        prepared = prepare(text, catalog, user_id=user)
    except AccessDenied:
        raise
    except CairnError:
        return  # its tables may be made by operations before it
    check_all_rights(prepared, catalog, user)


def check_all_rights(prepared: Prepared, catalog: Catalog, user: int) -> None:
    prepared.check_rights(user, catalog)
    if isinstance(prepared.plan, AclPlan):
        check_access(prepared.plan, catalog, user)
