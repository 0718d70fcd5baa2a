"""What a client may send in each state of its session, and which part takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from cairn.server.session.entering.start_up import StartUp
from cairn.server.session.extended import Extended
from cairn.server.session.simple import Simple
from cairn.server.session.states import State

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
