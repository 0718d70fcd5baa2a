"""Type OIDs as PostgreSQL numbers them, with the sizes and names that go over the wire."""

from __future__ import annotations

from typing import Final

INFER: Final = 0  # in Parse: the server is to find the type
BOOL: Final = 16
BYTEA: Final = 17
CHAR: Final = 18
NAME: Final = 19
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
OID: Final = 26
JSON: Final = 114
FLOAT4: Final = 700
FLOAT8: Final = 701
UNKNOWN: Final = 705
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIME: Final = 1083
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
INTERVAL: Final = 1186
NUMERIC: Final = 1700
UUID: Final = 2950
JSONB: Final = 3802

BOOL_ARRAY: Final = 1000
BYTEA_ARRAY: Final = 1001
INT2_ARRAY: Final = 1005
INT4_ARRAY: Final = 1007
TEXT_ARRAY: Final = 1009
NAME_ARRAY: Final = 1003
VARCHAR_ARRAY: Final = 1015
OID_ARRAY: Final = 1028
INT8_ARRAY: Final = 1016
FLOAT4_ARRAY: Final = 1021
FLOAT8_ARRAY: Final = 1022
TIMESTAMP_ARRAY: Final = 1115
DATE_ARRAY: Final = 1182
TIME_ARRAY: Final = 1183
TIMESTAMPTZ_ARRAY: Final = 1185
INTERVAL_ARRAY: Final = 1187
NUMERIC_ARRAY: Final = 1231
UUID_ARRAY: Final = 2951
JSONB_ARRAY: Final = 3807

TYPE_NAMES: Final[dict[int, str]] = {
    BOOL: "bool",
    BYTEA: "bytea",
    CHAR: "char",
    NAME: "name",
    INT8: "int8",
    INT2: "int2",
    INT4: "int4",
    TEXT: "text",
    OID: "oid",
    JSON: "json",
    FLOAT4: "float4",
    FLOAT8: "float8",
    UNKNOWN: "unknown",
    BPCHAR: "bpchar",
    VARCHAR: "varchar",
    DATE: "date",
    TIME: "time",
    TIMESTAMP: "timestamp",
    TIMESTAMPTZ: "timestamptz",
    INTERVAL: "interval",
    NUMERIC: "numeric",
    UUID: "uuid",
    JSONB: "jsonb",
}

ARRAY_ELEMENTS: Final[dict[int, int]] = {
    BOOL_ARRAY: BOOL,
    BYTEA_ARRAY: BYTEA,
    INT2_ARRAY: INT2,
    INT4_ARRAY: INT4,
    INT8_ARRAY: INT8,
    TEXT_ARRAY: TEXT,
    NAME_ARRAY: TEXT,
    VARCHAR_ARRAY: VARCHAR,
    OID_ARRAY: OID,
    FLOAT4_ARRAY: FLOAT4,
    FLOAT8_ARRAY: FLOAT8,
    NUMERIC_ARRAY: NUMERIC,
    UUID_ARRAY: UUID,
    TIMESTAMPTZ_ARRAY: TIMESTAMPTZ,
    TIMESTAMP_ARRAY: TIMESTAMP,
    DATE_ARRAY: DATE,
    TIME_ARRAY: TIME,
    INTERVAL_ARRAY: INTERVAL,
    JSONB_ARRAY: JSONB,
}

# pg_type.typlen, told in RowDescription; everything else has no fixed size (-1).
TYPE_SIZES: Final[dict[int, int]] = {
    BOOL: 1,
    CHAR: 1,
    NAME: 64,
    INT8: 8,
    INT2: 2,
    INT4: 4,
    OID: 4,
    FLOAT4: 4,
    FLOAT8: 8,
    UNKNOWN: -2,
    DATE: 4,
    TIME: 8,
    TIMESTAMP: 8,
    TIMESTAMPTZ: 8,
    INTERVAL: 16,
    UUID: 16,
}


def type_name(oid: int) -> str:
    """The name people know: `int8`, `text[]`; the bare number for a type we do not have."""
    if oid in ARRAY_ELEMENTS:
        return TYPE_NAMES[ARRAY_ELEMENTS[oid]] + "[]"
    return TYPE_NAMES.get(oid, str(oid))
