"""Functions on giant values are called in a process of their own, and end when they are told to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cairn.model import stops
from cairn.model.errors import InvalidText, LimitExceeded, QueryCanceled
from cairn.node.statements.owner import calls_apart
from cairn.node.statements.owner.calls_apart import CallsApart
from cairn.sql.functions.functions import GIANT, SCALARS
from tests.cluster.harness import eventually

T = TypeVar("T")


@contextmanager
def apart() -> Iterator[CallsApart]:
    made = CallsApart()
    try:
        yield made
    finally:
        made.close()


def on_a_thread(work: Callable[[], T]) -> T:
    found: list[T | BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as problem:
            found.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    [value] = found
    if isinstance(value, BaseException):
        raise value
    return value


def never(*_: Any) -> Any:
    raise AssertionError("it was called in this process")


def children() -> set[str]:
    """Each thread has its own."""
    found: set[str] = set()
    for task in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(task.read_text().split())
    return found


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("c_upper", ("äb" * GIANT,)),
        ("c_replace", ("ab" * GIANT, "b", "cd")),
        ("i_json_length", (f"[{'1,' * GIANT}1]",)),
        ("c_like", ("x" * 2 * GIANT, "%y%")),
        ("d_percentile", (f"[{'1,' * GIANT}2]", 0.5)),
        ("c_regexp_replace", ("a" * 2 * GIANT, "a{100}", "b", "g")),
    ],
)
def test_the_value_is_the_one_that_the_function_gives(name: str, args: tuple[Any, ...]) -> None:
    with apart() as calls:
        assert on_a_thread(lambda: calls.call(name, never, args)) == SCALARS[name](*args)


def test_what_the_function_refuses_is_refused_in_the_same_words() -> None:
    text = "[" + "1," * GIANT
    with pytest.raises(InvalidText) as here:
        SCALARS["j_check"](text)
    with apart() as calls, pytest.raises(InvalidText) as there:
        on_a_thread(lambda: calls.call("j_check", never, (text,)))
    assert (str(there.value), there.value.sqlstate) == (str(here.value), here.value.sqlstate)


def test_a_call_that_is_not_wanted_any_more_ends_with_its_process() -> None:
    stopped = threading.Event()
    before = children()
    text = f"[{','.join(['[1]'] * 3_000_000)}]"  # seconds of work

    def call() -> Any:
        with stops.working_until(stopped.is_set):
            return calls.call("a_json_items", never, (text,))

    with apart() as calls:
        told: list[BaseException] = []

        def wait() -> None:
            try:
                call()
            except QueryCanceled as problem:
                told.append(problem)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: len(children() - before) == 1, "a process")
        stopped.set()
        waiting.join(60)
        assert (len(told), children()) == (1, before)
        assert on_a_thread(lambda: calls.call("c_upper", never, ("x",))) == "X"


def test_a_process_that_dies_is_told_and_the_next_call_gets_another() -> None:
    with apart() as calls:
        before = children()
        on_a_thread(lambda: calls.call("c_upper", never, ("x",)))
        [worker] = children() - before
        os.kill(int(worker), 9)
        eventually(lambda: not calls._idle[0].is_alive, "it is gone")
        assert on_a_thread(lambda: calls.call("c_upper", never, ("y",))) == "Y"


def test_one_that_dies_in_the_middle_is_an_error_of_the_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls_apart, "COMMAND", ("/bin/true",))
    with apart() as calls, pytest.raises(LimitExceeded, match="has ended"):
        on_a_thread(lambda: calls.call("c_upper", never, ("x" * 3_000_000,)))


def test_no_process_is_left_behind() -> None:
    before = children()
    with apart() as calls:
        on_a_thread(lambda: calls.call("c_upper", never, ("x",)))
        assert len(children() - before) == 1
    assert children() == before


def test_the_event_loop_itself_never_waits_for_one() -> None:
    before = children()
    with apart() as calls:
        assert calls.call("c_upper", SCALARS["c_upper"], ("x" * 2 * GIANT,))[0] == "X"
        assert children() == before
