"""A hand on a list of tokens, for the statements that Cairn reads itself."""

from __future__ import annotations

from math import isfinite, nan

from cairn.model.errors import CairnError, SyntaxProblem
from cairn.sql.parse.lexer import Token, syntax_error


class Cursor:
    def __init__(self, found: list[Token], text: str) -> None:
        self.tokens, self.text, self.at = found, text, 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def error(self) -> SyntaxProblem:
        return syntax_error(self.peek(), self.text)

    def looking_at(self, *words: str) -> bool:
        """Whether these words come next."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token is None or not token.is_word(word):
                return False
        return True

    def accept(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if not self.looking_at(*words):
            return False
        self.at += len(words)
        return True

    def accept_one(self, *words: str) -> str | None:
        token = self.peek()
        if token is not None and token.is_word(*words):
            self.at += 1
            return token.value
        return None

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.error()

    def accept_op(self, op: str) -> bool:
        token = self.peek()
        if token is not None and token.is_op(op):
            self.at += 1
            return True
        return False

    def looking_at_op(self, op: str) -> bool:
        token = self.peek()
        return token is not None and token.is_op(op)

    def expect_op(self, op: str) -> None:
        if not self.accept_op(op):
            raise self.error()

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.error()
        self.at += 1
        return token

    def qualified(self) -> tuple[str, str]:
        """The schema of a name that is to be given, `public` or `pg_temp` or none, and the name."""
        schema, dot = self.peek(), self.peek(1)
        named = "" if dot is None or schema is None or not dot.is_op(".") else schema.value
        if named in ("public", "pg_temp"):
            self.at += 2
            return named, self.name()
        return "", self.name()

    def name(self) -> str:
        """An identifier; a schema in front is read and, being `public`, dropped. `pg_temp.` stays:
        it names a temporary table and no other."""
        token = self.take()
        if token.kind not in ("word", "quoted"):
            self.at -= 1
            raise self.error()
        if self.accept_op("."):
            if token.value == "pg_temp":
                return f"pg_temp.{self.name()}"
            if token.value != "public":
                self.at -= 1
                raise SyntaxProblem(f'schema "{token.value}" does not exist', sqlstate="3F000")
            return self.name()
        if not token.value:
            self.at -= 1
            raise SyntaxProblem("zero-length delimited identifier")
        return token.value

    def names(self) -> list[str]:
        """`(a, b, …)`; a sort direction after a name is read and dropped, and so are classes of
        operators that mean the order of bytes, which every index of texts has."""
        self.expect_op("(")
        found = []
        while True:
            found.append(self.name())
            self.order_of_part()
            if not self.accept_op(","):
                break
        self.expect_op(")")
        return found

    def order_of_part(self) -> None:
        """What may follow a part of an index."""
        self.accept_one("varchar_pattern_ops", "text_pattern_ops", "bpchar_pattern_ops")
        self.accept_one("asc", "desc")
        if self.accept("nulls") and not self.accept_one("first", "last"):
            raise self.error()

    def string(self) -> str:
        token = self.take()
        if token.kind != "string":
            self.at -= 1
            raise self.error()
        return token.value

    def number(self) -> float:
        token = self.take()
        if token.kind not in ("number", "string"):
            self.at -= 1
            raise self.error()
        try:
            found = float(token.value)
        except ValueError:
            found = nan
        if not isfinite(found):
            raise CairnError(f"not a number: {token.text[:200]}", sqlstate="22023")
        return found

    def end(self) -> None:
        if self.peek() is not None:
            raise self.error()

    def rest(self) -> str:
        """What has not been read, as text."""
        token = self.peek()
        return self.text[token.start :].rstrip().rstrip(";") if token is not None else ""

    def skip_parens(self) -> None:
        self.expect_op("(")
        depth = 1
        while depth:
            token = self.take()
            depth += 1 if token.is_op("(") else -1 if token.is_op(")") else 0

    def expression(self, *clauses: str) -> str:
        """The text of one, up to a comma or parenthesis that is not its own, or a clause."""
        begun, depth, end = self.peek(), 0, 0
        while (token := self.peek()) is not None:
            is_clause = bool(end) and token.is_word(*clauses)  # `DEFAULT NULL` is an expression
            if depth == 0 and (token.is_op(",") or token.is_op(")") or is_clause):
                break
            depth += token.is_op("(") + token.is_op("[") - token.is_op(")") - token.is_op("]")
            end = token.start + len(token.text)
            self.at += 1
        if begun is None or not end:
            raise self.error()
        return self.text[begun.start : end]
