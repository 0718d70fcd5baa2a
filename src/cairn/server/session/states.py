"""What a session is doing, and what a client may send meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from cairn.pgwire.server.requests import (
    BadMessage,
    Bind,
    CancelReceived,
    Close,
    Describe,
    Execute,
    Flush,
    NeedTls,
    Parse,
    Query,
    SaslInitial,
    SaslResponse,
    StartupReceived,
    Sync,
    Terminate,
)
from cairn.server.session.extended import Extended
from cairn.server.session.simple import Simple
from cairn.server.session.start_up import StartUp


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


#: By state: the part of the session that takes a request, and how. What is not listed waits in the
#: line where nothing is taken, and is dropped elsewhere: the end of a COPY that has failed.
Takes = Mapping[type, tuple[str, Callable[[Any, Any], Any]]]
TAKES: tuple[Takes, ...] = (
    {
        NeedTls: ("start_up", StartUp.tls),
        StartupReceived: ("start_up", StartUp.startup),
        SaslInitial: ("start_up", StartUp.sasl_initial),
        SaslResponse: ("start_up", StartUp.sasl_response),
        CancelReceived: ("start_up", StartUp.cancel),
        Terminate: ("start_up", StartUp.terminate),
        BadMessage: ("start_up", StartUp.bad),
    },
    {
        Bind: ("extended", Extended.bind),
        Execute: ("extended", Extended.execute),
        Describe: ("extended", Extended.describe),
        Sync: ("extended", Extended.sync),
        Parse: ("extended", Extended.parse),
        Close: ("extended", Extended.close),
        Flush: ("extended", Extended.flush),
        Query: ("simple", Simple.query),
        Terminate: ("start_up", StartUp.terminate),
        BadMessage: ("start_up", StartUp.bad),
    },
    {},
    {},
    {},
    {},
    {},
)
assert len(TAKES) == len(State)
