"""The rows of PostgreSQL's catalogue tables, made from our own catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cairn.model.tables.catalog import ADMIN_ID, FIRST_ROUTINE_ID, SUPER_ID, Catalog, User, View
from cairn.model.tables.schema import Column, Index, Table, type_modifier
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ELEMENTS, OIDS, ColumnType
from cairn.server.catalog import information
from cairn.server.catalog.foreign_keys import constraint_row, information_rows, unique_of
from cairn.server.catalog.schema import (
    ARRAYS,
    BTREE,
    DATABASE,
    HEAP,
    INFORMATION_SCHEMA,
    PUBLIC_SCHEMA,
    SYSTEM_SCHEMA,
    TEMP_SCHEMA,
    TYPES,
    type_functions,
)
from cairn.server.catalog.sequences import sequence_rows, sequences

_FIRST_FUNCTION = 14_000  # of those that read and write types
_FIRST_INDEX_OID = 1_000_000
_FIRST_VIEW_OID = 2_000_000_000
_FIRST_ROW_TYPE = (
    1_500_000_000  # nobody looks at them, but who asks for tables asks whether one is there
)

Values = dict[str, Any]


def index_oid(table_id: int, index_id: int) -> int:
    """0 is the primary key, as in `_pico_index`."""
    return _FIRST_INDEX_OID + table_id * 1000 + index_id


def check_oid(table_id: int, at: int) -> int:
    return index_oid(table_id, 500 + at)


def key_oid(table_id: int, at: int) -> int:
    """Of a foreign key."""
    return index_oid(table_id, 700 + at)


def sequence_oid(table: Table) -> int:
    """Its own, or that of the numbers of its identity column: a table has one at most."""
    return table.id if table.is_sequence else index_oid(table.id, 900)


def view_oid(view: View) -> int:
    return _FIRST_VIEW_OID + view.id - FIRST_ROUTINE_ID


def about(table: Table) -> str:
    """What \\d+ and \\dt+ print as the description: the comment, or how rows are distributed."""
    if table.description and not table.is_system:
        return table.description
    if table.sharding is None:
        how = "local to each instance" if table.local else "global"
    elif table.is_temp:
        how = "temporary, of this session"
    else:
        how = f"sharded by ({', '.join(table.sharding.columns)}) in tier {table.sharding.tier}"
        if not table.sharding.columns:
            how = f"all rows together in tier {table.sharding.tier}"
    return f"{table.description}; {how}" if table.description else how


def distribution(table: Table) -> str:
    """The same as the clause that makes it so."""
    if table.sharding is None:
        return "LOCAL TO EACH INSTANCE" if table.local else "DISTRIBUTED GLOBALLY"
    if table.is_temp:
        return "IN THIS SESSION"
    return f"DISTRIBUTED BY ({', '.join(table.sharding.columns)}) IN TIER {table.sharding.tier}"


def all_indexes(catalog: Catalog, table: Table) -> list[Index]:
    found = list(catalog.indexes.get(table.id, ()))
    if table.has_hidden_key:
        return found
    return [Index(table.id, 0, table.key_name, table.primary_key, unique=True), *found]


def is_primary(table: Table, index: Index) -> bool:
    """The key that a table was made with, or the one that was added to a table without one."""
    added = table.has_hidden_key and index.unique and index.name == f"{table.name}_pkey"
    return index.id == 0 or added


def rows(catalog: Catalog) -> Iterator[tuple[str, Values]]:
    """Every row of every table, as (table, values); what is not named is NULL."""
    yield from _fixed()
    for user in catalog.users.values():
        yield from _role(catalog, user)
    for right in catalog.privileges:
        if right.object_type == "role" and right.privilege == "execute":
            yield (
                "pg_auth_members",
                {"roleid": right.object_id, "member": right.grantee_id, "admin_option": 0},
            )
    owners = {user.id: user.name for user in catalog.users.values()}
    for table in catalog.tables.values():
        if not table.is_sequence:
            yield from _table(catalog, table, owners.get(table.owner, "admin"))
    for view in catalog.views.values():
        yield from _view(view)
    for enum in catalog.types.values():
        yield from _enum(enum)
    for each in sequences(catalog):
        oid, owner = sequence_oid(each.table), owners.get(each.table.owner, "admin")
        row = _class(oid, each.name, PUBLIC_SCHEMA, "S", each.table.owner, 3)
        if each.table.is_sequence:
            row["relacl"] = _rights(catalog, each.table, owner)
        yield "pg_class", {**row, "relam": 0}
        yield from sequence_rows(each, oid, owner)


def temp_rows(catalog: Catalog) -> Iterator[tuple[str, Values]]:
    """Those of a session's temporary tables, which come on top of what everybody sees."""
    schema = f"pg_temp_{catalog.session}"
    yield "pg_namespace", {"oid": TEMP_SCHEMA, "nspname": schema, "nspowner": ADMIN_ID}
    owners = {user.id: user.name for user in catalog.users.values()}
    for table in catalog.temps.values():
        for name, row in _table(catalog, table, owners.get(table.owner, "admin")):
            for key in ("relnamespace", "connamespace"):
                if key in row:
                    row[key] = TEMP_SCHEMA
            for key in ("schemaname", "table_schema", "constraint_schema"):
                if key in row:
                    row[key] = schema
            if name == "information_schema_tables":
                row["table_type"] = "LOCAL TEMPORARY"
            yield name, {**row, **({"relpersistence": "t"} if "relpersistence" in row else {})}


def _view(view: View) -> Iterator[tuple[str, Values]]:
    oid = view_oid(view)
    row = _class(oid, view.name, PUBLIC_SCHEMA, "v", view.owner, len(view.columns))
    yield "pg_class", {**row, "relam": 0}
    yield from information.view_rows(view)
    for at, (name, type_) in enumerate(zip(view.columns, view.types, strict=True), 1):
        yield "pg_attribute", _attribute(oid, at, name, type_, False)


def _enum(enum: EnumType) -> Iterator[tuple[str, Values]]:
    both = {
        **dict.fromkeys(("typrelid", "typbasetype", "typndims", "typcollation", "typnotnull"), 0),
        "typnamespace": PUBLIC_SCHEMA,
        "typowner": enum.owner,
        "typdelim": ",",
        "typisdefined": 1,
        "typtypmod": -1,
    }
    own = {"typlen": 4, "typbyval": 1, "typtype": "e", "typcategory": "E"}
    listed = {"typlen": -1, "typbyval": 0, "typtype": "b", "typcategory": "A"}
    names = {"oid": enum.oid, "typname": enum.name, "typarray": enum.oid + 1, "typelem": 0}
    yield "pg_type", {**both, **own, **names, **type_functions("enum")}
    names = {"oid": enum.oid + 1, "typname": f"_{enum.name}", "typarray": 0, "typelem": enum.oid}
    yield "pg_type", {**both, **listed, **names, **type_functions("array")}
    for at, label in enumerate(enum.labels, 1):
        # Of their numbers only that they differ is asked.
        row = {"oid": (enum.oid - 1_000_000_000) + at, "enumtypid": enum.oid}
        yield "pg_enum", {**row, "enumsortorder": at, "enumlabel": label}


def _fixed() -> Iterator[tuple[str, Values]]:
    for oid, name in (
        (SYSTEM_SCHEMA, "pg_catalog"),
        (PUBLIC_SCHEMA, "public"),
        (INFORMATION_SCHEMA, "information_schema"),
    ):
        yield "pg_namespace", {"oid": oid, "nspname": name, "nspowner": ADMIN_ID}
        yield "information_schema_schemata", {"catalog_name": DATABASE, "schema_name": name}
    yield "pg_am", {"oid": HEAP, "amname": "memtx", "amtype": "t"}
    yield "pg_am", {"oid": BTREE, "amname": "btree", "amtype": "i"}
    yield "pg_tablespace", {"oid": 1663, "spcname": "pg_default", "spcowner": ADMIN_ID}
    yield "pg_collation", {"oid": 950, "collname": "C", "collnamespace": SYSTEM_SCHEMA}
    yield (
        "pg_database",
        {
            "oid": 1,
            "datname": DATABASE,
            "datdba": ADMIN_ID,
            "encoding": 6,
            "datlocprovider": "c",
            "datistemplate": 0,
            "datallowconn": 1,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datcollate": "C",
            "datctype": "C",
        },
    )
    names = [name for _, name, _, _, _ in TYPES.values()]
    found = [each for name in (*names, "array", "enum") for each in type_functions(name).values()]
    for oid, name in enumerate(found, _FIRST_FUNCTION):
        row = {"oid": oid, "proname": name, "pronamespace": SYSTEM_SCHEMA, "prokind": "f"}
        yield "pg_proc", {**row, "proowner": SUPER_ID, "prorettype": 0, "proargtypes": ""}
    for oid, (_, name, length, category, array) in TYPES.items():
        base = {"typnamespace": SYSTEM_SCHEMA, "typtype": "b", "typdelim": ",", "typisdefined": 1}
        yield (
            "pg_type",
            {
                **base,
                "oid": oid,
                "typname": name,
                "typlen": length,
                "typcategory": category,
                "typarray": array,
                "typelem": 0,
                "typrelid": 0,
                **type_functions(name),
                "typbasetype": 0,
                "typtypmod": -1,
            },
        )
        yield (
            "pg_type",
            {
                **base,
                "oid": array,
                "typname": f"_{name}",
                "typlen": -1,
                "typcategory": "A",
                "typarray": 0,
                "typelem": oid,
                "typrelid": 0,
                **type_functions("array"),
                "typbasetype": 0,
                "typtypmod": -1,
            },
        )


#: Our rights in the letters of PostgreSQL's access lists; what has none is left out there.
_LETTERS = {
    "read": "r",
    "write": "awdD",
    "insert": "a",
    "update": "w",
    "delete": "d",
    "truncate": "D",
    "references": "x",
    "alter": "t",
}


def _rights(catalog: Catalog, table: Table, owner: str) -> str | None:
    """Who may do what with the table, as \\dp shows it: `user=rights/grantor`, one each."""
    names = {user.id: user.name for user in catalog.users.values()}
    found: dict[str, str] = {}
    for right in sorted(catalog.privileges, key=lambda each: (each.grantee_id, each.privilege)):
        if right.object_type == "table" and right.object_id == table.id:
            name = names.get(right.grantee_id, str(right.grantee_id))
            found[name] = found.get(name, "") + _LETTERS.get(right.privilege, "")
    if not found:
        return None
    listed = ",".join(
        f"{'' if name == 'public' else name}={rights}/{owner}" for name, rights in found.items()
    )
    return "{" + listed + "}"


def _role(catalog: Catalog, user: User) -> Iterator[tuple[str, Values]]:
    is_super = user.id in (ADMIN_ID, SUPER_ID)
    creates = is_super or catalog.allows(user.id, "create", "user", -1)
    is_user = user.kind == "user"
    yield (
        "pg_roles",
        {
            "oid": user.id,
            "rolname": user.name,
            "rolsuper": int(is_super),
            "rolinherit": 1,
            "rolcreaterole": int(creates),
            "rolcreatedb": 0,
            "rolcanlogin": int(is_user),
            "rolreplication": 0,
            "rolconnlimit": -1,
            "rolpassword": "********",
            "rolbypassrls": 0,
        },
    )
    if is_user:
        yield "pg_user", {"usename": user.name, "usesysid": user.id, "usesuper": int(is_super)}


def _table(catalog: Catalog, table: Table, owner: str) -> Iterator[tuple[str, Values]]:
    space, schema = (SYSTEM_SCHEMA, "pg_catalog") if table.is_system else (PUBLIC_SCHEMA, "public")
    row = _class(table.id, table.name, space, "r", table.owner, len(table.columns))
    yield "pg_class", {**row, "relacl": _rights(catalog, table, owner), "relhasrules": 1}
    yield (
        "pg_rewrite",
        {
            "oid": table.id,
            "rulename": "distribution",
            "ev_class": table.id,
            "ev_enabled": "O",
            "is_instead": 0,
        },
    )
    indexes = all_indexes(catalog, table)
    named = [(index, is_primary(table, index)) for index in indexes]
    yield from information.table_rows(table, named)
    yield "pg_tables", {"schemaname": schema, "tablename": table.name, "tableowner": owner}
    described = {"objoid": table.id, "objsubid": 0, "description": about(table)}
    if table.description and not table.is_system:  # a comment, and not how rows are distributed
        described["classoid"] = 1259
    yield "pg_description", described
    for at, column in enumerate(table.columns, 1):
        if column.is_hidden:
            continue
        if column.comment:
            said = {"objoid": table.id, "classoid": 1259, "objsubid": at}
            yield "pg_description", {**said, "description": column.comment}
        not_null = column.name in table.primary_key or not column.nullable
        attribute = _attribute(table.id, at, column.name, column.type, not_null)
        if column.enum is not None:
            attribute |= {"atttypid": column.enum.oid, "attlen": 4}
        if (shown := information.shown_default(column)) is not None:
            attribute["atthasdef"] = 1
            default = {"oid": table.id * 10_000 + at, "adrelid": table.id, "adnum": at}
            yield "pg_attrdef", {**default, "adbin": shown}
        if column.identity is not None:
            attribute["attidentity"] = "a" if column.identity.always else "d"
        if column.sizes:
            attribute |= _sized(column)
        yield "pg_attribute", attribute
    for index in indexes:
        yield from _index(table, index, space, schema)
    yield from _foreign_keys(catalog, table, space)
    for at, check in enumerate(table.checks):
        yield (
            "pg_constraint",
            {
                **dict.fromkeys(("condeferrable", "condeferred", "coninhcount"), 0),
                **dict.fromkeys(("conindid", "contypid", "confrelid", "conparentid"), 0),
                **dict.fromkeys(("convalidated", "conislocal"), 1),
                "oid": check_oid(table.id, at),
                "conname": check.name,
                "connamespace": space,
                "contype": "c",
                "conrelid": table.id,
                "connoinherit": 0,
                "conbin": check.text,
                "conkey": _listed(check.places),
            },
        )


def _foreign_keys(catalog: Catalog, table: Table, space: int) -> Iterator[tuple[str, Values]]:
    for at, key in enumerate(table.foreign_keys):
        found = unique_of(catalog, key)
        index = 0 if found is None else index_oid(found[0].id, found[1].id)
        oid = key_oid(table.id, at)
        yield "pg_constraint", constraint_row(catalog, table, key, oid, space, index)
    yield from information_rows(catalog, table)


def _sized(column: Column) -> Values:
    """Type and modifier as PostgreSQL has them for NUMERIC(10, 2), VARCHAR(20), TIMESTAMP(3)."""
    found: Values = {"atttypid": column.oid, "atttypmod": type_modifier(column)}
    if column.width is not None and column.type not in ELEMENTS:
        found["attlen"] = column.width.value
    return found


def _class(oid: int, name: str, space: int, kind: str, owner: int, column_count: int) -> Values:
    flags = ("relisshared", "relhasrules", "relhastriggers", "relhassubclass", "relrowsecurity")
    return {
        **dict.fromkeys((*flags, "relforcerowsecurity", "relispartition"), 0),
        "oid": oid,
        "relname": name,
        "relnamespace": space,
        "relowner": owner,
        "relkind": kind,
        "relam": HEAP if kind == "r" else BTREE,
        "relnatts": column_count,
        "relhasindex": int(kind == "r"),
        "relpersistence": "p",
        "relreplident": "d",
        "reltablespace": 0,
        "relchecks": 0,
        "reltuples": -1,
        "relpages": 0,
        "reltype": _FIRST_ROW_TYPE + oid if kind in "rv" else 0,
        "reloftype": 0,
        "reltoastrelid": 0,
        "relfilenode": oid,
        "relispopulated": 1,
    }


def _attribute(relation: int, at: int, name: str, type_: ColumnType, not_null: bool) -> Values:
    oid = OIDS[type_]
    return {
        "attrelid": relation,
        "attnum": at,
        "attname": name,
        "atttypid": oid,
        "attlen": TYPES[oid][2] if oid in TYPES else -1,
        "atttypmod": -1,
        "attndims": int(oid in ARRAYS),
        "attnotnull": int(not_null),
        "atthasdef": 0,
        "attidentity": "",
        "attgenerated": "",
        "attisdropped": 0,
        "attislocal": 1,
        "attinhcount": 0,
        "attcollation": 0,
        "attstorage": "p",
        "attcompression": "",
        "attstattarget": -1,
        "atthasmissing": 0,
    }


def _index(table: Table, index: Index, space: int, schema: str) -> Iterator[tuple[str, Values]]:
    oid = index_oid(table.id, index.id)
    parts = index.parts
    numbers = [table.position(part) + 1 if isinstance(part, str) else 0 for part in parts]
    yield "pg_class", _class(oid, index.name, space, "i", table.owner, len(parts))
    yield (
        "pg_index",
        {
            "indexrelid": oid,
            "indrelid": table.id,
            "indkey": _words(numbers),
            "indnatts": len(numbers),
            "indnkeyatts": len(numbers),
            "indisunique": int(index.unique),
            "indisprimary": int(is_primary(table, index)),
            **dict.fromkeys(("indisexclusion", "indisclustered", "indisreplident"), 0),
            **dict.fromkeys(("indimmediate", "indisvalid", "indisready", "indislive"), 1),
            "indnullsnotdistinct": 0,
            "indoption": _words([0] * len(numbers)),
            "indpred": f"({index.where})" if index.where else None,
            "indexprs": ", ".join(each.text for each in index.computed) or None,
        },
    )
    yield (
        "pg_indexes",
        {
            "schemaname": schema,
            "tablename": table.name,
            "indexname": index.name,
            "indexdef": definition(table, index),
        },
    )
    for at, part in enumerate(parts, 1):
        if isinstance(part, str):
            type_ = table.columns[table.position(part)].type
            yield "pg_attribute", _attribute(oid, at, part, type_, False)
        else:
            name = part.text.partition("(")[0].strip() or "expr"
            yield "pg_attribute", _attribute(oid, at, name, part.type, False)
    if index.is_key:
        yield (
            "pg_constraint",
            {
                "oid": oid,
                "conname": index.name,
                "connamespace": space,
                "contype": "p" if is_primary(table, index) else "u",
                "condeferrable": 0,
                "condeferred": 0,
                "convalidated": 1,
                "conislocal": 1,
                "conrelid": table.id,
                "conindid": oid,
                "contypid": 0,
                "confrelid": 0,
                "conparentid": 0,
                "coninhcount": 0,
                "connoinherit": 1,
                "conkey": _listed(numbers),
            },
        )


def definition(table: Table, index: Index) -> str:
    unique = "UNIQUE " if index.unique else ""
    schema = "pg_catalog" if table.is_system else "public"
    columns = ", ".join(index.words)
    made = f"CREATE {unique}INDEX {index.name} ON {schema}.{table.name} USING btree ({columns})"
    return f"{made} WHERE ({index.where})" if index.where else made


def _listed(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _words(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))
