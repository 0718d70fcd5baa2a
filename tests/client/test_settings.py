"""What a connection string may say, and what it may not."""

from __future__ import annotations

import pytest

from cairn.client.settings import parse_dsn
from cairn.model.errors import InvalidParameter


def test_a_misspelt_option_is_refused_with_the_nearest_known() -> None:
    """`sslmod=verify-full` would connect without looking at any certificate."""
    with pytest.raises(InvalidParameter, match="unknown option in the DSN: sslmod") as refused:
        parse_dsn("postgresql://admin@h/cairn?sslmod=verify-full")
    assert refused.value.hint == "did you mean sslmode?"
    assert parse_dsn("postgresql://admin@h/cairn?read_preference=any").options == {
        "read_preference": "any"
    }


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("sslmode=", "sslmode=: use one of"),
        ("sslmode", "sslmode=: use one of"),
        ("verify-full", "unknown option in the DSN: verify-full"),
        ("sslmode=verify-full&sslmode=disable", "the DSN has sslmode twice"),
    ],
)
def test_what_would_silently_be_forgotten_is_refused(more: str, why: str) -> None:
    """A script whose variable is empty must not connect without looking at the certificate."""
    with pytest.raises(InvalidParameter, match=why):
        parse_dsn(f"postgresql://admin@h/cairn?{more}")
    assert parse_dsn("postgresql://admin@h/cairn?").sslmode == "prefer"
