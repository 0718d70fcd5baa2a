"""Foreign keys and sequences × every right: what may be asked through them, and who may."""

from __future__ import annotations

import msgspec
import pytest

from cairn.model.errors import AccessDenied
from cairn.model.members.topology import Tier
from cairn.model.tables.catalog import ADMIN_ID, ALL_OBJECTS, Catalog, Privilege
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.tables.sequences import sequence_table
from cairn.model.types.values import ColumnType
from cairn.sql.api import prepare
from tests.node.test_rights import ANN, BASE, BOSS, RIGHTS, USERS

PARENT, CHILD, OWN, SEQUENCE, UNUSED, NUMBERED = range(1024, 1030)


def together(table_id: int, name: str, owner: int) -> Table:
    columns = (Column("id", ColumnType.INTEGER, False), Column("p", ColumnType.INTEGER))
    return Table(table_id, name, columns, ("id",), Sharded((), "default"), owner=owner)


def sequence(table_id: int, name: str) -> Table:
    return msgspec.structs.replace(sequence_table(name, 1, 1, ADMIN_ID), id=table_id)


def numbered() -> Table:
    """A table of ann whose DEFAULT takes numbers of the admin's sequence."""
    plain = together(NUMBERED, "numbered", ANN)
    first = msgspec.structs.replace(plain.columns[0], default="nextval('s')")
    return msgspec.structs.replace(plain, columns=(first, plain.columns[1]))


TABLES = (
    together(PARENT, "parent", ADMIN_ID),
    together(CHILD, "child", ADMIN_ID),
    together(OWN, "own", ANN),
    sequence(SEQUENCE, "s"),
    sequence(UNUSED, "unused"),
    numbered(),
)
MAKES = Privilege(ANN, "create", "table", ALL_OBJECTS)  # everybody here may make tables


def catalog(*rights: Privilege) -> Catalog:
    return Catalog(
        tables={each.name: each for each in TABLES},
        tiers={"default": Tier("default", 1)},
        users=USERS,
        privileges=frozenset((*BASE, MAKES, *rights)),
    )


FK = "FOREIGN KEY (p) REFERENCES parent"
#: Statement → the right that it needs, and on which table.
STATEMENTS: dict[str, tuple[str, int]] = {
    "CREATE TABLE n (id INT PRIMARY KEY, p INT REFERENCES parent) DISTRIBUTED BY ()": (
        "references",
        PARENT,
    ),
    f"CREATE TABLE n (id INT PRIMARY KEY, p INT, {FK} ON DELETE CASCADE) DISTRIBUTED BY ()": (
        "references",
        PARENT,
    ),
    f"ALTER TABLE own ADD {FK}": ("references", PARENT),
    f"ALTER TABLE own ADD COLUMN q INT, ADD CONSTRAINT k {FK} (id)": ("references", PARENT),
    "ALTER TABLE own ADD COLUMN q INT REFERENCES parent": ("references", PARENT),
    "SELECT nextval('s')": ("update", SEQUENCE),
    "INSERT INTO own VALUES (nextval('s'), 1)": ("update", SEQUENCE),
    "INSERT INTO numbered (p) VALUES (1)": ("update", SEQUENCE),
    "MERGE INTO own USING numbered s ON own.id = s.id WHEN NOT MATCHED THEN "
    "INSERT VALUES (nextval('s'), 1)": ("update", SEQUENCE),
    "SELECT setval('s', 7)": ("write", SEQUENCE),
    "ALTER SEQUENCE s RESTART": ("write", SEQUENCE),
    "DROP SEQUENCE unused": ("drop", UNUSED),
}


def is_allowed(text: str, known: Catalog, user: int = ANN) -> bool:
    try:
        prepare(text, known, user_id=user).check_rights(user, known)
    except AccessDenied:
        return False
    return True


@pytest.mark.parametrize("text", STATEMENTS)
def test_it_needs_its_right_and_no_other(text: str) -> None:
    right, table = STATEMENTS[text]
    wrong = []
    for given in RIGHTS:
        for where in (table, ALL_OBJECTS, 1099):
            held = given in (right, "write") if right == "update" else given == right
            expected = held and where != 1099
            if is_allowed(text, catalog(Privilege(ANN, given, "table", where))) is not expected:
                wrong.append((given, where, "expected", expected))
    assert wrong == []
    assert not is_allowed(text, catalog())
    assert is_allowed(text, catalog(), ADMIN_ID)
    assert is_allowed(text, catalog(), BOSS)


def test_a_key_towards_the_own_table_needs_no_right() -> None:
    for text in (
        "CREATE TABLE n (id INT PRIMARY KEY, p INT REFERENCES n) DISTRIBUTED BY ()",
        "CREATE TABLE n (id INT PRIMARY KEY, p INT REFERENCES own) DISTRIBUTED BY ()",
        "ALTER TABLE own ADD FOREIGN KEY (p) REFERENCES own",
    ):
        assert is_allowed(text, catalog()), text


def test_a_plan_is_made_anew_when_the_parent_is_another_table() -> None:
    """Else a statement that was prepared while ann had a `parent` would reach that of the admin."""
    text = "CREATE TABLE n (id INT PRIMARY KEY, p INT REFERENCES parent) DISTRIBUTED BY ()"
    assert prepare(text, catalog(), user_id=ANN).tables == {PARENT: TABLES[0].schema_version}
