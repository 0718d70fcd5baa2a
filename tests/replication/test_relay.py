"""What a relay sends, and to whom it refuses to send."""

from __future__ import annotations

import pytest

from cairn.model.log.records import Packed, Vclock
from cairn.replication.applier import OtherHistory
from cairn.replication.relay import LogTooShort, Subscribe, check_history, has_news, select
from tests.replication.builders import packed

LOG = {
    "A": [packed("A", 1, lsn) for lsn in range(1, 4)],
    "B": [packed("B", 2, lsn) for lsn in range(1, 3)],
    "C": [packed("C", 1, lsn) for lsn in range(1, 3)],
}
VCLOCK = {"A": 3, "B": 2, "C": 2}


def request(
    vclock: Vclock, *origins: str, epochs: Vclock | None = None, limit: int = 9
) -> Subscribe:
    return Subscribe("C", "r1", vclock, origins, limit, epoch=2, epochs=epochs or {})


def read(origin: str, after: int, limit: int) -> list[Packed]:
    return [record for record in LOG[origin] if record.lsn > after][:limit]


def sent(asked: Subscribe, oldest: int = 1) -> list[tuple[str, int]]:
    found = select(asked, VCLOCK, lambda origin: oldest, read)
    return [(record.origin, record.lsn) for record in found]


def test_only_listed_origins_are_sent() -> None:
    assert sent(request({"A": 1}, "A")) == [("A", 2), ("A", 3)]


def test_an_empty_list_means_everything_but_the_subscribers_own_rows() -> None:
    assert sent(request({"A": 2})) == [("A", 3), ("B", 1), ("B", 2)]


def test_nobody_gets_his_own_rows_even_if_he_asks_for_them() -> None:
    assert sent(request({}, "C")) == []
    assert not has_news(request({"A": 3, "B": 2}), VCLOCK)


def test_older_epochs_come_first() -> None:
    assert sent(request({}, "B", "A", limit=4)) == [("A", 1), ("A", 2), ("A", 3), ("B", 1)]


def test_a_log_that_begins_too_late_says_so() -> None:
    with pytest.raises(LogTooShort) as short:
        sent(request({}, "A"), oldest=2)
    assert str(short.value) == "the row log begins at A:2, 1 was asked for"


def epoch_at(origin: str, lsn: int) -> int:
    return next((record.epoch for record in LOG[origin] if record.lsn == lsn), 0)


def test_a_log_of_another_history_is_refused_by_name() -> None:
    """The subscriber has B:2 from a B that was replaced; B was named again and wrote anew."""
    with pytest.raises(OtherHistory) as refused:
        check_history(request({"A": 3, "B": 2}, epochs={"A": 1, "B": 1}), VCLOCK, epoch_at)
    assert str(refused.value) == (
        "record B:2 is of epoch 2 at the upstream, the subscriber has it of epoch 1"
    )
    assert refused.value.origin == "B"


@pytest.mark.parametrize(
    ("vclock", "epochs"),
    [
        ({"A": 3, "B": 2}, {"A": 1, "B": 2}),
        ({"A": 3, "B": 9}, {"A": 1, "B": 1}),  # past what the relay has: it cannot tell
        ({"A": 3, "B": 2}, {}),  # the subscriber does not know
    ],
)
def test_an_equal_log_or_an_unknown_one_is_served(vclock: Vclock, epochs: Vclock) -> None:
    check_history(request(vclock, epochs=epochs), VCLOCK, epoch_at)
