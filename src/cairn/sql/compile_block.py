"""Blocks: the steps of `DO $$ BEGIN … END $$`, each planned like a statement of its own.

Parameters of the client are known in all of them; names set by LET become parameters after these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    DuplicateColumn,
    IndeterminateType,
    LimitExceeded,
    SyntaxProblem,
    TooComplex,
    UndefinedFunction,
    Unsupported,
)
from cairn.model.tables.catalog import Catalog, View
from cairn.model.types.values import TYPE_OF_OID, ColumnType
from cairn.sql.bind.scope import BlockNames, GivenRows
from cairn.sql.compile import compile_query
from cairn.sql.parse.lexer import Token, syntax_error, tokens
from cairn.sql.plans import (
    ROW_WRITES,
    BlockPlan,
    BlockStep,
    CallPlan,
    GlobalWrite,
    OutColumn,
    Placed,
    Prepared,
    Returning,
    Right,
    RoutinePlan,
)
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.do_block import WrittenStep, read_do, read_steps
from cairn.sql.typing_rules import POSTGRES_NAMES

T = TypeVar("T")

_QUERIES = ("select", "with", "values", "table")
Prepare = Callable[[str, Catalog, int], Prepared]


def prepare_block(
    cursor: Cursor, text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    """DO, after its first word."""
    token = read_do(cursor)
    body = token.value
    types = {
        number: TYPE_OF_OID[oid] for number, oid in enumerate(param_oids, 1) if oid in TYPE_OF_OID
    }
    user = catalog.user_by_id(user_id)
    reader = BodyReader(catalog, "" if user is None else user.name)
    if body not in token.text:  # quotes inside of it are doubled: places are those in the body
        return reader.prepared(text, body, body, 0, types, len(param_oids))
    start = token.start + token.text.index(body)
    return reader.prepared(text, text, body, start, types, len(param_oids))


def checked(
    plan: RoutinePlan, text: str, catalog: Catalog, user_id: int, prepare: Prepare
) -> RoutinePlan:
    """Refuse a procedure or a view that could never run as things are.

    `prepare` is the way into SQL, for the query of a view.
    """
    if plan.action != "create" or plan.kind == "type":
        return plan
    if plan.kind == "view":
        return _checked_view(plan, text, catalog, user_id, prepare)
    types = dict(enumerate(plan.params or (), 1))
    body = _whole(plan.body)
    read = BodyReader(catalog, "").prepared(text, body, body, 0, types, len(types))
    if len(read.param_types) > len(types):
        raise CairnError(f"there is no parameter ${len(read.param_types)}", sqlstate="42P02")
    return plan


def _checked_view(
    plan: RoutinePlan, text: str, catalog: Catalog, user_id: int, prepare: Prepare
) -> RoutinePlan:
    """With the names and types of its columns."""
    before = text.rindex(plan.body)
    made = prepare(" " * before + plan.body, catalog, user_id)
    if not made.only_reads or not made.columns:
        raise SyntaxProblem("a view is a query that only reads", position=before + 1)
    if made.param_types:
        raise CairnError("there is no parameter $1", sqlstate="42P02")
    if len(plan.columns) > len(made.columns):
        raise SyntaxProblem("CREATE VIEW specifies more column names than columns")
    names = [each.name for each in plan.columns]
    names += [each.name for each in made.columns[len(names) :]]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise DuplicateColumn(f'column "{name}" specified more than once')
    columns = tuple(
        replace(each, name=name) for each, name in zip(made.columns, names, strict=True)
    )
    full = replace(plan, columns=columns)
    _check_ends(full, catalog, user_id, prepare)
    return full


def _check_ends(plan: RoutinePlan, catalog: Catalog, user_id: int, prepare: Prepare) -> None:
    """A view that is replaced may be used by those that it uses: it would have no end."""
    names, types = tuple(c.name for c in plan.columns), tuple(c.type for c in plan.columns)
    made = View(0, plan.name, names, types, plan.body, user_id, 0)
    after = msgspec.structs.replace(catalog, views=catalog.views | {plan.name: made})
    try:
        prepare(plan.body, after, user_id)
    except (LimitExceeded, TooComplex):
        raise SyntaxProblem(
            f'view "{plan.name}" would be part of itself', sqlstate="42P17"
        ) from None


def prepare_call(
    plan: CallPlan, text: str, catalog: Catalog, param_oids: Sequence[int], user_id: int
) -> Prepared:
    """CALL of a procedure: its body with the arguments in the places of its parameters."""
    routine = catalog.routines[plan.procedure]
    if len(plan.arguments) != len(routine.params):
        raise UndefinedFunction(
            f"procedure {routine.name} takes {len(routine.params)} arguments, "
            f"not {len(plan.arguments)}"
        )
    body = _with_arguments(_whole(routine.body), plan.arguments, routine.params)
    types = {
        number: TYPE_OF_OID[oid] for number, oid in enumerate(param_oids, 1) if oid in TYPE_OF_OID
    }
    for argument, type_ in zip(plan.arguments, routine.params, strict=True):
        if isinstance(argument, Placed):
            types.setdefault(argument.number, type_)
    user = catalog.user_by_id(user_id)
    reader = BodyReader(catalog, "" if user is None else user.name)
    try:
        made = reader.prepared(text, body, body, 0, types, len(param_oids))
    except CairnError as problem:
        problem.position = None  # it would point into the procedure
        raise
    return replace(
        made,
        tag="CALL",
        tables=made.tables | {routine.id: routine.schema_version},
        rights=(("execute", "procedure", routine.id, routine.name), *made.rights),
    )


def _whole(body: str) -> str:
    """A body of one statement is a block of one."""
    found = tokens(body)
    if found and found[0].is_word("begin"):
        return body
    return f"BEGIN {body.rstrip().rstrip(';')}; END"


def _with_arguments(body: str, arguments: Sequence[object], types: Sequence[ColumnType]) -> str:
    parts, at = [], 0
    for word in tokens(body):
        if word.kind != "param":
            continue
        number = int(word.value)
        if not 1 <= number <= len(arguments):
            raise CairnError(f"there is no parameter ${number}", sqlstate="42P02")
        cast = POSTGRES_NAMES[types[number - 1]]
        parts += [body[at : word.start], f"({_shown(arguments[number - 1])}::{cast})"]
        at = word.start + len(word.text)
    return "".join((*parts, body[at:]))


def _shown(argument: object) -> str:
    """An argument as SQL."""
    if isinstance(argument, Placed):
        return f"${argument.number}"
    if argument is None or isinstance(argument, bool):
        return {None: "NULL", True: "true", False: "false"}[argument]
    if isinstance(argument, int | float):
        return f"({argument!r})"
    return "'" + str(argument).replace("'", "''") + "'"


class BodyReader:
    """Understands the body of a block for one user."""

    def __init__(self, catalog: Catalog, user_name: str) -> None:
        self._catalog, self._user_name = catalog, user_name

    def prepared(
        self,
        text: str,
        source: str,
        body: str,
        start: int,
        types: dict[int, ColumnType],
        count: int,
    ) -> Prepared:
        """`start` is where the body begins in `source`, which errors point into; `types` are those
        of parameters that are known, of the first `count` or more."""
        words = [word._replace(start=word.start + start) for word in tokens(body)]
        steps = read_steps(words, source)
        last = max([count, *(int(w.value) for w in words if w.kind == "param")])
        made, planned, found = planned_twice(
            lambda known: Planning(self._catalog, self._user_name, source, last, known),
            lambda planning: (planning.step(step) for step in steps),
            types,
            last,
        )
        return Prepared(
            text,
            "DO",
            BlockPlan(planned, last),
            found,
            made.columns,
            made.tables,
            tuple(made.rights),
            hidden=1,
            uses_now=True,
        )


@dataclass
class Planning:
    """The steps so far: what they know, and what the block needs."""

    catalog: Catalog
    user_name: str
    text: str
    last: int  # parameter of the client
    types: dict[int, ColumnType]
    variables: dict[str, int] = field(default_factory=dict)
    given: dict[str, GivenRows] = field(default_factory=dict)  # by parts of WITH that write
    columns: tuple[OutColumn, ...] = ()
    tables: dict[int, int] = field(default_factory=dict)
    rights: dict[Right, None] = field(default_factory=dict)

    def step(self, step: WrittenStep) -> BlockStep:
        match step.kind:
            case "let":
                return self._let(step)
            case "return":
                prepared = self._query(step.words)
                self._check_columns(prepared, step)
                return BlockStep("return", prepared)
            case "if":
                prepared = self._query(step.words, is_expression=True)
                if prepared.columns[0].type not in (ColumnType.BOOLEAN, ColumnType.ANY):
                    raise DatatypeMismatch(
                        f"argument of IF must be type boolean, "
                        f"not type {prepared.columns[0].type.value}",
                        position=step.words[0].start + 1,
                    )
                return BlockStep("if", prepared, body=tuple(map(self.step, step.body)))
        prepared = self._compiled(step.words)
        plan = prepared.plan
        if isinstance(plan, GlobalWrite):
            raise Unsupported(
                f"cannot modify global table {plan.table.name} within a block",
                hint="global tables are changed by statements of their own",
                position=step.words[0].start + 1,
            )
        if isinstance(plan, Returning):
            raise Unsupported(
                "RETURNING inside a block has nobody to tell",
                hint="use RETURN QUERY SELECT … after the change",
                position=step.words[0].start + 1,
            )
        if not isinstance(plan, ROW_WRITES):
            raise syntax_error(step.words[0], self.text)
        return BlockStep("run", prepared)

    def _let(self, step: WrittenStep) -> BlockStep:
        first, second = [*step.words, step.words[0]][:2]
        is_query = first.is_op("(") and second.is_word(*_QUERIES)
        prepared = self._query(step.words, is_expression=not is_query)
        place = step.words[0].start + 1
        if len(prepared.columns) != 1:
            raise SyntaxProblem("LET takes the value of one column", position=place)
        type_ = prepared.columns[0].type
        known = self.variables.get(step.name)
        if known is not None and self.types[known] is not type_:
            raise DatatypeMismatch(
                f'LET variable "{step.name}" cannot be redeclared with a different type',
                position=place,
            )
        number = known or self.last + len(self.variables) + 1
        self.variables[step.name], self.types[number] = number, type_
        return BlockStep("let", prepared, number)

    def _query(self, words: tuple[Token, ...], *, is_expression: bool = False) -> Prepared:
        prepared = self._compiled(words, is_expression=is_expression)
        if prepared.tag != "SELECT":
            raise SyntaxProblem("a query is wanted here", position=words[0].start + 1)
        return prepared

    def _check_columns(self, prepared: Prepared, step: WrittenStep) -> None:
        if not self.columns:
            self.columns = prepared.columns
            return
        first, other = ([each.type.value for each in c] for c in (self.columns, prepared.columns))
        if first != other:
            raise DatatypeMismatch(
                f"RETURN QUERY types cannot be matched ([{', '.join(first)}] and "
                f"[{', '.join(other)}])",
                hint="all of them form one answer: cast the columns",
                position=step.words[0].start + 1,
            )

    def _compiled(self, words: tuple[Token, ...], *, is_expression: bool = False) -> Prepared:
        # Blanks instead of what is before it: positions in errors stay those of the whole text.
        start, end = words[0].start, words[-1].start + len(words[-1].text)
        piece = self.text[start:end]
        if is_expression:
            before, piece = "SELECT (", piece + ")"
            text = " " * max(start - len(before), 0) + before + piece
        else:
            text = " " * start + piece
        return self.compiled(tokens(text), text, words)

    def compiled(self, found: list[Token], text: str, words: Sequence[Token]) -> Prepared:
        """A statement of the block; `words` are those of it in which parameters may stand."""
        names = BlockNames(
            self.last + len(self.variables),
            dict(self.variables),
            dict(self.types),
            dict(self.given),
        )
        try:
            made = compile_query(found, text, self.catalog, (), self.user_name, names)
        except RecursionError:
            raise TooComplex("the statement is nested too deeply") from None
        for word in words:
            if word.kind == "param" and int(word.value) <= len(made.param_types):
                self.types.setdefault(int(word.value), made.param_types[int(word.value) - 1])
        self.tables |= made.tables
        self.rights |= dict.fromkeys(made.rights)
        return made


def planned_twice(
    begin: Callable[[dict[int, ColumnType]], Planning],
    steps: Callable[[Planning], Iterable[T]],
    types: dict[int, ColumnType],
    last: int,
) -> tuple[Planning, tuple[T, ...], tuple[ColumnType, ...]]:
    """The second time with what the first has found out about parameters, up to `last`."""
    known = dict(types)
    for _ in range(2):
        planning = begin(dict(known))
        made = tuple(steps(planning))
        known = {number: planning.types[number] for number in planning.types if number <= last}
    missing = [number for number in range(1, last + 1) if number not in known]
    if missing:
        raise IndeterminateType(f"could not determine data type of parameter ${missing[0]}")
    return planning, made, tuple(known[number] for number in range(1, last + 1))
