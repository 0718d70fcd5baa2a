"""A collector of traces for tests: a real HTTP server that checks the shape of what it is sent."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

HEX_32, HEX_16 = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
NUMBER = re.compile(r"[1-9][0-9]{18}")  # nanoseconds since 1970, as a text

Answer = Callable[[BaseHTTPRequestHandler], None]


class Told(NamedTuple):
    """A span as the collector got it."""

    instance: str
    trace: str
    id: str
    parent: str
    name: str
    kind: int
    error: str
    attributes: dict[str, Any]
    began: int
    ended: int


class Collector:
    def __init__(self) -> None:
        self.spans: list[Told] = []
        self.problems: list[str] = []
        self.requests = 0

    def of(self, query: str) -> list[list[Told]]:
        """The traces of one statement, each with all spans that came so far."""
        found = [each for each in self.spans if each.attributes.get("db.query.text") == query]
        return [[each for each in self.spans if each.trace == one.trace] for one in found]

    def take(self, headers: Any, path: str, body: bytes) -> None:
        self.requests += 1
        try:
            assert path == "/v1/traces", path
            assert headers["Content-Type"] == "application/json"
            self.spans += read_request(json.loads(body))
        except Exception as problem:
            self.problems.append(repr(problem))


def read_request(request: dict[str, Any]) -> Iterator[Told]:
    """By OTLP's rules for JSON: names in camelCase, ids in hex, long numbers as texts."""
    assert set(request) == {"resourceSpans"}
    for resource in request["resourceSpans"]:
        assert set(resource) == {"resource", "scopeSpans"}
        about = read_attributes(resource["resource"]["attributes"])
        assert about["service.name"] == "cairn" and about["service.version"]
        for scope in resource["scopeSpans"]:
            assert scope["scope"]["name"] == "cairn"
            for span in scope["spans"]:
                yield read_span(span, about["service.instance.id"])


def read_span(span: dict[str, Any], instance: str) -> Told:
    needed = {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"}
    assert needed <= set(span) <= needed | {"parentSpanId", "attributes", "status"}
    assert HEX_32.fullmatch(span["traceId"]) and HEX_16.fullmatch(span["spanId"])
    assert HEX_16.fullmatch(span.get("parentSpanId", "0" * 16))
    assert span["kind"] in (1, 2, 3)
    assert NUMBER.fullmatch(span["startTimeUnixNano"]) and NUMBER.fullmatch(span["endTimeUnixNano"])
    assert span["status"] == {} or span["status"]["code"] == 2
    return Told(
        instance,
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        span["name"],
        span["kind"],
        span["status"].get("message", ""),
        read_attributes(span["attributes"]),
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
    )


def read_attributes(told: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in told:
        [(kind, value)] = each["value"].items()
        assert kind in ("stringValue", "intValue") and isinstance(value, str)
        found[each["key"]] = int(value) if kind == "intValue" else value
    assert len(found) == len(told)
    return found


def taken(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "2")
    handler.end_headers()
    handler.wfile.write(b"{}")


@contextmanager
def collecting(answer: Answer = taken) -> Iterator[tuple[Collector, str]]:
    """A collector and its address, until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.headers, self.path, body)
            answer(self)

        def log_message(self, *said: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
