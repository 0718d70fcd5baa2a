"""Spans to a collector: OTLP over HTTP, as JSON, in a thread of its own.

Whatever the collector does (down, slow, rubbish for an answer) stays in that thread. The line
before it has a bound: spans that find it full are counted and dropped.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

import cairn
from cairn.model.settings.trace_endpoint import read_endpoint
from cairn.net.spans import Attributes, Span

log = logging.getLogger("cairn.tracing")

QUEUE_MAX = 10_000  # spans; some 10 MB
BATCH = 200  # in one request: half a millisecond to write as JSON
EVERY_S = 1.0  # a batch that is not full waits so long
TIMEOUT_S = 5.0  # for each step of a request
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 30.0  # after a request that failed
ANSWER_MAX = 64 * 1024  # bytes of an answer that are read; it says nothing that is needed

_encode = msgspec.json.Encoder().encode


class Exporter:
    """`sent` and `dropped` count spans. A batch that a collector refuses is dropped, not repeated:
    what a collector cannot take now it can take less of later."""

    def __init__(self, endpoint: str, instance: str, cluster: str) -> None:
        self._address = read_endpoint(endpoint)
        self._resource = _attributes(
            {
                "service.name": "cairn",
                "service.namespace": cluster,
                "service.instance.id": instance,
                "service.version": cairn.__version__,
            }
        )
        self._line: deque[Span] = deque()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self.sent = self.dropped = 0
        threading.Thread(target=self._run, name="traces", daemon=True).start()

    def put(self, span: Span) -> None:
        """On the event loop: a span has ended."""
        line = self._line
        if len(line) >= QUEUE_MAX:
            self.dropped += 1
            return
        line.append(span)
        if len(line) == BATCH:
            self._wake.set()

    def close(self) -> None:
        """What is in the line is still offered once; nobody waits for that."""
        self._closed.set()
        self._wake.set()

    # --- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s, is_last = 0.0, False
        while not is_last:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            is_last = self._closed.is_set()
            problem = self._offer_all()
            if problem is None:
                if pause_s:
                    log.info("the collector of traces takes spans again")
                pause_s = 0.0
            else:
                if not pause_s:
                    log.warning("the collector of traces takes no spans: %s", problem)
                pause_s = min(max(pause_s * 2, FIRST_PAUSE_S), LAST_PAUSE_S)
                self._closed.wait(pause_s)
        self._hang_up()

    def _offer_all(self) -> str | None:
        """What is in the line, up to the first batch that is not taken."""
        line = self._line
        while line:
            batch = [line.popleft() for _ in range(min(len(line), BATCH))]
            problem = self._offer(batch)
            if problem is not None:
                self.dropped += len(batch)
                return problem
            self.sent += len(batch)
        return None

    def _offer(self, batch: list[Span]) -> str | None:
        """None, or why it was not taken."""
        try:
            body = _encode(as_otlp(batch, self._resource))
            connection = self._connection or self._connected()
            self._connection = connection
            headers = {"Content-Type": "application/json", "User-Agent": "cairn"}
            connection.request("POST", self._address.path, body, headers)
            answer = connection.getresponse()
            rest = answer.read(ANSWER_MAX)
            if len(rest) == ANSWER_MAX or answer.will_close:
                self._hang_up()
            if 200 <= answer.status < 300:
                return None
            return f"HTTP status {answer.status}"
        except Exception as problem:  # whatever comes from outside: the next batch begins anew
            self._hang_up()
            return f"{type(problem).__name__}: {str(problem)[:200]}"

    def _connected(self) -> http.client.HTTPConnection:
        to = self._address
        if to.is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(to.host, to.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(to.host, to.port, timeout=TIMEOUT_S)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


# --- the shape of OTLP ----------------------------------------------------------------------------


def as_otlp(spans: Iterable[Span], resource: list[dict[str, Any]]) -> dict[str, Any]:
    """`ExportTraceServiceRequest` in its JSON form: ids in hex, 64-bit numbers as texts."""
    scope = {"name": "cairn", "version": cairn.__version__}
    told = [{"scope": scope, "spans": [_told(span) for span in spans]}]
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": told}]}


def _told(span: Span) -> dict[str, Any]:
    told: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.began_ns),
        "endTimeUnixNano": str(span.began_ns + span.took_ns),
        "attributes": _attributes(span.attributes),
        "status": {},
    }
    if span.parent_id:
        told["parentSpanId"] = span.parent_id
    if span.problem:
        told["status"] = {"code": 2, "message": span.problem}
        told["attributes"].append({"key": "error.type", "value": {"stringValue": span.problem}})
    return told


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if type(value) is int else {"stringValue": value},
        }
        for key, value in values.items()
    ]
