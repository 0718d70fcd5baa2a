"""Spans: the work of one instance for one traced statement.

`ACTIVE` is the span of whatever runs now. Tasks and callbacks inherit it, so a question to another
instance knows for which statement it is asked; a span that has ended is nobody's any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from secrets import token_hex
from time import perf_counter_ns, time_ns

from cairn.model.errors import CairnError
from cairn.model.tracing import Parent

SPANS_MAX = 1_000  # of one statement on one instance
INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds of spans, as OpenTelemetry numbers them

Attributes = dict[str, str | int]


class _Trace:
    __slots__ = ("id", "left", "sink")

    def __init__(self, trace_id: str, sink: Callable[[Span], None]) -> None:
        self.id, self.sink, self.left = trace_id, sink, SPANS_MAX


class Span:
    """Some work and the time it took. It is told to its sink when it ends, and never before."""

    __slots__ = (
        *("_begun", "_trace", "attributes", "began_ns", "id", "is_open", "kind", "name"),
        *("parent_id", "problem", "took_ns"),
    )

    def __init__(
        self, trace: _Trace, parent_id: str, name: str, kind: int, attributes: Attributes
    ) -> None:
        self._trace, self.parent_id = trace, parent_id
        self.name, self.kind, self.attributes = name, kind, attributes
        self.id = token_hex(8)
        self.began_ns, self._begun = time_ns(), perf_counter_ns()
        self.took_ns, self.problem, self.is_open = 0, "", True

    @property
    def trace_id(self) -> str:
        return self._trace.id

    @property
    def header(self) -> str:
        return f"00-{self._trace.id}-{self.id}-01"

    def child(self, name: str, kind: int, attributes: Attributes) -> Span | None:
        """A part of it; None when it is over, or has very many already."""
        trace = self._trace
        if not self.is_open or not trace.left:
            return None
        trace.left -= 1
        return Span(trace, self.id, name, kind, attributes)

    def end(self, problem: str = "") -> None:
        """`problem` is a SQLSTATE or another short word, and never a text: texts have values."""
        if self.is_open:
            self.took_ns = perf_counter_ns() - self._begun
            self.problem, self.is_open = problem, False
            self._trace.sink(self)


def begun(
    parent: Parent | None,
    name: str,
    attributes: Attributes,
    sink: Callable[[Span], None],
) -> Span:
    """The first span of a trace on this instance."""
    trace = _Trace(token_hex(16) if parent is None else parent.trace_id, sink)
    return Span(trace, "" if parent is None else parent.span_id, name, SERVER, attributes)


ACTIVE: ContextVar[Span | None] = ContextVar("active_span", default=None)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Some work of the active span, if there is one."""
    active = ACTIVE.get()
    span = None if active is None else active.child(name, INTERNAL, {})
    if span is None:
        yield
        return
    try:
        yield
    except BaseException as problem:
        span.end(sqlstate_of(problem))
        raise
    span.end()


def sqlstate_of(problem: BaseException) -> str:
    return problem.sqlstate if isinstance(problem, CairnError) else type(problem).__name__
