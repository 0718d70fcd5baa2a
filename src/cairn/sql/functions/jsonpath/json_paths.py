"""jsonpath over JSON: jsonb_path_query and its kin, `@?` and `@@`.

As PostgreSQL evaluates it: in lax mode what is not there is no error and arrays are unwrapped, in
strict mode both are errors. Inside of a predicate an error is `unknown`. Whoever asks whether there
is something stops at the first item. Every item is a chance to end it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cairn.model import stops
from cairn.model.errors import CairnError, DivisionByZero, LimitExceeded, UndefinedObject
from cairn.model.types.decimals import CONTEXT
from cairn.sql.functions import numbers
from cairn.sql.functions.jsonpath.reading import ALL, PREDICATES, Node, read_path
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.patterns import regexp
from cairn.sql.functions.texts import read_json, write_json

MOST_ITEMS = 1_000_000  # that one path may look at
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
Unknown = None  # of true, false and this


class PathError(CairnError):
    """What `silent` keeps quiet about."""


def _error(text: str, sqlstate: str) -> PathError:
    return PathError(text, sqlstate=sqlstate)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _values(item: dict[str, Any]) -> list[Any]:
    """In the order of jsonb: short names first."""
    names = sorted(item, key=lambda name: (len(name.encode(errors="replace")), name))
    return [item[name] for name in names]


class _Run:
    """One path over one document."""

    def __init__(self, path: str, data: str, variables: str) -> None:
        self._path = read_path(path)
        self.is_lax = not self._path.is_strict
        self._quiet = self.is_lax  # about what is not there
        self._root = read_json(data)
        self._variables = read_json(variables)
        if not isinstance(self._variables, dict):
            raise CairnError(
                '"vars" argument is not an object',
                detail='Jsonpath parameters should be encoded as key-value pairs of "vars" object.',
                sqlstate="22023",
            )
        self._count = 0

    def items(self) -> Iterator[Any]:
        return self._node(self._path.root, self._root, None)

    def _look(self) -> None:
        stops.check()
        self._count += 1
        if self._count > MOST_ITEMS:
            raise LimitExceeded(f"a jsonpath looks at more than {MOST_ITEMS} items")

    # --- values -----------------------------------------------------------------------------------

    def _node(self, node: Node, item: Any, last: int | None) -> Iterator[Any]:
        kind = node[0]
        if kind in PREDICATES:
            yield self._holds(node, item, last)
            return
        first: Iterator[Any]
        match kind:
            case "root":
                first = iter((self._root,))
            case "item":
                first = iter((item,))
            case "const":
                first = iter((node[1],))
            case "variable":
                first = iter((self._variable(node[1]),))
            case "last":
                first = iter(((last or 0) - 1,))
            case "path":
                first = self._node(node[1], item, last)
            case "math":
                first = iter((self._math(node, item, last),))
            case _:
                first = self._signed(node, item, last)
        steps = node[-1]
        for each in first:
            yield from self._steps(steps, each, last, self.is_lax)

    def _variable(self, name: str) -> Any:
        if name not in self._variables:
            # Neither a filter nor `silent` passes over it.
            raise UndefinedObject(f'could not find jsonpath variable "{name}"')
        return self._variables[name]

    def _one_number(self, found: list[Any], what: str) -> int | Decimal:
        if len(found) != 1 or not _is_number(found[0]):
            text = f"{what} is not a single numeric value"
            raise _error(text, "22033" if "subscript" in what else "22038")
        number: int | Decimal = found[0]
        return number

    def _math(self, node: Node, item: Any, last: int | None) -> int | Decimal:
        sign = node[1]
        sides = [list(self._unwrapped(part, item, last)) for part in node[2:4]]
        left, right = (
            Decimal(self._one_number(found, f"{side} operand of jsonpath operator {sign}"))
            for side, found in zip(("left", "right"), sides, strict=True)
        )
        context = CONTEXT
        match sign:
            case "+":
                return context.add(left, right)
            case "-":
                return context.subtract(left, right)
            case "*":
                return context.multiply(left, right)
        if not right:
            raise PathError("division by zero", sqlstate=DivisionByZero.sqlstate)
        return numbers.divide(left, right) if sign == "/" else context.remainder(left, right)

    def _signed(self, node: Node, item: Any, last: int | None) -> Iterator[Any]:
        for each in self._unwrapped(node[2], item, last):
            if not _is_number(each):
                text = f"operand of unary jsonpath operator {node[1]} is not a numeric value"
                raise _error(text, "2203B")
            yield each if node[1] == "+" else -each

    def _unwrapped(self, node: Node, item: Any, last: int | None) -> Iterator[Any]:
        for each in self._node(node, item, last):
            if self.is_lax and isinstance(each, list):
                yield from each
            else:
                yield each

    # --- steps ------------------------------------------------------------------------------------

    def _steps(
        self, steps: tuple[Node, ...], item: Any, last: int | None, unwraps: bool
    ) -> Iterator[Any]:
        self._look()
        if not steps:
            yield item
            return
        step, rest = steps[0], steps[1:]
        kind = step[0]
        is_of_arrays = kind == "method" and step[1] in ("type", "size")
        is_unwrapped = kind in ("key", "members", "filter", "method") and not is_of_arrays
        if unwraps and is_unwrapped and isinstance(item, list):
            for each in item:
                yield from self._steps(steps, each, last, False)
            return
        for each, goes_on in self._step(step, item, last):
            yield from self._steps(rest, each, last, self.is_lax if goes_on else False)

    def _step(self, step: Node, item: Any, last: int | None) -> Iterator[tuple[Any, bool]]:
        """Items, and whether those behind may unwrap them."""
        match step[0]:
            case "key":
                yield from self._key(step[1], item)
            case "members":
                if isinstance(item, dict):
                    for each in _values(item):
                        yield each, True
                elif not self._quiet:
                    text = "jsonpath wildcard member accessor can only be applied to an object"
                    raise _error(text, "2203C")
            case "items":
                if isinstance(item, list):
                    for each in item:
                        yield each, True
                elif self.is_lax:
                    yield item, True
                elif not self._quiet:
                    text = "jsonpath wildcard array accessor can only be applied to an array"
                    raise _error(text, "22039")
            case "at":
                for each in self._at(step[1], item):
                    yield each, True
            case "levels":
                yield from self._levels(item, step[1], step[2])
            case "filter":
                if self._holds(step[1], item, last) is True:
                    yield item, True
            case _ if step[1] == "size" and not self.is_lax and not isinstance(item, list):
                if not self._quiet:
                    text = "jsonpath item method .size() can only be applied to an array"
                    raise _error(text, "22039")
            case _:
                yield self._method(step[1], item), True

    def _key(self, key: str, item: Any) -> Iterator[tuple[Any, bool]]:
        if isinstance(item, dict) and key in item:
            yield item[key], True
        elif not self._quiet:
            text = "jsonpath member accessor can only be applied to an object"
            if isinstance(item, dict):
                text = f'JSON object does not contain key "{key}"'
            raise _error(text, "2203A")

    def _at(self, parts: tuple[tuple[Node, Node | None], ...], item: Any) -> Iterator[Any]:
        if not isinstance(item, list):
            if not self.is_lax:
                if self._quiet:
                    return
                text = "jsonpath array accessor can only be applied to an array"
                raise _error(text, "22039")
            item = [item]
        size = len(item)
        for first_node, last_node in parts:
            first = self._index(first_node, item, size)
            last = first if last_node is None else self._index(last_node, item, size)
            if not self._quiet and (first < 0 or first > last or last >= size):
                raise _error("jsonpath array subscript is out of bounds", "22033")
            for at in range(max(first, 0), min(last, size - 1) + 1):
                yield item[at]

    def _index(self, node: Node, item: Any, size: int) -> int:
        given = list(self._unwrapped(node, item, size))
        found = self._one_number(given, "jsonpath array subscript")
        number = math.trunc(found)
        if not -(1 << 31) <= number < 1 << 31:
            raise _error("jsonpath array subscript is out of integer range", "22033")
        return number

    def _levels(self, item: Any, first: int, last: int) -> Iterator[tuple[Any, bool]]:
        """`.**`: what is not there is no error behind it."""
        before, self._quiet = self._quiet, True
        try:
            if first == 0:
                yield item, True
            if last > 0:
                yield from self._below(item, 1, first, last)
        finally:
            self._quiet = before

    def _below(self, item: Any, level: int, first: int, last: int) -> Iterator[tuple[Any, bool]]:
        if isinstance(item, dict):
            parts = _values(item)
        else:
            parts = item if isinstance(item, list) else []
        for each in parts:
            self._look()
            is_leaf = not isinstance(each, dict | list)
            if level >= first or (first == ALL and last == ALL and is_leaf):
                yield each, True
            if level < last and not is_leaf:
                yield from self._below(each, level + 1, first, last)

    def _method(self, name: str, item: Any) -> Any:
        if name == "type":
            return _TYPES.get(type(item), "number")
        if name == "size":
            return len(item) if isinstance(item, list) else 1
        if name == "double":
            return _double(item)
        if not _is_number(item):
            text = f"jsonpath item method .{name}() can only be applied to a numeric value"
            raise _error(text, "22036")
        functions: Any = {"abs": abs, "floor": math.floor, "ceiling": math.ceil}
        return functions[name](item)

    # --- predicates -------------------------------------------------------------------------------

    def _holds(self, node: Node, item: Any, last: int | None) -> bool | None:
        match node[0]:
            case "and":
                left = self._holds(node[1], item, last)
                if left is False:
                    return False
                right = self._holds(node[2], item, last)
                return left if right is True else right
            case "or":
                left = self._holds(node[1], item, last)
                if left is True:
                    return True
                right = self._holds(node[2], item, last)
                return left if right is False else right
            case "not":
                inner = self._holds(node[1], item, last)
                return None if inner is Unknown else not inner
            case "unknown":
                return self._holds(node[1], item, last) is Unknown
            case "exists":
                return self._exists(node[1], item, last)
        return self._any(node, item, last)

    def has_any(self) -> bool:
        return self._has_any(self._path.root, self._root, None)

    def _has_any(self, node: Node, item: Any, last: int | None) -> bool:
        """In lax mode up to the first; a sign before what is no number is no error then."""
        if self.is_lax and node[0] == "sign" and not node[-1]:
            return any(map(_is_number, list(self._unwrapped(node[2], item, last))))
        found = self._node(node, item, last)
        return next((True for _ in found), False) if self.is_lax else bool(list(found))

    def _exists(self, node: Node, item: Any, last: int | None) -> bool | None:
        before = self._quiet
        try:
            return self._has_any(node, item, last)
        except PathError:
            return Unknown
        finally:
            self._quiet = before

    def _any(self, node: Node, item: Any, last: int | None) -> bool | None:
        before = self._quiet
        try:
            left_node = node[2] if node[0] == "cmp" else node[1]
            lefts = list(self._unwrapped(left_node, item, last))
            rights: list[Any] = [None]
            if node[0] == "cmp":
                rights = list(self._unwrapped(node[3], item, last))
            elif node[0] == "starts":
                rights = list(self._node(node[2], item, last))
        except PathError:
            return Unknown
        finally:
            self._quiet = before
        is_found = is_unknown = False
        for left in lefts:
            for right in rights:
                self._look()
                told = _compared(node, left, right)
                if told is Unknown:
                    if not self.is_lax:
                        return Unknown
                    is_unknown = True
                elif told:
                    if self.is_lax:
                        return True
                    is_found = True
        return True if is_found else Unknown if is_unknown else False


def _double(item: Any) -> Any:
    text = "NaN or Infinity is not allowed for jsonpath item method .double()"
    if _is_number(item):
        if math.isinf(_float(item)):
            raise _error("numeric argument of jsonpath item method .double() is out of range "
                         "for type double precision", "22036")  # fmt: skip
        return item
    if not isinstance(item, str):
        wrong = "jsonpath item method .double() can only be applied to a string or numeric value"
        raise _error(wrong, "22036")
    try:
        number = float(item.strip()) if "_" not in item else math.nan
    except ValueError:
        raise _error("string argument of jsonpath item method .double() is not a valid "
                     "representation of a double precision number", "22036") from None  # fmt: skip
    if not math.isfinite(number):
        raise _error(text, "22036")
    shown = Decimal(f"{number:.15g}")
    return int(shown) if shown == shown.to_integral_value() and abs(shown) < 10**15 else shown


def _float(item: int | Decimal) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf


def _compared(node: Node, left: Any, right: Any) -> bool | None:
    if node[0] == "starts":
        both = isinstance(left, str) and isinstance(right, str)
        return left.startswith(right) if both else Unknown
    if node[0] == "like":
        return _like(left, node[2], node[3])
    sign = node[1]
    one, other = _TYPES.get(type(left), "number"), _TYPES.get(type(right), "number")
    if one != other:
        return sign == "!=" if "null" in (one, other) else Unknown
    if one in ("object", "array"):
        return Unknown
    if one == "null":
        return sign in ("==", "<=", ">=")
    if one == "string" and sign not in ("==", "!="):
        left, right = left.encode("utf-8", "replace"), right.encode("utf-8", "replace")
    match sign:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def _like(value: Any, pattern: str, flags: str) -> bool | None:
    if not isinstance(value, str):
        return Unknown
    if "q" in flags:
        if "i" in flags:
            return pattern.lower() in value.lower()
        return pattern in value
    lines = {(True, True): "w", (True, False): "n", (False, False): "p"}  # m, s
    asked = ("i" if "i" in flags else "") + lines.get(("m" in flags, "s" in flags), "")
    return regexp(pattern, asked, captures=False).search(value) is not None


# --- what SQL calls -------------------------------------------------------------------------------


def _found(data: str, path: str, variables: str, silent: int) -> list[Any]:
    found: list[Any] = []
    try:
        found.extend(_Run(path, data, variables).items())  # what came before an error stays
    except PathError:
        if not silent:
            raise
    return found


@strict
def a_path_items(data: str, path: str, variables: str = "{}", silent: int = 0) -> str:
    """Each as JSON, as a list that SQLite can take apart."""
    return write_json([write_json(each) for each in _found(data, path, variables, silent)])


@strict
def j_path_array(data: str, path: str, variables: str = "{}", silent: int = 0) -> str:
    return write_json(_found(data, path, variables, silent))


@strict
def j_path_first(data: str, path: str, variables: str = "{}", silent: int = 0) -> str | None:
    found = _found(data, path, variables, silent)
    return write_json(found[0]) if found else None


@strict
def b_path_exists(data: str, path: str, variables: str = "{}", silent: int = 0) -> int | None:
    run = _Run(path, data, variables)
    try:
        return int(run.has_any())
    except PathError:
        if not silent:
            raise
        return None


@strict
def b_path_match(data: str, path: str, variables: str = "{}", silent: int = 0) -> int | None:
    found = _found(data, path, variables, silent)
    if len(found) == 1 and found[0] is None:
        return None
    if len(found) == 1 and isinstance(found[0], bool):
        return int(found[0])
    if silent:
        return None
    raise CairnError("single boolean result is expected", sqlstate="22038")
