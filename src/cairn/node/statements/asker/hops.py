"""One hop to the owner without a task: the answer comes by callback, one timer serves all.

A statement for one bucket that came to the wrong instance goes this way first. Whatever is not
plain (no link yet, a topology that moves) is left to the coordinator's long way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from cairn.model.errors import CairnError, Unreachable
from cairn.model.unexpected import owned
from cairn.net.link import Link

SWEEP_S = 0.5
T = TypeVar("T")
Answered = Callable[[T | CairnError], None]


class Hop:
    """A question on its way. `give_up` tells the owner that nobody waits any more."""

    __slots__ = ("_link", "callback", "deadline", "is_over", "request_id")

    def __init__(self, link: Link, callback: Answered[Any], deadline: float) -> None:
        self._link, self.callback, self.deadline = link, callback, deadline
        self.request_id = 0
        self.is_over = False

    def answer(self, result: Any) -> None:
        if not self.is_over:
            self.is_over = True
            self.callback(result)

    def give_up(self) -> None:
        self.is_over = True
        self._link.forget(self.request_id)
        self._link.no_more(self.request_id)

    def expire(self, method: str, timeout_s: float) -> None:
        if not self.is_over:
            self._link.forget(self.request_id)
            self.answer(Unreachable(f"no answer to {method} within {timeout_s:g} s"))


class _Here(Hop):
    """A write in this instance's own writer: it is on its way and cannot be taken back."""

    def __init__(self) -> None:
        self.is_over = False

    def give_up(self) -> None:
        pass


HERE: Hop = _Here()


class Hops(Generic[T]):
    """All questions of one kind: they wait equally long, so the oldest is the first to expire."""

    def __init__(self, method: str, answer: type[T], timeout_s: float) -> None:
        self._method, self._timeout_s = method, timeout_s
        self._decode = msgspec.msgpack.Decoder(answer).decode
        self._open: deque[Hop] = deque()
        self._is_sweeping = False

    def ask(self, link: Link, body: Any, callback: Answered[T]) -> Hop:
        loop = asyncio.get_running_loop()
        hop = Hop(link, callback, loop.time() + self._timeout_s)
        decode = self._decode

        def answered(raw: msgspec.Raw | CairnError) -> None:
            if isinstance(raw, CairnError):
                hop.answer(raw)
                return
            try:
                answer = decode(raw)
            except Exception as problem:
                hop.answer(owned(problem, f"the answer to {self._method}"))
                return
            hop.answer(answer)

        hop.request_id = link.request(self._method, body, answered)
        self._open.append(hop)
        if not self._is_sweeping:
            self._is_sweeping = True
            loop.call_later(SWEEP_S, self._sweep)
        return hop

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._open and (self._open[0].is_over or self._open[0].deadline <= now):
            self._open.popleft().expire(self._method, self._timeout_s)
        self._is_sweeping = bool(self._open)
        if self._is_sweeping:
            loop.call_later(SWEEP_S, self._sweep)
