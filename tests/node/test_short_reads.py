"""Short reads of several owners: one answer when all have told, the long way when anyone cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, NotOwner, ProtocolViolation
from cairn.model.rpc import ReadPiece, ReadResponse
from cairn.node.statements.asker.short.merges import packed
from cairn.node.statements.asker.short.reads import ShortRead
from cairn.storage.files.pieces import Packed

encode = msgspec.msgpack.Encoder().encode


class Asked:
    """One owner: what it was told to do, and its answer when the test says so."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.is_over, self.is_closed, self.is_given_up = answer, False, False, False

    def give_up(self) -> None:
        self.is_over = self.is_given_up = True

    def close(self) -> None:
        self.is_closed = not self.is_over or self.is_given_up

    def tell(self, result: ReadPiece | CairnError) -> None:
        self.is_over = True
        self.answer(result)


class Question:
    """Two owners away, one row of this instance."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.noted_long = 0
        reads: Any = SimpleNamespace(merged=self._merged, was_long=self._was_long)
        way: Any = SimpleNamespace(away=[1, 2])
        self.read = ShortRead(reads, way, [Packed(1, [encode((0,))])], self.told.append)
        self.owners = [self._ask() for _ in range(2)]

    def _ask(self) -> Asked:
        found: list[Asked] = []

        def ask(link: Any, request: Any, callback: Any) -> Asked:
            found.append(Asked(callback))
            return found[0]

        part: Any = SimpleNamespace(is_over=False, close=lambda: found[0].close())
        nothing: Any = None
        hops: Any = SimpleNamespace(ask=ask)
        self.read.ask(hops, nothing, nothing, part)
        return found[0]

    def _merged(self, way: Any, parts: list[Packed]) -> ReadResponse:
        return ReadResponse([row for part in parts for row in part.unpacked()])

    def _was_long(self, way: Any) -> None:
        self.noted_long += 1


def rows(*values: int, cursor: int = 0) -> ReadPiece:
    return ReadPiece(msgspec.Raw(encode([(each,) for each in values])), cursor=cursor)


def test_the_answer_is_told_once_and_when_all_owners_have_told() -> None:
    asked = Question()
    asked.owners[1].tell(rows(2, 3))
    assert asked.told == []
    asked.owners[0].tell(rows())
    assert asked.told == [ReadResponse([(0,), (2,), (3,)])]


def test_the_first_error_ends_the_question_and_the_others_stop() -> None:
    asked, problem = Question(), NotOwner("it moved")
    asked.owners[0].tell(problem)
    assert asked.told == [problem]
    assert (asked.owners[1].is_given_up, asked.owners[1].is_closed) == (True, True)
    asked.owners[1].tell(rows(2))  # it was on its way
    assert asked.told == [problem]


def test_a_longer_answer_is_closed_and_left_to_the_long_way() -> None:
    asked = Question()
    asked.owners[0].tell(rows(1, cursor=7))
    [problem] = asked.told
    assert isinstance(problem, CairnError) and asked.noted_long == 1


@pytest.mark.parametrize(
    "answer",
    [
        ReadPiece(msgspec.Raw(encode({"a": 1}))),
        ReadPiece(msgspec.Raw(b"")),
        ReadPiece(msgspec.Raw(encode([])), encoded=b"D", count=1),
        ReadPiece(msgspec.Raw(encode([])), encoded=b"\x91\x01", count=1, is_packed=True),
    ],
    ids=["no list", "nothing", "messages", "packed"],
)
def test_what_was_not_asked_for_is_no_answer(answer: ReadPiece) -> None:
    asked = Question()
    asked.owners[0].tell(answer)
    [problem] = asked.told
    assert isinstance(problem, ProtocolViolation)


def test_who_is_cancelled_is_told_nothing_and_all_owners_stop() -> None:
    asked = Question()
    asked.read.give_up()
    assert [each.is_given_up and each.is_closed for each in asked.owners] == [True, True]
    for each in asked.owners:
        each.tell(rows(1))
    assert asked.told == []


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_rows_are_the_same_under_each_head_that_a_list_may_have(count: int) -> None:
    found = packed(encode([(each,) for each in range(count)]))
    assert (len(found), found.unpacked()) == (count, [(each,) for each in range(count)])
