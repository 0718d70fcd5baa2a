"""PostgreSQL as sqlglot reads it, changed where Cairn's SQL differs. Import it late: it is slow."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from cairn.model import stops


class _TypedLiterals(dict[Any, Any]):
    """`date '2024-01-01'::text` of every type: a cast of the literal, and then what follows it.
    sqlglot reads the literal with what follows first."""

    def get(self, key: Any, default: Any = None) -> Any:
        return _typed_literal


def _typed_literal(parser: Any, this: exp.Expr, type_: exp.DataType) -> exp.Expr:
    literal = this
    while not isinstance(literal, exp.Literal):
        literal = literal.this
    made: exp.Expr = parser.expression(exp.Cast(this=literal.copy(), to=type_))
    if literal is this:
        return made
    literal.replace(made)
    return this


#: Words that mean nothing to the tokenizer; INT4 is not INT, so its name is kept.
_PLAIN_WORDS = frozenset(("DO", "TYPE", "NAME", "OID", "POINT", "RESET", "DECLARE", "EXEC", "INT4"))


class Cairn(Postgres):
    """Functions stay as written (`Anonymous`): what they mean is decided in `bind`."""

    INDEX_OFFSET = 0  # or sqlglot subtracts one from subscripts, if it takes the operand for a list

    class Tokenizer(Postgres.Tokenizer):
        # The stock tokenizer takes `($1,$2)` for a dollar quote; `parse` has replaced real ones.
        HEREDOC_STRINGS: ClassVar[list[Any]] = []
        BYTE_STRINGS: ClassVar[list[Any]] = []
        BIT_STRINGS: ClassVar[list[Any]] = []
        HEX_STRINGS: ClassVar[list[Any]] = []
        UNICODE_STRINGS: ClassVar[list[Any]] = []
        SINGLE_TOKENS = {**tokens.Tokenizer.SINGLE_TOKENS, "$": TokenType.PARAMETER}
        KEYWORDS = {
            word: kind
            for word, kind in Postgres.Tokenizer.KEYWORDS.items()
            if word not in _PLAIN_WORDS
        }

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        # `f(j -> 'key')` is JSON's operator, and no function without a name.
        LAMBDAS = {TokenType.FARROW: PostgresParser.LAMBDAS[TokenType.FARROW]}
        TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = _TypedLiterals()
        JOINS_HAVE_EQUAL_PRECEDENCE = True  # a comma is CROSS JOIN, and JOIN without ON is a slip
        NO_PAREN_FUNCTION_PARSERS = {
            name: parser
            for name, parser in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in {"CASE", "ANY"}
        }
        FUNCTION_PARSERS = {
            **{
                name: parser
                for name, parser in PostgresParser.FUNCTION_PARSERS.items()
                if name in {"CAST", "EXTRACT", "POSITION", "TRIM"}
            },
            "SUBSTRING": lambda self: self._parse_cairn_substring(),
            "OVERLAY": lambda self: self._parse_cairn_overlay(),
        }
        CONFLICT_ACTIONS = {
            "DO": [("NOTHING",), ("REPLACE",), ("FAIL",), ("UPDATE",)],
        }

        def _parse_bitwise(self) -> exp.Expr | None:
            """Part of every expression: whoever has a long text may want an end."""
            stops.check()
            return super()._parse_bitwise()

        def _parse_type(
            self, parse_interval: bool = True, fallback_to_identifier: bool = False
        ) -> exp.Expr | None:
            """`mood 'happy'`: a word before a text is the name of its type."""
            word, text = self._curr, self._next
            kinds = (word and word.token_type, text and text.token_type)
            if kinds == (TokenType.VAR, TokenType.STRING):
                type_ = self._parse_types(check_func=False, schema=False)
                if isinstance(type_, exp.DataType):
                    cast = exp.Cast(this=self._parse_primary(), to=type_)
                    return self._parse_column_ops(self.expression(cast))
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_cairn_overlay(self) -> exp.Expr:
            """`(s PLACING t FROM 1 FOR 2)` or a list of arguments."""
            args: list[Any] = [self._parse_bitwise()]
            if self._match_text_seq("PLACING"):
                args.append(self._parse_bitwise())
                self._match(TokenType.FROM)
                args.append(self._parse_bitwise())
                if self._match(TokenType.FOR):
                    args.append(self._parse_bitwise())
            else:
                while self._match(TokenType.COMMA):
                    args.append(self._parse_bitwise())
            if None in args:
                self.raise_error("Expected an expression")
            return exp.Anonymous(this="overlay", expressions=args)

        def _parse_cairn_substring(self) -> exp.Expr:
            """`(s, 1, 2)`, `(s FROM 1 FOR 2)`, `(s FOR 2)`, `(s SIMILAR p ESCAPE e)`."""
            args: list[Any] = [self._parse_bitwise()]
            if self._match_text_seq("SIMILAR"):
                args.append(self._parse_bitwise())
                self._match_text_seq("ESCAPE")
                args.append(self._parse_bitwise())
            elif self._match(TokenType.FROM):
                args.append(self._parse_bitwise())
                if self._match(TokenType.FOR):
                    args.append(self._parse_bitwise())
            elif self._match(TokenType.FOR):
                args += [exp.Literal.number(1), self._parse_bitwise()]
            else:
                while self._match(TokenType.COMMA):
                    args.append(self._parse_bitwise())
            if None in args:
                self.raise_error("Expected an expression")
            return exp.Anonymous(this="substring", expressions=args)


def walk_position(node: exp.Expr) -> int | None:
    """Where in the text a node came from, counted from 1, when sqlglot kept it."""
    starts = [found.meta["start"] for found in node.walk() if "start" in (found._meta or ())]
    return int(min(starts)) + 1 if starts else None
