"""Time in statements: the statement's own moment, and how times are written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cairn.model.errors import CairnError

from . import harness
from .harness import Cluster


def test_the_time_of_a_statement_is_rounded_to_the_digits_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, 987654, tzinfo=UTC)
    monkeypatch.setattr(harness, "NOW", moment)
    found = Cluster().run("SELECT current_timestamp, current_timestamp(2), current_timestamp(0)")
    assert found == [
        (moment, moment.replace(microsecond=990000), datetime(2024, 3, 1, tzinfo=UTC)),
    ]


@pytest.mark.parametrize("text", ["current_timestamp('x')", "current_timestamp(1, 2)", "now(3)"])
def test_what_is_no_number_of_digits_is_refused(text: str) -> None:
    with pytest.raises(CairnError) as told:
        Cluster().run(f"SELECT {text}")
    assert told.value.sqlstate in ("42601", "42883")


def test_a_long_sum_is_read_once() -> None:
    """Each operand of `+` was bound twice: thirty of them took minutes."""
    text = "SELECT " + " + ".join(["id"] * 100) + " FROM (SELECT 1 AS id) x"
    assert Cluster().run(text) == [(100,)]


def test_times_are_read_as_mail_writes_them() -> None:
    found = Cluster().run(
        "SELECT 'Thu, 29 Feb 2024 12:00:00 +0100'::datetime, '29 Feb 2024 12:00:00 GMT'::datetime"
    )
    assert found == [
        (datetime(2024, 2, 29, 11, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ]
    with pytest.raises(CairnError) as told:
        Cluster().run("SELECT 'Thu, 99 Feb 2024 12:00:00 +0100'::datetime")
    assert told.value.sqlstate == "22008"
