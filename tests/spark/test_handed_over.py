"""How far a stream may read when buckets were handed over: the source to its end comes first."""

from __future__ import annotations

from cairn.spark.row_asking import Standing, TakenOver
from cairn.spark.row_stream import _held_back, _with_newcomers

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
