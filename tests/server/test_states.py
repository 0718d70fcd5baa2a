"""What a session takes in which state."""

from __future__ import annotations

from typing import get_args

from cairn.pgwire.server.requests import CopyData, CopyDone, CopyFail, Request
from cairn.server.session.states import State
from cairn.server.session.takes import TAKES

COPY = {CopyData, CopyDone, CopyFail}


def test_every_request_is_taken_in_some_state() -> None:
    taken = {request for takes in TAKES for request in takes}
    assert taken == set(get_args(Request)) - COPY  # those are the COPY's own to take


def test_statements_are_taken_by_an_idle_session_alone() -> None:
    at_both = set(TAKES[State.ENTERING]) & set(TAKES[State.IDLE])
    assert {request.__name__ for request in at_both} == {"Terminate", "BadMessage"}
    assert [state for state in State if TAKES[state]] == [State.ENTERING, State.IDLE]
