"""A collector of traces may be down, slow or mad: the instance does not notice."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from cairn.model.errors import CairnError
from cairn.model.settings.trace_endpoint import Address, read_endpoint
from cairn.model.tracing import Parent, read_parent, without_parent
from cairn.model.watched import Kind
from cairn.net.spans import SPANS_MAX, Span, begun
from cairn.node.watching import otlp
from cairn.node.watching.otlp import Exporter
from cairn.node.watching.statistics import Seen
from cairn.node.watching.tracer import Tracer
from tests.cluster.harness import eventually, free_ports
from tests.server.collector import collecting

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "EVERY_S", 0.01)
    monkeypatch.setattr(otlp, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(otlp, "LAST_PAUSE_S", 0.02)
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.3)


def put(exporter: Exporter, count: int) -> None:
    for _ in range(count):
        begun(None, "work", {"number": 1, "word": 'é\0"'}, exporter.put).end()


def test_what_is_put_arrives_once() -> None:
    with collecting() as (collector, address):
        exporter = Exporter(address, "i1", "c")
        put(exporter, 3 * otlp.BATCH + 1)
        eventually(lambda: exporter.sent == 3 * otlp.BATCH + 1, "all are sent")
        exporter.close()
    assert collector.problems == [] and exporter.dropped == 0
    assert len({each.id for each in collector.spans}) == len(collector.spans) == exporter.sent
    assert collector.requests < 20  # in batches


def refusing(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(503)


def rubbish(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(random.Random(1).randbytes(10_000))
    handler.close_connection = True


def endless_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000)


def hanging_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def moving(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(307)
    handler.send_header("Location", "http://127.0.0.1:1/")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def silent(handler: BaseHTTPRequestHandler) -> None:
    threading.Event().wait(1.0)


@pytest.mark.parametrize(
    "answer",
    [refusing, rubbish, endless_headers, hanging_up, moving, silent],
    ids=lambda a: a.__name__,
)
def test_a_collector_that_takes_nothing_costs_the_spans(answer: object) -> None:
    with collecting(answer) as (collector, address):  # type: ignore[arg-type]
        exporter = Exporter(address, "i1", "c")
        put(exporter, 1)
        eventually(lambda: exporter.dropped == 1, "it is given up")
        put(exporter, 1)
        eventually(lambda: exporter.dropped == 2, "and so is the next")
        exporter.close()
    assert exporter.sent == 0 and collector.requests == 2  # nothing is repeated


def endless_answer(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"x" * 100_000)


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with collecting(endless_answer) as (_, address):
        exporter = Exporter(address, "i1", "c")
        put(exporter, 1)
        eventually(lambda: exporter.sent == 1, "it is taken")
        exporter.close()


def test_a_collector_that_is_down_leaves_a_line_with_a_bound() -> None:
    [port] = free_ports(1)
    with socket.socket() as deaf:  # takes connections, and never reads
        deaf.bind(("127.0.0.1", port))
        deaf.listen(1)
        exporter = Exporter(f"http://127.0.0.1:{port}", "i1", "c")
        put(exporter, 3 * otlp.QUEUE_MAX)
        assert exporter.dropped >= otlp.QUEUE_MAX
        assert len(exporter._line) <= otlp.QUEUE_MAX
        exporter.close()


def test_it_goes_on_when_the_collector_is_back() -> None:
    [port] = free_ports(1)
    exporter = Exporter(f"http://127.0.0.1:{port}", "i1", "c")
    put(exporter, 1)
    eventually(lambda: exporter.dropped == 1, "nobody is there")
    with collecting() as (_, address):
        tracer = Tracer("i1")
        tracer.configure(address, 1.0, "c")
        seen = Seen(1, "SELECT 1", Kind.SELECT_POINT)
        span = tracer.statement(None, seen, "ann", "127.0.0.1")
        assert span is not None
        span.end()
        eventually(lambda: tracer.counts() == (1, 0), "it is taken")
        tracer.close()
        assert tracer.statement(None, seen, "ann", "127.0.0.1") is None and not tracer.is_on
    exporter.close()


def spans_of(count: int) -> Iterator[Span | None]:
    whole = begun(None, "whole", {}, lambda span: None)
    return (whole.child("part", 1, {}) for _ in range(count))


def test_one_statement_has_a_bounded_number_of_spans() -> None:
    assert sum(each is not None for each in spans_of(2 * SPANS_MAX)) == SPANS_MAX


def test_a_span_that_is_over_has_no_more_parts() -> None:
    told: list[Span] = []
    whole = begun(None, "whole", {}, told.append)
    whole.end()
    whole.end("XX000")
    assert whole.child("part", 1, {}) is None
    assert told == [whole] and whole.problem == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        PARENT + "\n",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert read_parent(text) is None


def test_a_traceparent_is_read() -> None:
    assert read_parent(PARENT) == Parent(TRACE, SPAN, True)
    assert read_parent(PARENT[:-2] + "00") == Parent(TRACE, SPAN, False)


@pytest.mark.parametrize(
    ("text", "left", "is_found"),
    [
        (f"SELECT 1 /*traceparent='{PARENT}'*/", "SELECT 1", True),
        (f"SELECT 1; /*a='b',traceparent='{PARENT}',c='d'*/ ; ", "SELECT 1;;", True),
        (f"SELECT 1 /*xtraceparent='{PARENT}'*/", None, False),
        (f"SELECT 1 /*traceparent={PARENT}*/", None, False),
        ("SELECT 1 /*traceparent='nothing'*/", None, False),
        (f"SELECT '/*traceparent=''{PARENT}''*/'", None, False),
        (f"SELECT 1 /*traceparent='{PARENT}'*/ + 1", None, False),
        ("*/", None, False),
        ("/*" * 100_000 + "*/", None, False),
    ],
)
def test_a_comment_at_the_end_of_a_text_may_name_its_trace(
    text: str, left: str | None, is_found: bool
) -> None:
    found = without_parent(text.encode())
    assert found == ((left or text).encode(), Parent(TRACE, SPAN, True) if is_found else None)


def test_addresses_of_collectors() -> None:
    assert read_endpoint("http://h") == Address("h", 4318, "/v1/traces", False)
    assert read_endpoint("https://[::1]:44/") == Address("::1", 44, "/v1/traces", True)
    assert read_endpoint("http://h:1/otel?x=1") == Address("h", 1, "/otel?x=1", False)
    with pytest.raises(CairnError):
        read_endpoint("http://h:1/a\r\nb")
