"""What a session is doing: `takes.py` has what a client may send meanwhile."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    ENTERING = 0  # not logged in yet
    IDLE = 1  # takes the next request
    WAITING = 2  # a row is written here or asked of its owner: a callback brings the answer
    WORKING = 3  # a task runs
    COPYING = 4  # a task runs and takes what the client sends
    UPGRADING = 5  # TLS is being set up
    CLOSING = 6  # the client is gone, or is told to go


#: The same by themselves: looking a member up in its class costs three times as much.
ENTERING, IDLE, WAITING, WORKING, COPYING, UPGRADING, CLOSING = State
