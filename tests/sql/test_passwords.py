"""A password in a statement gives way to its verifier."""

from __future__ import annotations

import pytest

from cairn.cli.migrations.files import is_same
from cairn.pgwire.scram import make_verifier
from cairn.sql.statements.passwords import is_verifier, with_password_hidden


def hide(password: str) -> str:
    return str(make_verifier(password, salt=bytes(16)))


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER u WITH PASSWORD 'Passw0rd1' USING scram-sha256",
        "alter user u password 'Passw0rd1'",
        "CREATE USER u PASSWORD E'Passw0rd1'",
    ],
)
def test_the_password_is_gone_and_the_rest_stays(text: str) -> None:
    hidden = with_password_hidden(text, hide)
    assert "Passw0rd1" not in hidden and hide("Passw0rd1") in hidden
    assert hidden.split("'")[0].rstrip("E").lower() == text.split("'")[0].rstrip("E").lower()
    assert with_password_hidden(hidden, hide) == hidden


@pytest.mark.parametrize(
    "text", ["INSERT INTO t VALUES ('password')", "DROP USER u", "CREATE USER 'x", "SELECT 1"]
)
def test_other_statements_are_left_alone(text: str) -> None:
    assert with_password_hidden(text, hide) == text


def test_a_verifier_is_known_by_its_form() -> None:
    assert is_verifier(hide("x"))
    assert not is_verifier("SCRAM-SHA-256$nonsense")


def test_a_migration_is_found_again_under_its_verifier() -> None:
    written = "CREATE USER u WITH PASSWORD 'Passw0rd1'"
    kept = with_password_hidden(written, hide)
    assert is_same(kept, written)
    assert not is_same(kept, written.replace("Passw0rd1", "Passw0rd2"))
    assert is_same("SELECT 1", "SELECT  1 -- one")
