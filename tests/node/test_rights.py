"""Every kind of statement × every kind of object × every right: who may do what, all of it."""

from __future__ import annotations

import functools
import itertools
from typing import get_args

import msgspec
import pytest

from cairn.model.errors import AccessDenied, InvalidGrant
from cairn.model.log.ops import Delete, Dml, Insert, Replace, Update
from cairn.model.members.topology import Tier
from cairn.model.tables.catalog import (
    ADMIN_ID,
    ALL_OBJECTS,
    FIRST_USER_ID,
    PUBLIC_ID,
    SUPER_ID,
    Catalog,
    Privilege,
    Routine,
    User,
    View,
)
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.tables.system_tables import PICO_GOVERNOR_QUEUE, PICO_INSTANCE, PICO_USER
from cairn.model.types.values import ColumnType
from cairn.node.statements.changes.access import (
    access_ops,
    check_access,
    check_queued_rights,
    owned,
)
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import AclPlan, Prepared

ANN, BOB, ROLE, BOSS = range(FIRST_USER_ID, FIRST_USER_ID + 4)
RIGHTS = (
    *("read", "write", "insert", "update", "delete", "truncate", "references"),
    *("create", "drop", "alter"),
)


def table(table_id: int, name: str, owner: int = ADMIN_ID) -> Table:
    columns = (Column("id", ColumnType.INTEGER, False), Column("v", ColumnType.STRING))
    return Table(table_id, name, columns, ("id",), Sharded(("id",), "default"), owner=owner)


TABLES = {
    "user": table(1024, "t"),
    "own": table(1025, "own", ANN),
    "system": PICO_USER,
    "queue": PICO_GOVERNOR_QUEUE,
    "members": PICO_INSTANCE,
}
USERS = {
    user.name: user
    for user in (
        User(ADMIN_ID, "admin"),
        User(PUBLIC_ID, "public", "role"),
        User(SUPER_ID, "super", "role"),
        User(ANN, "ann"),
        User(BOB, "bob"),
        User(ROLE, "readers", "role"),
        User(BOSS, "boss"),
    )
}
BASE = (
    Privilege(ANN, "execute", "procedure", 4000),
    Privilege(ANN, "execute", "procedure", 4001),
    Privilege(PUBLIC_ID, "read", "table", PICO_INSTANCE.id),
    Privilege(ANN, "execute", "role", PUBLIC_ID),
    Privilege(BOSS, "execute", "role", SUPER_ID),
    Privilege(ANN, "alter", "user", ANN),
)


def views() -> dict[str, View]:
    """One of each table, of the admin: who reads it needs the rights on the table itself."""
    found = {}
    for at, each in enumerate(TABLES.values()):
        key = each.columns[0]
        body = f"SELECT {key.name} FROM {each.name}"
        name = f"v_of_{each.name}"
        found[name] = View(3000 + at, name, (key.name,), (key.type,), body, ADMIN_ID, 1)
    return found


def routines() -> dict[str, Routine]:
    """The same for procedures, which everybody here may execute."""
    body = "BEGIN DELETE FROM {} WHERE id = $1; END"
    return {
        f"p_of_{each.name}": Routine(
            4000 + at,
            f"p_of_{each.name}",
            (ColumnType.INTEGER,),
            body.format(each.name),
            ADMIN_ID,
            1,
        )
        for at, each in enumerate(TABLES.values())
        if not each.is_system
    }


def catalog(*rights: Privilege) -> Catalog:
    return Catalog(
        views=views(),
        routines=routines(),
        tables={each.name: each for each in TABLES.values()},
        tiers={"default": Tier("default", 1)},
        users=USERS,
        privileges=frozenset((*BASE, *rights)),
    )


#: Statement → the rights that it needs on its table.
STATEMENTS: dict[str, set[str]] = {
    "SELECT 1 FROM {t}": {"read"},
    "SELECT count(*) FROM {t} a, {t} b": {"read"},
    "EXPLAIN SELECT 1 FROM {t}": {"read"},
    "EXPLAIN ANALYZE SELECT 1 FROM {t}": {"read"},
    "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM {t}": {"delete"},
    "EXPLAIN ANALYZE INSERT INTO {t} ({k}) VALUES ({x})": {"insert"},
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM {t})": {"read"},
    "WITH w AS (SELECT {k} FROM {t}) SELECT * FROM w": {"read"},
    "SELECT 1 FROM own UNION ALL SELECT 1 FROM {t}": {"read"},
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1 FROM {t}": {"read"},
    "DECLARE c CURSOR FOR SELECT {k} FROM {t} WHERE {k} = {x}": {"read"},
    "SELECT * FROM v_of_{t}": {"read"},
    "EXPLAIN ANALYZE SELECT * FROM v_of_{t}": {"read"},
    "DECLARE c CURSOR FOR SELECT * FROM v_of_{t}": {"read"},
    "COPY (SELECT * FROM v_of_{t}) TO STDOUT": {"read"},
    "COPY {t} TO STDOUT": {"read"},
    "COPY (SELECT 1 FROM {t}) TO STDOUT": {"read"},
    "COPY {t} FROM STDIN": {"insert"},
    "INSERT INTO {t} ({k}) VALUES ({x})": {"insert"},
    "INSERT INTO {t} ({k}) VALUES ({x}), ({x})": {"insert"},
    "INSERT INTO {t} ({k}) VALUES ({x}) ON CONFLICT DO NOTHING": {"insert"},
    "INSERT INTO {t} ({k}) VALUES ({x}) ON CONFLICT DO REPLACE": {"insert", "update"},
    "INSERT INTO {t} ({k}) VALUES ({x}) ON CONFLICT ({k}) DO UPDATE SET {c} = NULL": {
        "insert",
        "update",
        "read",
    },
    "INSERT INTO {t} ({k}) VALUES ({x}) RETURNING {k}": {"insert", "read"},
    "INSERT INTO {t} ({k}) SELECT {k} FROM {t}": {"insert", "read"},
    "UPDATE {t} SET {c} = NULL WHERE {k} = {x}": {"update", "read"},
    "DELETE FROM {t}": {"delete"},
    "DELETE FROM {t} WHERE {k} = {x}": {"delete", "read"},
    "UPDATE own SET v = NULL FROM {t} s WHERE own.id = 1": {"read"},
    "DELETE FROM own USING {t} s WHERE own.id = 1": {"read"},
    "MERGE INTO own o USING {t} s ON o.id = 1 WHEN MATCHED THEN DELETE": {"read"},
    "EXPLAIN MERGE INTO own o USING {t} s ON o.id = 1 WHEN MATCHED THEN DELETE": {"read"},
    "WITH s AS (SELECT 1 FROM {t}) DELETE FROM own WHERE EXISTS (SELECT 1 FROM s)": {"read"},
    "INSERT INTO own (id) SELECT 1 FROM {t} ON CONFLICT DO NOTHING": {"read"},
    "INSERT INTO own (id) VALUES ((SELECT count(*) FROM {t}))": {"read"},
    "CREATE TEMP TABLE n AS SELECT {k} FROM {t}": {"read"},
    "CREATE TEMP TABLE n (LIKE {t})": {"read"},
    "TRUNCATE {t}": {"truncate"},
    "DROP TABLE {t}": {"drop"},
    "ALTER TABLE {t} ADD COLUMN w INT": {"alter"},
    "ALTER TABLE {t} RENAME TO w": {"alter"},
    "CREATE INDEX i ON {t} ({c})": {"create"},
}
#: Blocks are of sharded tables: the rights of all their statements together.
BLOCKS: dict[str, set[str]] = {
    "DO $$ BEGIN UPDATE {t} SET {c} = NULL WHERE {k} = {x}; "
    "DELETE FROM {t} WHERE {k} = {x}; END $$": {
        "update",
        "delete",
        "read",
    },
    "DO $$ BEGIN INSERT INTO {t} ({k}) VALUES ({x}); END $$": {"insert"},
    "DO $$ BEGIN RETURN QUERY SELECT {c} FROM {t} WHERE {k} = {x}; END $$": {"read"},
    "CALL p_of_{t}({x})": {"delete", "read"},
    "MERGE INTO {t} USING own s ON {t}.id = s.id WHEN MATCHED THEN DELETE": {"delete", "read"},
    "MERGE INTO {t} USING own s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)": {"update", "insert", "read"},
    "WITH d AS (DELETE FROM {t} WHERE id = 1 RETURNING id) SELECT * FROM d": {"delete", "read"},
}
#: Tables of the system are never changed so, whoever asks.
SCHEMA = ("TRUNCATE", "DROP", "ALTER", "CREATE")


def text_of(statement: str, found: Table) -> str:
    key = found.columns[0]
    value = "1" if key.type in (ColumnType.INTEGER, ColumnType.UNSIGNED) else "'x'"
    return statement.format(t=found.name, k=key.name, c=found.columns[1].name, x=value)


def holds(right: str, needed: str) -> bool:
    return right == needed or (
        right == "write" and needed in ("insert", "update", "delete", "truncate")
    )


@functools.cache
def planned(text: str, user: int) -> Prepared:
    """Once for all rights, as an instance keeps it: they are looked at whenever it is run."""
    known = catalog()
    if "v_of" not in text:  # what a view names cannot be renamed
        known = msgspec.structs.replace(known, views={})
    return prepare(text, known, user_id=user)


def is_allowed(statement: str, found: Table, known: Catalog, user: int = ANN) -> bool:
    try:
        planned(text_of(statement, found), user).check_rights(user, known)
    except AccessDenied:
        return False
    return True


def cases() -> list[tuple[str, str]]:
    return [(block, kind) for block in BLOCKS for kind in ("user", "own")] + [
        (statement, kind)
        for statement, kind in itertools.product(STATEMENTS, TABLES)
        if not (TABLES[kind].is_system and statement.startswith(SCHEMA))
        and not (TABLES[kind].is_system and "COPY" in statement and "FROM STDIN" in statement)
    ]


@pytest.mark.parametrize(("statement", "kind"), cases())
def test_a_statement_needs_its_rights_and_no_others(statement: str, kind: str) -> None:
    found, needs = TABLES[kind], (STATEMENTS | BLOCKS)[statement]
    if kind == "members":
        needs = needs - {"read"}  # that is everybody's
    wrong = []
    for many in range(3):
        for rights in itertools.combinations(RIGHTS, many):
            for where in (found.id, ALL_OBJECTS, 1099):
                known = catalog(*(Privilege(ANN, right, "table", where) for right in rights))
                counts = where == found.id or (where == ALL_OBJECTS and not found.is_system)
                if "create" in needs:  # on all: new tables, not indexes of those of others
                    counts = where == found.id
                held = {need for need in needs for right in rights if counts and holds(right, need)}
                expected = held == needs or found.owner == ANN
                if is_allowed(statement, found, known) is not expected:
                    wrong.append((rights, where, "expected", expected))
    assert wrong == []
    all_of_it = tuple(Privilege(ANN, right, "table", found.id) for right in RIGHTS)
    assert is_allowed(statement, found, catalog(*all_of_it))
    assert is_allowed(statement, found, catalog(), ADMIN_ID)
    assert is_allowed(statement, found, catalog(), BOSS)


#: Plans that need no right on a table, or whose rights are looked at elsewhere, and where.
ELSEWHERE = {
    # Tables of a session: tests/server/test_temp_tables.py.
    plans.TempRead: "the plan inside is one of the others",
    plans.TempWrite: "the plan inside is one of the others",
    plans.AclPlan: "below: users and rights",
    plans.AlterSystemPlan: "below: the queue",
    plans.RoutinePlan: "below: views and procedures",
    plans.SessionPlan: "a session's own",
    plans.NamedPlan: "what it prepares, executes and reads: tests/server/test_named_statements.py",
    plans.CallPlan: "each call for itself: tests/server/test_calls.py",
    plans.NumbersPlan: "WRITE: tests/server/test_identity.py",
    plans.CatalogRead: "everybody's",
    plans.AttemptPlan: "those of the statement inside: tests/server/test_attempts.py",
    plans.LockPlan: "everybody's; the query of its arguments is one of the others",
    plans.EmptyPlan: "nothing",
    plans.TempRead: "a session's own, and the tables beside it: tests/server/test_temp_tables.py",
    plans.TempWrite: "likewise",
    plans.KeyedWrite: "as ScatterWrite: which of them it is depends on the columns",
}


def test_the_matrix_has_every_kind_of_statement() -> None:
    """A new kind of plan has to come into it, or say where its rights are looked at."""
    seen: set[type] = set()
    for each, kind in cases():
        plan = planned(text_of(each, TABLES[kind]), ANN).plan
        seen |= {type(plan), type(plans.carried_out(plan))}
    assert set(get_args(plans.Plan)) - seen - set(ELSEWHERE) == set()
    assert seen & {plans.AclPlan, plans.SessionPlan, plans.EmptyPlan} == set()


#: What ann needs to make, change and drop views and procedures that are the admin's.
ROUTINES: dict[str, tuple[str, str, int]] = {
    "CREATE VIEW n AS SELECT 1 AS x": ("create", "table", ALL_OBJECTS),
    "DROP VIEW v_of_t": ("drop", "view", 3000),
    "ALTER VIEW v_of_t RENAME TO n": ("alter", "view", 3000),
    "CREATE PROCEDURE n(INT) LANGUAGE SQL AS $$ DELETE FROM own WHERE id = $1 $$": (
        "create", "procedure", ALL_OBJECTS,
    ),
    "DROP PROCEDURE p_of_t": ("drop", "procedure", 4000),
    "ALTER PROCEDURE p_of_t RENAME TO n": ("alter", "procedure", 4000),
}  # fmt: skip


@pytest.mark.parametrize("text", ROUTINES)
def test_views_and_procedures_are_changed_by_those_who_may(text: str) -> None:
    enough = ROUTINES[text]

    def allowed(known: Catalog, user: int = ANN) -> bool:
        try:
            prepare(text, known, user_id=user).check_rights(user, known)
        except AccessDenied:
            return False
        return True

    wrong = []
    for kind, where in itertools.product(
        ("table", "view", "procedure", "user", "role"), (ALL_OBJECTS, 3000, 3001, 4000, 4001, 1024)
    ):
        for right in (*RIGHTS, "execute"):
            is_enough = (
                right == enough[0] and kind == enough[1] and where in (enough[2], ALL_OBJECTS)
            )
            if allowed(catalog(Privilege(ANN, right, kind, where))) is not is_enough:
                wrong.append((right, kind, where, "expected", is_enough))
    assert wrong == []
    assert not allowed(catalog())
    assert allowed(catalog(), ADMIN_ID)
    assert allowed(catalog(), BOSS)


def test_a_procedure_needs_the_right_to_execute_it_and_those_of_its_statements() -> None:
    rights = [Privilege(ANN, right, "table", 1024) for right in ("read", "delete")]
    known = catalog(*rights)
    without = msgspec.structs.replace(
        known, privileges=known.privileges - {Privilege(ANN, "execute", "procedure", 4000)}
    )
    for held, expected in ((known, True), (without, False)):
        assert is_allowed("CALL p_of_{t}({x})", TABLES["user"], held) is expected


def test_rights_of_a_role_are_those_of_who_has_it() -> None:
    given = Privilege(ROLE, "read", "table", 1024)
    statement = "SELECT 1 FROM {t}"
    assert not is_allowed(statement, TABLES["user"], catalog(given))
    known = catalog(given, Privilege(ANN, "execute", "role", ROLE))
    assert is_allowed(statement, TABLES["user"], known)


# --- users and rights -----------------------------------------------------------------------------

#: Statement → the rights of which any one is enough; None: an administrator alone.
ACCESS: dict[str, list[tuple[str, str, int]] | None] = {
    "CREATE USER n WITH PASSWORD 'Passw0rd1'": [("create", "user", ALL_OBJECTS)],
    "CREATE ROLE n": [("create", "role", ALL_OBJECTS)],
    "ALTER USER bob WITH PASSWORD 'Passw0rd1'": [("alter", "user", BOB), ("alter", "user", -1)],
    "ALTER USER bob WITH NOLOGIN": [("alter", "user", BOB), ("alter", "user", -1)],
    "GRANT LOGIN TO bob": [("alter", "user", BOB), ("alter", "user", -1)],
    "ALTER USER bob RENAME TO n": [("alter", "user", BOB), ("alter", "user", -1)],
    "DROP USER bob": [("drop", "user", BOB), ("drop", "user", -1)],
    "DROP ROLE readers": [("drop", "role", ROLE), ("drop", "role", -1)],
    "ALTER USER ann WITH LOGIN": [("alter", "user", -1)],
    "ALTER USER ann RENAME TO n": [("alter", "user", -1)],
    "ALTER USER admin WITH PASSWORD 'Passw0rd1'": [("alter", "user", ADMIN_ID)],
    "ALTER USER boss WITH PASSWORD 'Passw0rd1'": [("alter", "user", BOSS)],
    "DROP USER boss": [("drop", "user", BOSS)],
    "GRANT super TO ann": None,
    "GRANT readers TO ann": None,
    "REVOKE super FROM boss": None,
    "GRANT READ ON TABLE t TO ann": None,
    "GRANT READ TABLE TO ann": None,
    "GRANT ALTER USER TO ann": None,
    "GRANT READ ON TABLE _pico_user TO ann": None,
    "REVOKE READ ON TABLE t FROM bob": None,
}


@pytest.mark.parametrize("text", ACCESS)
def test_users_and_rights_are_changed_by_those_who_may(text: str) -> None:
    enough = ACCESS[text] or []
    plan = prepare(text, catalog(), user_id=ANN).plan
    assert isinstance(plan, AclPlan)

    def allowed(known: Catalog, user: int = ANN) -> bool:
        try:
            check_access(plan, known, user)
        except AccessDenied:
            return False
        return True

    wrong = []
    for kind, where in (
        ("user", ALL_OBJECTS), ("role", ALL_OBJECTS), ("user", BOB), ("user", BOSS),
        ("user", ADMIN_ID), ("role", ROLE), ("table", ALL_OBJECTS), ("table", 1024),
    ):  # fmt: skip
        for right in RIGHTS:
            known = catalog(Privilege(ANN, right, kind, where))
            if allowed(known) is not ((right, kind, where) in enough):
                wrong.append((right, kind, where))
    assert wrong == []
    assert not allowed(catalog())
    assert allowed(catalog(), ADMIN_ID)
    assert allowed(catalog(), BOSS)


def test_everybody_changes_their_own_password() -> None:
    plan = prepare("ALTER USER ann WITH PASSWORD 'Passw0rd1'", catalog(), user_id=ANN).plan
    assert isinstance(plan, AclPlan)
    check_access(plan, catalog(), ANN)


def test_the_owner_of_a_table_gives_rights_on_it() -> None:
    plan = prepare("GRANT INSERT ON TABLE own TO bob", catalog(), user_id=ANN).plan
    assert isinstance(plan, AclPlan)
    check_access(plan, catalog(), ANN)


# --- what is stored -------------------------------------------------------------------------------


def changed(text: str, *before: Privilege) -> set[str]:
    """What bob may do with t after a statement of the admin."""
    known = catalog(*before)
    plan = prepare(text, known).plan
    assert isinstance(plan, AclPlan)
    held = {right.privilege for right in before}
    for op in access_ops(plan, known, ADMIN_ID, str):
        match op:
            case Insert(row=row):
                held.add(row[PRIVILEGE])
            case Delete(key=key):
                held.remove(key[3])
            case _:
                raise AssertionError(op)
    return held


PRIVILEGE = 2  # its place in a row


def bobs(*rights: str) -> list[Privilege]:
    return [Privilege(BOB, right, "table", 1024) for right in rights]


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("GRANT SELECT ON TABLE t TO bob", (), {"read"}),
        ("GRANT INSERT, DELETE ON TABLE t TO bob", (), {"insert", "delete"}),
        ("GRANT WRITE ON TABLE t TO bob", ("insert",), {"insert", "write"}),
        ("REVOKE WRITE ON TABLE t FROM bob", ("write", "insert", "read"), {"read"}),
        ("REVOKE INSERT ON TABLE t FROM bob", ("write",), {"update", "delete", "truncate"}),
        ("REVOKE INSERT ON TABLE t FROM bob", ("insert", "update"), {"update"}),
        ("REVOKE INSERT, WRITE ON TABLE t FROM bob", ("write", "insert"), set()),
    ],
)
def test_write_is_a_name_for_its_parts(text: str, before: tuple[str, ...], after: set[str]) -> None:
    assert changed(text, *bobs(*before)) == after


def test_the_id_of_a_user_is_never_given_again() -> None:
    plan = prepare("CREATE USER n WITH PASSWORD 'Passw0rd1'", catalog()).plan
    assert isinstance(plan, AclPlan)
    first, fact, *_ = access_ops(plan, catalog(), ADMIN_ID, str, last_user_id=90)
    assert isinstance(first, Insert) and first.row[0] == 91
    assert isinstance(fact, Replace) and fact.row == ("last_user_id", "91")


# --- the queue ------------------------------------------------------------------------------------


def queued(text: str) -> Dml:
    row: list[object] = [None] * len(PICO_GOVERNOR_QUEUE.columns)
    row[PICO_GOVERNOR_QUEUE.position("op")] = text
    return Insert(PICO_GOVERNOR_QUEUE.id, tuple(row))


@pytest.mark.parametrize(
    ("text", "rights", "expected"),
    [
        ("GRANT super TO ann", RIGHTS, False),
        ("ALTER USER admin WITH PASSWORD 'Passw0rd1'", RIGHTS, False),
        ("DROP TABLE t", ("write",), False),
        ("DROP TABLE t", ("drop",), True),
        ("DELETE FROM t", ("write",), True),
        ("DROP TABLE own", (), True),
        ("INSERT INTO nowhere VALUES (1)", (), True),  # its rights are looked at when it runs
        ("ALTER SYSTEM SET sql_motion_row_max = 1", RIGHTS, False),
    ],
)
def test_nobody_queues_what_they_may_not_do(
    text: str, rights: tuple[str, ...], expected: bool
) -> None:
    known = catalog(*(Privilege(ANN, right, "table", ALL_OBJECTS) for right in rights))
    try:
        check_queued_rights((queued(text),), known, ANN)
        allowed = True
    except AccessDenied:
        allowed = False
    assert allowed is expected
    check_queued_rights((queued(text),), known, ADMIN_ID)


def test_a_queued_operation_belongs_to_who_wrote_its_text() -> None:
    op, owner = PICO_GOVERNOR_QUEUE.position("op"), PICO_GOVERNOR_QUEUE.position("owner")
    claimed = queued("SELECT 1")
    assert isinstance(claimed, Insert)
    claimed = Insert(claimed.table, (*claimed.row[:owner], ADMIN_ID))
    made = owned(claimed, ANN)
    assert isinstance(made, Insert) and made.row[owner] == ANN
    mended = owned(Update(claimed.table, (1,), ((op, "SELECT 2"), (owner, ANN))), BOSS)
    assert isinstance(mended, Update) and dict(mended.changes) == {op: "SELECT 2", owner: BOSS}
    given = owned(Update(claimed.table, (1,), ((owner, ANN), (4, "pending"))), BOSS)
    assert isinstance(given, Update) and dict(given.changes) == {4: "pending"}


def test_what_another_has_queued_is_changed_by_an_administrator_alone() -> None:
    status = PICO_GOVERNOR_QUEUE.position("status")
    for change in (
        Update(PICO_GOVERNOR_QUEUE.id, (1,), ((status, "pending"),)),
        Delete(PICO_GOVERNOR_QUEUE.id, (1,)),
        Replace(PICO_GOVERNOR_QUEUE.id, queued("SELECT 1").row),  # type: ignore[union-attr]
    ):
        with pytest.raises(AccessDenied):
            check_queued_rights((change,), catalog(), ANN)
        check_queued_rights((change,), catalog(), BOSS)


@pytest.mark.parametrize("text", ["GRANT readers TO readers", "GRANT writers TO readers"])
def test_no_role_has_itself(text: str) -> None:
    writers = User(BOSS + 1, "writers", "role")
    known = catalog(Privilege(writers.id, "execute", "role", ROLE))
    known = msgspec.structs.replace(known, users={**USERS, "writers": writers})
    plan = prepare(text, known, user_id=ADMIN_ID).plan
    assert isinstance(plan, AclPlan)
    with pytest.raises(InvalidGrant, match='role "readers" is a member of role'):
        access_ops(plan, known, ADMIN_ID, str)
