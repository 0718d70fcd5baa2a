"""What judges a load: good histories are explained, bad ones of every sort are not."""

from __future__ import annotations

import pytest

from cairn.sim.cluster.loads.register_history import Content, History, Operation
from cairn.sim.linear import FOREVER

Told = tuple[Operation, ...]
NEVER = float(FOREVER)


def only(text: str | None) -> Content:
    return text, None, None


def put(tag: str, start: float, end: float = NEVER, places: tuple[int, ...] = (0,)) -> Operation:
    return Operation("put", start, end, places, tag)


def append(tag: str, start: float, end: float = NEVER, places: tuple[int, ...] = (0,)) -> Operation:
    return Operation("append", start, end, places, tag)


def delete(start: float, end: float = NEVER) -> Operation:
    return Operation("delete", start, end, (0,))


def read(text: str | None, start: float, end: float) -> Operation:
    return Operation("read", start, end, found=only(text))


def why(told: Told, epochs: list[float] | None = None) -> str | None:
    history = History()
    for each in told:
        history.add(each)
    return history.why_wrong(epochs)


GOOD: dict[str, Told] = {
    "one after another": (put("0.1", 0, 1), append("0.2", 2, 3), read("0.1+0.2", 4, 5)),
    "two at once, in either order": (
        put("0.1", 0, 1),
        append("0.2", 2, 6),
        append("1.1", 2, 6),
        read("0.1+1.1", 3, 4),
        read("0.1+1.1+0.2", 7, 8),
    ),
    "a read at the same time sees the old or the new": (
        put("0.1", 0, 1),
        put("0.2", 2, 9),
        read("0.1", 3, 4),
        read("0.2", 5, 6),
    ),
    "an unknown end that happened late": (
        put("0.1", 0, 1),
        append("0.2", 2),
        read("0.1", 3, 4),
        append("0.3", 5, 6),
        read("0.1+0.3+0.2", 7, 8),
    ),
    "an unknown end that never happened": (
        put("0.1", 0, 1),
        append("0.2", 2),
        read("0.1", 3, 4),
        read("0.1", 5, 6),
    ),
    "an unknown delete": (put("0.1", 0, 1), delete(2), read("0.1", 3, 4), read(None, 5, 6)),
    "nothing is added to what is not there": (append("0.1", 0, 1), read(None, 2, 3)),
}
BAD: dict[str, Told] = {
    "a lost write": (put("0.1", 0, 1), put("0.2", 2, 3), read("0.1", 4, 5)),
    "a lost addition": (put("0.1", 0, 1), append("0.2", 2, 3), read("0.1", 4, 5)),
    "a deleted row is back": (
        put("0.1", 0, 1),
        delete(2, 3),
        read(None, 4, 5),
        read("0.1", 6, 7),
    ),
    "a row that is gone": (put("0.1", 0, 1), read(None, 2, 3)),
    "a read goes back in time": (
        put("0.1", 0, 1),
        put("0.2", 2, 9),
        read("0.2", 3, 4),
        read("0.1", 5, 6),
    ),
    "one that happened, and then had not": (
        put("0.1", 0, 1),
        append("0.2", 2),
        read("0.1+0.2", 3, 4),
        read("0.1", 5, 6),
    ),
    "another order than that of time": (
        put("0.1", 0, 1),
        append("0.2", 2, 3),
        append("1.1", 4, 5),
        read("0.1+1.1+0.2", 6, 7),
    ),
    "half a statement": (
        put("0.1", 0, 1, (0, 1, 2)),
        Operation("read", 2, 3, found=("0.1", None, "0.1")),
    ),
}
#: Also where acknowledged rows may be lost.
INVENTED: dict[str, Told] = {
    "never written": (put("0.1", 0, 1), read("0.7", 2, 3)),
    "written later": (read("0.1", 0, 1), put("0.1", 2, 3)),
    "in another row": (put("0.1", 0, 1, (1,)), read("0.1", 2, 3)),
    "done twice": (put("0.1", 0, 1), append("0.2", 2, 3), read("0.1+0.2+0.2", 4, 5)),
    "out of the order of its client": (
        put("0.1", 0, 1),
        append("0.2", 2, 3),
        append("0.3", 4, 5),
        read("0.1+0.3+0.2", 6, 7),
    ),
    "an addition without what it was added to": (
        put("0.1", 0, 1),
        append("0.2", 2, 3),
        read("0.2", 4, 5),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_can_be_is_explained(name: str) -> None:
    assert why(GOOD[name]) is None
    assert why(GOOD[name], [4.5]) is None


@pytest.mark.parametrize("name", [*BAD, *INVENTED])
def test_what_cannot_be_is_told(name: str) -> None:
    assert why({**BAD, **INVENTED}[name]) is not None


@pytest.mark.parametrize("name", INVENTED)
def test_nothing_is_invented_where_rows_may_be_lost(name: str) -> None:
    assert why(INVENTED[name], [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]) is not None


@pytest.mark.parametrize("name", BAD)
def test_inside_one_epoch_nothing_is_lost(name: str) -> None:
    later = tuple(shifted(each, 10.0) for each in BAD[name])
    assert why(later, [5.0, 100.0]) is not None


def shifted(operation: Operation, seconds: float) -> Operation:
    end = operation.end if operation.end >= FOREVER else operation.end + seconds
    return Operation(
        operation.kind,
        operation.start + seconds,
        end,
        operation.places,
        operation.tag,
        operation.found,
    )


def test_between_two_epochs_an_acknowledged_write_may_be_lost_but_not_come_back() -> None:
    told = (put("0.1", 0, 1), append("0.2", 2, 3), read("0.1", 5, 6))
    assert why(told) is not None
    assert why(told, [4.0]) is None
    assert why((*told, read("0.1+0.2", 7, 8)), [4.0]) is not None


def test_what_was_under_way_at_a_naming_may_have_happened_before_it() -> None:
    told = (put("0.1", 0), append("1.1", 1, 2), read("0.1+1.1", 5, 6))
    assert why(told, [4.0]) is None
    assert why((*told, read("0.1", 7, 8)), [4.0]) is not None
