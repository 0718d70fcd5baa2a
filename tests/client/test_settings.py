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
