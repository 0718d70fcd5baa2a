"""How far a stream may read when buckets were handed over: the source to its end comes first."""

from __future__ import annotations

from cairn.spark.streams.hand_overs import (
    HandOver,
    Seen,
    Standing,
    held_back,
    not_behind,
    told_all,
    untold,
    with_newcomers,
)

GIVEN = HandOver(4, (1, 10), {"s1": 7}, {"t1": 9})


def test_a_target_is_read_past_its_first_record_only_behind_the_last_of_the_source() -> None:
    def ready(source: int, mine: int = 3) -> dict[str, int]:
        known = Standing({"s": {"s1": source}, "t": {"t1": mine}}, {})
        return held_back({"t1": 20}, known, [GIVEN], {"t1": mine})

    assert ready(6) == {"t1": 9}
    assert ready(7) == {"t1": 20}
    assert ready(6, mine=12) == {"t1": 12}  # never back


def test_a_stream_never_goes_back() -> None:
    """A master that knows of less than it told does not tell it again."""
    known = Standing({"s": {"s1": 11, "s0": 5}}, {}, {"s": {"s1": 2, "s0": 1}})
    target = Standing(
        {"s": {"s1": 9, "s0": 6}, "t": {"t1": 3}}, {}, {"s": {"s1": 2, "s0": 1}, "t": {"t1": 1}}
    )
    assert not_behind(target, known) == Standing(
        {"s": {"s1": 11, "s0": 6}, "t": {"t1": 3}}, {}, {"s": {"s1": 2, "s0": 1}, "t": {"t1": 1}}
    )
    assert not_behind(target, Standing({}, {})) == target


def test_who_got_nothing_is_not_held_back_by_what_others_gave() -> None:
    known = Standing({"s": {"s1": 6}, "u": {"u1": 3}}, {})
    assert held_back({"u1": 20}, known, [GIVEN], {"u1": 3}) == {"u1": 20}


def test_a_replicaset_that_a_stream_does_not_know_begins_where_it_took_something_over() -> None:
    def begun(seen: Seen | None, *moves: HandOver) -> dict[str, int] | None:
        known = Standing({"s": {"s1": 6}}, {}, seen=seen)
        target = Standing({"s": {"s1": 8}, "t": {"t1": 30}}, {}, moves=moves)
        return with_newcomers(known, target).positions.get("t")

    later = HandOver(6, (1, 10), {"s1": 8}, {"t1": 25})
    assert begun(None, GIVEN) == {"t1": 9}
    assert begun(Seen(3), GIVEN, later) == {"t1": 9}
    assert begun(Seen(4), GIVEN, later) == {"t1": 25}  # it had given back what it took before
    assert begun(Seen(3, (6,)), GIVEN, later) == {"t1": 9}  # the earlier one ended later
    assert begun(Seen(6), GIVEN, later) == {"t1": 30}  # it has told all of what it had
    assert begun(None) is None  # from its beginning, as far as it is there


def test_a_replicaset_told_all_if_it_was_read_to_the_end_of_all_it_gave() -> None:
    def is_all(
        lsn: int, owned: tuple[int, int] = (1, 10), given: tuple[int, int] = (1, 10)
    ) -> bool:
        known = Standing({"s": {"s1": lsn}, "t": {"t1": 3}}, {"s": (owned,)})
        return told_all(known, "s", [HandOver(1, given, {"s1": 7}, {"t1": 9})])

    assert is_all(7)
    assert not is_all(6)  # its last change was not read
    assert not is_all(7, owned=(1, 11))  # a bucket that nobody took over: it was lost
    assert is_all(7, owned=(2, 9))


def test_what_others_gave_does_not_speak_for_a_replicaset_that_left() -> None:
    known = Standing({"s": {"s1": 7}}, {"s": ((1, 10),)})
    of_another = HandOver(1, (1, 10), {"u1": 1}, {"t1": 9})
    assert not told_all(known, "s", [of_another])


def test_what_a_giver_still_has_to_tell_ends_with_the_last_thing_it_gave() -> None:
    later = HandOver(6, (11, 20), {"s1": 8}, {"t1": 25})
    assert untold({"s1": 6}, [GIVEN, later]) == later
    assert untold({"s1": 8}, [GIVEN, later]) is None
    assert untold({"u1": 1}, [GIVEN, later]) is None
