"""Statements are told apart whatever their strings and comments hold."""

from __future__ import annotations

import pytest

from cairn.model.errors import LimitExceeded, SyntaxProblem
from cairn.sql.parse.lexer import MAX_STATEMENT_CHARS, split, tokens


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1;", ["SELECT 1"]),
        (";; ;", []),
        ("", []),
        ("-- only; a comment", []),
        ("SELECT ';' ; SELECT \";\"", ["SELECT ';'", 'SELECT ";"']),
        ("SELECT 'it''s;' ; SELECT 2", ["SELECT 'it''s;'", "SELECT 2"]),
        ("SELECT E'a\\';b'; SELECT 2", ["SELECT E'a\\';b'", "SELECT 2"]),
        ("SELECT $$a;b$$; SELECT $x$;$$;$x$", ["SELECT $$a;b$$", "SELECT $x$;$$;$x$"]),
        ("SELECT 1 /* ; /* ; */ ; */; SELECT 2", ["SELECT 1 /* ; /* ; */ ; */", "SELECT 2"]),
        ("SELECT $1,$2; SELECT ($1,$2)", ["SELECT $1,$2", "SELECT ($1,$2)"]),
    ],
)
def test_semicolons_inside_quotes_and_comments_do_not_end_a_statement(
    text: str, statements: list[str]
) -> None:
    assert split(text) == statements


@pytest.mark.parametrize(
    ("text", "position"),
    [("SELECT 'abc", 8), ('SELECT "abc', 8), ("SELECT /* x", 8), ("SELECT $$x", 8), ("a \x01", 3)],
)
def test_what_never_ends_is_told_with_its_place(text: str, position: int) -> None:
    with pytest.raises(SyntaxProblem) as found:
        tokens(text)
    assert found.value.position == position


def test_words_fold_and_quoted_names_do_not() -> None:
    assert [token.value for token in tokens('SELECT Ab, "Ab"')] == ["select", "ab", ",", "Ab"]


def test_escapes_of_e_strings_are_read_as_postgresql_does() -> None:
    assert tokens(r"E'a\n\x41\u0042\'\\'")[0].value == "a\nAB'\\"


def test_a_statement_of_many_megabytes_is_refused_with_a_way_out() -> None:
    with pytest.raises(LimitExceeded) as found:
        tokens("SELECT '" + "x" * MAX_STATEMENT_CHARS + "'")
    assert found.value.sqlstate == "54000"
    assert "COPY" in str(found.value.hint)
