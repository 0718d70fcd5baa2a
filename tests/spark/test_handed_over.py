"""How far a stream may read when buckets were handed over: the source to its end comes first."""

from __future__ import annotations

from cairn.spark.streams.row_asking import Standing, TakenOver
from cairn.spark.streams.row_stream import _held_back, _told_all, _with_newcomers

GIVEN = TakenOver("s", {"s1": 7}, {"t1": 9})


def test_a_target_is_read_past_its_first_record_only_behind_the_last_of_the_source() -> None:
    def ready(source: int, mine: int = 3) -> dict[str, int]:
        known = Standing({"s": {"s1": source}, "t": {"t1": mine}}, {})
        return _held_back({"t1": 20}, known, [GIVEN], {"t1": mine})

    assert ready(6) == {"t1": 9}
    assert ready(7) == {"t1": 20}
    assert ready(6, mine=12) == {"t1": 12}  # never back


def test_a_replicaset_that_a_stream_does_not_know_begins_where_it_took_something_over() -> None:
    known = Standing({"s": {"s1": 6}}, {})
    assert _with_newcomers(known, {"t": [GIVEN]}).positions == {"s": {"s1": 6}, "t": {"t1": 9}}


def test_a_replicaset_that_left_had_told_all_if_it_was_read_to_the_end_of_all_it_gave() -> None:
    def told_all(
        lsn: int, owned: tuple[int, int] = (1, 10), given: tuple[int, int] = (1, 10)
    ) -> bool:
        known = Standing({"s": {"s1": lsn}, "t": {"t1": 3}}, {"s": (owned,)})
        return _told_all(known, "s", {"t": [TakenOver("", {"s1": 7}, {"t1": 9}, given)]})

    assert told_all(7)
    assert not told_all(6)  # its last change was not read
    assert not told_all(7, owned=(1, 11))  # a bucket that nobody took over: it was lost
    assert told_all(7, owned=(2, 9))


def test_what_others_gave_does_not_speak_for_a_replicaset_that_left() -> None:
    known = Standing({"s": {"s1": 7}}, {"s": ((1, 10),)})
    of_another = TakenOver("", {"u1": 1}, {"t1": 9}, (1, 10))
    assert not _told_all(known, "s", {"t": [of_another]})
