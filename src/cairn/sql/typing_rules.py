"""Which type an expression has: casts, promotion of numbers, what may be compared with what."""

from __future__ import annotations

from collections.abc import Iterable

from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    UndefinedFunction,
    UndefinedObject,
    Unsupported,
)
from cairn.model.types.decimals import decode_decimal, key_form
from cairn.model.types.values import ELEMENTS, JSONS, LISTS, ColumnType, Physical
from cairn.sql.functions.functions import HEAVY, SCALARS
from cairn.sql.functions.lists import LETTERS, caster_name
from cairn.sql.ir import Call, Const, Expr, Type
from cairn.sql.scales import scale_of

B, I, D, N = ColumnType.BOOLEAN, ColumnType.INTEGER, ColumnType.DOUBLE, ColumnType.DECIMAL  # noqa: E741
S, U, T = ColumnType.STRING, ColumnType.UUID, ColumnType.DATETIME
Y, M, V = ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.INTERVAL
H, X = ColumnType.TIME, ColumnType.VARBINARY
JSON, JB = JSONS, ColumnType.JSONB
INCOMPARABLE = (
    *JSON,
    V,
    ColumnType.INTERVALS,
    ColumnType.JSONBS,
)  # equal values are not stored alike
UNORDERED = (*JSON, *ELEMENTS)  # lists are equal or not, no more
TIMES = {Y: 1, M: 2, T: 3}  # date → timestamp → timestamp with time zone
RANK = {I: 1, N: 2, D: 3}  # int → decimal → double

#: How the types are called in sentences, as in the reference.
NAMES: dict[Type, str] = {
    B: "bool",
    I: "int",
    ColumnType.UNSIGNED: "int",
    D: "double",
    N: "numeric",
    S: "text",
    U: "uuid",
    T: "datetime",
    Y: "date",
    M: "timestamp",
    V: "interval",
    H: "time",
    X: "bytea",
    ColumnType.MAP: "map",
    JB: "jsonb",
    ColumnType.ARRAY: "array",
    ColumnType.ANY: "any",
    None: "unknown",
}
NAMES.update({list_: f"{NAMES[of]}[]" for list_, of in ELEMENTS.items()})

#: How PostgreSQL calls them.
POSTGRES_NAMES: dict[Type, str] = {
    **NAMES,
    B: "boolean",
    I: "integer",
    ColumnType.UNSIGNED: "integer",
    D: "double precision",
    T: "timestamp with time zone",
    M: "timestamp without time zone",
    H: "time without time zone",
    **dict.fromkeys(JSON, "json"),
    JB: "jsonb",
}
POSTGRES_NAMES.update({list_: f"{POSTGRES_NAMES[of]}[]" for list_, of in ELEMENTS.items()})

#: Spellings in CREATE TABLE and CAST.
TYPE_WORDS: dict[str, ColumnType] = {
    **dict.fromkeys(("boolean", "bool"), B),
    **dict.fromkeys(("integer", "int", "int2", "int4", "int8", "smallint", "bigint", "oid"), I),
    "unsigned": ColumnType.UNSIGNED,
    **dict.fromkeys(("double", "double precision", "float8", "float", "real", "float4"), D),
    **dict.fromkeys(("decimal", "numeric"), N),
    **dict.fromkeys(
        ("text", "string", "varchar", "character varying", "char", "bpchar", "name", "character"),
        S,
    ),
    "uuid": U,
    **dict.fromkeys(("datetime", "timestamptz", "timestamp with time zone"), T),
    **dict.fromkeys(("timestamp", "timestamp without time zone"), M),
    "date": Y,
    "interval": V,
    **dict.fromkeys(("time", "time without time zone"), H),
    **dict.fromkeys(("bytea", "varbinary"), X),
    **dict.fromkeys(("json", "map"), ColumnType.MAP),
    "jsonb": JB,
    "array": ColumnType.ARRAY,
    "any": ColumnType.ANY,
}

#: Types of PostgreSQL that are refused by name, and what to take instead.
_ABSENT: dict[str, str] = {
    **dict.fromkeys(
        ("timetz", "time with time zone"),
        "use TIME, or TIMESTAMP WITH TIME ZONE where the zone matters",
    ),
    "money": "use NUMERIC(19, 2)",
    **dict.fromkeys(("inet", "cidr", "macaddr", "xml", "tsvector", "citext"), "use TEXT"),
    **dict.fromkeys(("bit", "varbit"), "use BYTEA or TEXT"),
    **dict.fromkeys(("hstore",), "use JSONB"),
    **dict.fromkeys(
        ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        "use two columns",
    ),
}

IMPLICIT, ASSIGNMENT, EXPLICIT = 0, 1, 2

_CASTS: dict[tuple[ColumnType, ColumnType], tuple[str, int]] = {
    (I, D): ("d_of_i", IMPLICIT),
    (I, N): ("n_of_i", IMPLICIT),
    (N, D): ("d_of_n", IMPLICIT),
    (N, I): ("i_of_n", ASSIGNMENT),
    (D, I): ("i_of_d", ASSIGNMENT),
    (D, N): ("n_of_d", ASSIGNMENT),
    (B, I): ("i_of_b", EXPLICIT),
    (I, B): ("b_of_i", EXPLICIT),
    (B, S): ("s_of_b", ASSIGNMENT),
    (I, S): ("s_of_i", ASSIGNMENT),
    (D, S): ("s_of_d", ASSIGNMENT),
    (N, S): ("s_of_n", ASSIGNMENT),
    (U, S): ("s_of_u", ASSIGNMENT),
    (T, S): ("s_of_t", ASSIGNMENT),
    (S, B): ("b_parse", EXPLICIT),
    (S, I): ("i_parse", EXPLICIT),
    (S, D): ("d_parse", EXPLICIT),
    (S, N): ("n_parse", EXPLICIT),
    (S, U): ("u_parse", EXPLICIT),
    (S, T): ("t_parse", EXPLICIT),
    (Y, S): ("s_of_y", ASSIGNMENT),
    (M, S): ("s_of_m", ASSIGNMENT),
    (V, S): ("s_of_v", ASSIGNMENT),
    (S, Y): ("y_parse", EXPLICIT),
    (S, M): ("m_parse", EXPLICIT),
    (S, V): ("v_parse", EXPLICIT),
    (S, H): ("h_parse", EXPLICIT),
    (H, S): ("s_of_h", ASSIGNMENT),
    (M, H): ("h_of_m", ASSIGNMENT),
    (T, H): ("h_of_m", ASSIGNMENT),
    (V, H): ("h_of_v", ASSIGNMENT),
    (H, V): ("v_of_h", IMPLICIT),
    (S, X): ("x_parse", EXPLICIT),
    (X, S): ("s_of_x", ASSIGNMENT),
    (Y, M): ("", IMPLICIT),  # all three are microseconds since 1970
    (Y, T): ("", IMPLICIT),
    (M, T): ("", IMPLICIT),
    (T, M): ("", ASSIGNMENT),
    (M, Y): ("t_date", ASSIGNMENT),
    (T, Y): ("t_date", ASSIGNMENT),
}
for _json in JSON:
    _CASTS[(_json, S)] = ("s_of_j", ASSIGNMENT)
    _CASTS[(_json, I)] = ("i_of_j", EXPLICIT)
    _CASTS[(_json, D)] = ("d_of_j", EXPLICIT)
    _CASTS[(_json, N)] = ("n_of_j", EXPLICIT)
    _CASTS[(_json, B)] = ("b_of_j", EXPLICIT)
    _CASTS[(S, _json)] = ("a_check" if _json is ColumnType.ARRAY else "j_check", EXPLICIT)
    for _other in JSON:
        if _other is not _json:
            _CASTS[(_json, _other)] = ("", IMPLICIT)

for _list in (ColumnType.INTEGERS, ColumnType.DOUBLES, ColumnType.STRINGS):
    _CASTS[(_list, ColumnType.ARRAY)] = ("", ASSIGNMENT)  # their inside is JSON already
for _list, _letter in LETTERS.items():
    _CASTS[(S, _list)] = (f"{_letter}_list", EXPLICIT)
    _CASTS[(_list, S)] = (f"s_of_{_letter}_list", ASSIGNMENT)
    for _other in LISTS:
        # Lists are cast like what is in them.
        if (ELEMENTS[_list], _other) in _CASTS:
            _name, _level = _CASTS[(ELEMENTS[_list], _other)]
            _CASTS[(_list, LISTS[_other])] = (caster_name(_name) if _name else "", _level)

#: How a quoted literal becomes a value of the type.
PARSERS: dict[ColumnType, str] = {
    to: name for (source, to), (name, _) in _CASTS.items() if source is S
}


def plain(type_: ColumnType) -> ColumnType:
    """The type that a column has inside expressions: UNSIGNED is a rule about storing."""
    return I if type_ is ColumnType.UNSIGNED else type_


def type_word(word: str, position: int | None = None) -> ColumnType:
    found = TYPE_WORDS.get(word)
    if word in _ABSENT:
        raise Unsupported(
            f"type {word} is not supported", hint=_ABSENT[word] or None, position=position
        )
    if found is None:
        raise UndefinedObject(f'type "{word}" does not exist', position=position)
    return found


def literal(value: str, type_: ColumnType) -> Physical:
    """A quoted literal read as the type."""
    if type_ is S:
        return value
    found: Physical = SCALARS[PARSERS[type_]](value)
    return found


FOLDED = 4_096  # characters of an argument that is worked with while a statement is understood


def fold(call: Call) -> Expr:
    """The value of a call whose arguments are all constants."""
    function = SCALARS.get(call.name)
    if function is None or call.name in HEAVY or call.name == "i_scale":
        return call  # a constant's zeros are not in its value
    if not all(isinstance(arg, Const) for arg in call.args):
        return call
    values = [arg.value for arg in call.args if isinstance(arg, Const)]
    if any(isinstance(value, str) and len(value) > FOLDED for value in values):
        return call  # short texts understood on the event loop can be made to grow
    return constant(call.type, function(*values), scale_of(call))


def constant(
    type_: Type, value: Physical, scale: int | None = None, place: int | None = None
) -> Const:
    """A value that is known; of a DECIMAL the key, and how many digits it is shown with."""
    if type_ is N and isinstance(value, bytes) and scale is None:
        exponent = decode_decimal(value).as_tuple().exponent
        scale = -exponent if isinstance(exponent, int) else None
        value = key_form(value)
    return Const(type_, value, place, scale)


def json_like(of: Type) -> ColumnType:
    """The type of what is taken from JSON, or made of it."""
    return JB if of is JB else ColumnType.ANY


def can_cast(source: Type, to: ColumnType, level: int) -> bool:
    if source is None or source is to:
        return True
    found = _CASTS.get((source, to))
    return found is not None and found[1] <= level


def cast(expr: Expr, to: ColumnType, level: int = IMPLICIT) -> Expr:
    """`expr` as a value of `to`; its type is known already (`bind_expr` settles unknown ones)."""
    source = expr.type
    if source is to:
        return expr
    if source is None:
        assert isinstance(expr, Const)
        if expr.value is None:
            return Const(to, None)
        try:
            return constant(to, literal(str(expr.value), to), place=expr.place)
        except CairnError as error:
            error.position = error.position or expr.place
            raise
    found = _CASTS.get((source, to))
    if found is None or found[1] > level:
        word = "cast" if level == EXPLICIT else "assign"
        raise DatatypeMismatch(
            f"cannot {word} type {NAMES[source]} to {NAMES[to]}",
            sqlstate="42846" if level == EXPLICIT else "42804",
            hint="write an explicit CAST" if found is not None else None,
        )
    is_item = isinstance(expr, Call) and expr.name == "c_index"
    if not found[0] or (found[0] == "s_of_j" and not is_item):
        return Call(to, "same", (expr,))
    if source is N and to is S and (scale := scale_of(expr)):
        return Call(S, "s_of_n", (expr, Const(I, scale)))
    try:
        return fold(Call(to, found[0], (expr,)))
    except CairnError:
        # Not now: PostgreSQL reports it when the expression is evaluated, if ever.
        return Call(to, found[0], (expr,))


def common_type(types: Iterable[Type], what: str) -> Type:
    """The type that CASE, COALESCE, VALUES, UNION, IN… give to operands of different types."""
    best: Type = None
    for type_ in types:
        if type_ is None or type_ is best:
            continue
        if best is None:
            best = type_
        elif best in RANK and type_ in RANK:
            best = best if RANK[best] >= RANK[type_] else type_
        elif best in TIMES and type_ in TIMES:
            best = best if TIMES[best] >= TIMES[type_] else type_
        elif best in JSON and type_ in JSON:
            best = JB if JB in (best, type_) else ColumnType.ANY
        else:
            raise DatatypeMismatch(
                f"{what} types {NAMES[best]} and {NAMES[type_]} cannot be matched"
            )
    return best


def no_operator(name: str, *types: Type, position: int | None = None) -> UndefinedFunction:
    shown = ", ".join(NAMES[type_] for type_ in types)
    return UndefinedFunction(
        f"could not resolve operator overload for {name}({shown})",
        hint="an explicit cast may help",
        position=position,
    )


def no_function(
    name: str, types: Iterable[Type], position: int | None = None, near: str | None = None
) -> CairnError:
    """PostgreSQL's words; `near` is the function that may have been meant."""
    shown = ", ".join(POSTGRES_NAMES[type_] for type_ in types)
    hint = (
        "No function matches the given name and argument types. "
        "You might need to add explicit type casts."
    )
    return UndefinedFunction(
        f"function {name}({shown}) does not exist",
        hint=hint if near is None else f'Perhaps you meant the function "{near}".',
        position=position,
    )
