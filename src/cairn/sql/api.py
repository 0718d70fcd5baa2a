"""The way into SQL: `prepare(text, catalog, user_id=…)` gives a frozen `Prepared`.

    prepared = prepare("SELECT b FROM t WHERE a = $1", catalog, user_id=1)
    values = prepared.start([42], now=datetime.now(UTC))     # parameters plus hidden ones
    match prepared.plan:
        case PointRead(bucket=None):      # global tables only: run here
            rows = local.execute(plan.sql, plan.bind(values))
        case PointRead():                 # the first binding is the bucket
            bindings = plan.bind(values)
            rows = owner_of(plan.tier, bindings[0]).execute(plan.sql, bindings)
        case ScatterRead():
            for step in plan.steps:       # sub-queries whose value the rest needs
                values[step.number - 1] = step.value(await run(step.plan, values))
            for k, fragment in enumerate(plan.fragments):
                # ask who owns fragment.bucket_set(values) (None: all) with
                # fragment.with_ranges(ranges), fragment.bind(values); keep rows as m<k>(x0, x1, …)
            rows = memory.execute(plan.sql, plan.bind(values))
        case PointWrite():                # like PointRead, by the owner's writer
        case ShardedInsert() | InsertSelect():
            # plan.rows(values), or plan.rows(rows of plan.read): (bucket, bindings for plan.sql)
        case ScatterWrite():              # steps first, then like a fragment, by the writers
        case KeyedWrite():                # plan.changes(rows of plan.read): see plans.Change
        case GlobalWrite():               # execute(read, values) → ops, ranges, row_count
        case BlockPlan():                 # its steps in order, in one transaction at one owner

Rows are physical values of `prepared.columns`; `model.values.from_physical` turns them back.
Connections that run any of this need `functions.register(connection)`, and those of the instance
that was asked also the functions named in `function_list.LATE_FUNCTIONS`. A constraint error of
SQLite becomes ours through `constraints.translate`. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from cairn.model.errors import CairnError, SyntaxProblem, TooComplex, Unsupported
from cairn.model.quoting import identifier, literal
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.temporary import touches
from cairn.model.types.values import ColumnType
from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.plans import (
    ROW_WRITES,
    BlockPlan,
    CopyPlan,
    CursorPlan,
    DdlPlan,
    EmptyPlan,
    ExplainOptions,
    ExplainPlan,
    LockPlan,
    NamedPlan,
    NumbersPlan,
    OutColumn,
    PointRead,
    Prepared,
    Returning,
    ScatterRead,
    TempRead,
    TempWrite,
)
from cairn.sql.statements.asked.locks import LockCalls, lock_calls
from cairn.sql.statements.asked.numbers import SetNumber, set_number
from cairn.sql.statements.asked.settings import asked_settings
from cairn.sql.statements.attempts import read_attempt
from cairn.sql.statements.call import parse_call
from cairn.sql.statements.copy import CopyStatement, parse_copy
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.explain import parse_explain
from cairn.sql.statements.fetching import parse_declare, parse_fetching
from cairn.sql.statements.merge import read_merge
from cairn.sql.statements.named import parse_arguments, parse_named
from cairn.sql.statements.other import parse_other
from cairn.sql.statements.refusals import refuse_by_name
from cairn.sql.statements.schema.ddl import meant, parse_ddl
from cairn.sql.statements.schema.routine import parse_routine
from cairn.sql.statements.schema.sequences import restart_text
from cairn.sql.statements.schema.table_as import select_into, table_as
from cairn.sql.statements.with_parts import before_merge, writing_parts

_QUERY_WORDS = ("select", "with", "values", "insert", "update", "delete", "table")
# sqlglot takes about 15 frames for a parenthesis, and 200 levels are promised.
_RECURSION = 8000
EXPLAIN_COLUMN = "QUERY PLAN"


def prepare(
    text: str, catalog: Catalog, *, param_oids: Sequence[int] = (), user_id: int = 1
) -> Prepared:
    """Understand one statement. Whatever is wrong with it is a CairnError with a SQLSTATE."""
    found = tokens(text)
    while found and found[-1].is_op(";"):
        found.pop()
    if not found:
        return Prepared(text, "", EmptyPlan())
    for token in found:
        if token.is_op(";"):
            raise SyntaxProblem(
                "cannot insert multiple commands into a prepared statement",
                position=token.start + 1,
            )
    if sys.getrecursionlimit() < _RECURSION:  # once: threads share it
        sys.setrecursionlimit(_RECURSION)
    try:
        made = _prepare(found, text, catalog, param_oids, user_id)
    except RecursionError:
        raise TooComplex("the statement is nested too deeply") from None
    return made if catalog.beneath is None else _in_its_session(made)


def _in_its_session(made: Prepared) -> Prepared:
    """What touches temporary tables is run where they are: no quicker way may take it for
    something else."""
    plan = made.plan
    if not touches(made.tables):
        return made
    if isinstance(plan, PointRead | ScatterRead):
        return replace(made, plan=TempRead(plan))
    written = plan.write if isinstance(plan, Returning) else plan
    if isinstance(written, BlockPlan) or (
        isinstance(written, ROW_WRITES) and written.table.is_temp
    ):
        assert isinstance(plan, (*ROW_WRITES, Returning, BlockPlan))
        return replace(made, plan=TempWrite(plan))
    return made


def _set_number(
    asked: SetNumber, text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    """The query under it, and the right to write to the table."""
    inner = prepare(asked.query, catalog, param_oids=param_oids, user_id=user_id)
    read = inner.plan.read if isinstance(inner.plan, TempRead) else inner.plan
    assert isinstance(read, PointRead | ScatterRead)
    table = asked.numbers.table
    return replace(
        inner,
        text=text,
        plan=NumbersPlan(read, asked.numbers),
        columns=(OutColumn("setval", ColumnType.INTEGER),),
        rights=(*inner.rights, ("write", "table", table.id, table.name)),
    )


def _lock_calls(
    asked: LockCalls, text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    """The query under it tells what its parameters are, and the columns that are not calls."""
    try:
        inner = prepare(asked.query, catalog, param_oids=param_oids, user_id=user_id)
    except CairnError as problem:
        problem.position = None  # it is one in another text
        raise
    columns, names, at = [], iter(asked.names), 0
    for item in asked.items:
        if item is None:
            columns.append(inner.columns[at])
        else:
            type_ = ColumnType.STRING if item.is_void else ColumnType.BOOLEAN
            columns.append(OutColumn(next(names), type_))
        at += 1 if item is None else item.arguments
    plan = LockPlan(asked.items, asked.query)
    return replace(inner, text=text, plan=plan, columns=tuple(columns), bound=None)


def _prepare(
    found: list[Token], text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    if found[0].is_word(*_QUERY_WORDS) or found[0].is_op("("):
        return _query(found, text, catalog, param_oids, user_id)
    cursor = Cursor(found, text)
    if cursor.accept("explain"):
        return _explain(cursor, catalog, param_oids, user_id)
    if cursor.accept("declare"):
        return _declare(cursor, catalog, param_oids, user_id)
    if not cursor.looking_at("prepare", "transaction") and cursor.accept("prepare"):
        return _named(cursor, catalog, user_id)
    if cursor.accept("execute"):
        name = cursor.name()
        return Prepared(
            text, "EXECUTE", NamedPlan("execute", name, arguments=parse_arguments(cursor))
        )
    fetching = parse_fetching(cursor)
    if fetching is not None:
        return Prepared(text, *fetching)
    if cursor.accept("copy"):
        return _copy(parse_copy(cursor, catalog), text, catalog, user_id)
    if cursor.accept("merge"):
        from cairn.sql.compile_merge import prepare_merge

        name = _user_name(catalog, user_id)
        known = meant(cursor, catalog)
        return prepare_merge(read_merge(cursor), found, text, known, param_oids, name)
    if cursor.accept("do"):
        if (attempt := read_attempt(cursor)) is not None:
            return Prepared(text, "DO", attempt)
        from cairn.sql.compile_block import prepare_block

        return prepare_block(cursor, text, catalog, param_oids, user_id)
    if cursor.accept("call"):
        plan, types = parse_call(cursor, param_oids)
        if plan.procedure in catalog.routines and not plan.procedure.startswith("cairn_"):
            from cairn.sql.compile_block import prepare_call

            return prepare_call(plan, text, catalog, param_oids, user_id)
        return Prepared(text, "CALL", plan, types, (OutColumn("result", ColumnType.ANY),))
    routine = parse_routine(cursor, catalog)
    if routine is not None:
        from cairn.sql.compile_block import checked

        plan_made = checked(routine.plan, text, catalog, user_id, _prepare_for)
        return Prepared(text, routine.tag, plan_made, rights=routine.rights)
    made = table_as(cursor, lambda part: prepare(part, catalog, user_id=user_id))
    if made is not None:
        return made
    if cursor.accept("alter", "sequence"):
        begun = cursor.at
        if (restart := restart_text(cursor, catalog)) is not None:
            inner = prepare(restart, catalog, user_id=user_id)
            return replace(inner, text=text, tag="ALTER SEQUENCE", columns=())
        cursor.at = begun - 2
    ddl = parse_ddl(cursor, catalog, user_id)
    if ddl is not None:
        return Prepared(text, ddl.tag, ddl.plan, tables=ddl.tables, rights=ddl.rights)
    other = parse_other(cursor, catalog)
    if other is not None:
        columns = tuple(OutColumn(name, ColumnType.STRING) for name in other.columns)
        return Prepared(text, other.tag, other.plan, columns=columns, rights=other.rights)
    raise refuse_by_name(cursor) or cursor.error()


def _query(
    found: list[Token], text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    """What begins like a query; also the calls that are asked for by SELECT, and WITH … MERGE."""
    from cairn.sql.compile import compile_query

    first, name = found[0], _user_name(catalog, user_id)
    if first.is_word("select") and (asked := asked_settings(found, text)) is not None:
        shown = tuple(OutColumn(each, ColumnType.STRING) for each in asked.columns)
        return Prepared(text, asked.tag, asked.plan, columns=shown)
    if first.is_word("select") and (asked_for := set_number(found, text, catalog)) is not None:
        return _set_number(asked_for, text, catalog, param_oids, user_id)
    if first.is_word("select") and (calls := lock_calls(found, text)) is not None:
        return _lock_calls(calls, text, catalog, param_oids, user_id)
    if (with_ := before_merge(found, text)) is not None:
        from cairn.sql.compile_merge import prepare_merge

        cursor = Cursor(found, text)
        cursor.at = with_.main + 1
        merge = read_merge(cursor, text[first.start : found[with_.main].start])
        known = meant(cursor, catalog)
        return prepare_merge(merge, found, text, known, param_oids, name)
    if first.is_word("select", "with"):
        into = select_into(found, text, lambda part: prepare(part, catalog, user_id=user_id))
        if into is not None:
            return into
    if (parts := writing_parts(found, text)) is not None:
        from cairn.sql.compile_with import prepare_with

        return prepare_with(found, text, parts, catalog, param_oids, name)
    return compile_query(found, text, catalog, param_oids, name)


def _user_name(catalog: Catalog, user_id: int) -> str:
    user = catalog.user_by_id(user_id)
    return "" if user is None else user.name


def _inner(cursor: Cursor, catalog: Catalog, param_oids: Sequence[int], user_id: int) -> Prepared:
    """The statement that begins here."""
    token = cursor.peek()
    if token is None:
        raise cursor.error()
    # Blanks instead of the words before it: positions in errors stay those of the whole text.
    text = " " * token.start + cursor.text[token.start :]
    return prepare(text, catalog, param_oids=param_oids, user_id=user_id)


def _declare(cursor: Cursor, catalog: Catalog, param_oids: Sequence[int], user_id: int) -> Prepared:
    name, is_held, is_binary = parse_declare(cursor)
    query = _inner(cursor, catalog, param_oids, user_id)
    if not query.only_reads or not query.columns:
        raise CairnError("a cursor needs a query that only reads", sqlstate="42P11")
    plan = CursorPlan("declare", name, None, query, is_held, is_binary)
    return Prepared(
        cursor.text,
        "DECLARE CURSOR",
        plan,
        query.param_types,
        tables=query.tables,
        rights=query.rights,
        param_oids=query.param_oids,
    )


def _named(cursor: Cursor, catalog: Catalog, user_id: int) -> Prepared:
    name, oids = parse_named(cursor)
    token = cursor.peek()
    if token is None or not (token.is_word(*_QUERY_WORDS, "merge") or token.is_op("(")):
        raise cursor.error()
    query = _inner(cursor, catalog, oids, user_id)
    plan = NamedPlan("prepare", name, query, oids)
    return Prepared(cursor.text, "PREPARE", plan, tables=query.tables, rights=query.rights)


def _prepare_for(text: str, catalog: Catalog, user_id: int) -> Prepared:
    made = prepare(text, catalog, user_id=user_id)
    if touches(made.tables):
        raise Unsupported(
            "views and procedures cannot name temporary tables",
            hint="others would use them, and do not have these tables",
        )
    return made


def _explain(cursor: Cursor, catalog: Catalog, param_oids: Sequence[int], user_id: int) -> Prepared:
    options = parse_explain(cursor)
    token = cursor.peek()
    if token is not None and token.is_word("analyze", "analyse", "verbose", "explain"):
        raise cursor.error()
    inner = _inner(cursor, catalog, param_oids, user_id)
    if isinstance(inner.plan, DdlPlan):
        return _explain_schema(cursor.text, inner, inner.plan, options, catalog)
    block = inner.plan.write if isinstance(inner.plan, TempWrite) else inner.plan
    is_merge = inner.tag == "MERGE" and isinstance(block, BlockPlan)
    if is_merge and (options.is_run or options.is_json):
        raise Unsupported(
            "EXPLAIN of MERGE with ANALYZE or FORMAT JSON is not supported",
            hint="EXPLAIN MERGE … says what is read and changed, and does nothing",
        )
    if inner.bound is None and not is_merge:
        if isinstance(block, BlockPlan):
            raise Unsupported(
                "EXPLAIN of several statements is not supported",
                hint="explain them one by one",
                position=token.start + 1 if token is not None else None,
            )
        raise Unsupported(f"EXPLAIN of {inner.tag or 'nothing'} is not supported")
    return Prepared(
        cursor.text,
        "EXPLAIN",
        ExplainPlan(inner, options),
        inner.param_types,
        (OutColumn(EXPLAIN_COLUMN, ColumnType.ANY if options.is_json else ColumnType.STRING),),
        inner.tables,
        inner.rights,
        tier=inner.tier,
        hidden=inner.hidden,
        uses_now=inner.uses_now,
    )


def _explain_schema(
    text: str, inner: Prepared, plan: DdlPlan, options: ExplainOptions, catalog: Catalog
) -> Prepared:
    """Known without asking anybody: its lines are the rows of a query without tables."""
    from cairn.sql.explain.schema import schema_lines

    if options.is_run or options.is_json or options.facets:
        raise Unsupported(
            f"EXPLAIN of {inner.tag} with options is not supported",
            hint=f"EXPLAIN {inner.tag} … says what would be done, and does nothing",
        )
    lines = ", ".join(f"({literal(line)})" for line in schema_lines(plan, catalog))
    name = identifier(EXPLAIN_COLUMN)
    told = prepare(f"SELECT {name} FROM (VALUES {lines}) AS told ({name})", catalog)
    return replace(told, text=text, tag="EXPLAIN", tables=inner.tables, rights=inner.rights)


def _copy(found: CopyStatement, text: str, catalog: Catalog, user_id: int) -> Prepared:
    query = insert = None
    if found.table is None:
        assert found.query is not None
        query = prepare(found.query, catalog, user_id=user_id)
        if not query.columns or not query.only_reads:
            what = "what writes" if query.tag == "SELECT" else query.tag or "nothing"
            raise Unsupported(f"COPY of {what} is not supported")
        if query.param_types:
            raise SyntaxProblem("COPY cannot have parameters")
    else:
        names = ", ".join(identifier(name) for name in found.columns)
        schema = "pg_temp." if found.table.is_temp else "public." if catalog.hides else ""
        table = f"{schema}{identifier(found.table.name)}"
        if found.direction == "out":
            query = prepare(f"SELECT {names} FROM {table}", catalog, user_id=user_id)
        else:
            marks = ", ".join(f"${at}" for at in range(1, len(found.columns) + 1))
            insert = prepare(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", catalog, user_id=user_id
            )
    inner = query or insert
    assert inner is not None
    plan = CopyPlan(
        found.table,
        found.columns,
        "in" if found.direction == "in" else "out",
        found.options,
        query,
        insert,
    )
    return Prepared(
        text,
        "COPY",
        plan,
        columns=query.columns if query is not None else (),
        tables=inner.tables,
        rights=inner.rights,
        tier=inner.tier,
    )
