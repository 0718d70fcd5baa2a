"""Which statements are traced. While no collector is set, none is, and nothing is made for them."""

from __future__ import annotations

import random

from cairn.model.tracing import Parent, read_parent
from cairn.net.spans import Attributes, Span, begun
from cairn.node.watching.otlp import Exporter
from cairn.node.watching.statistics import Seen


class Tracer:
    """Of one instance, which is `name` in `cluster`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._endpoint, self._ratio = "", 0.0
        self._exporter: Exporter | None = None
        self.is_on = False
        self.sent = self.dropped = 0  # by exporters that were closed

    def configure(self, endpoint: str, ratio: float, cluster: str) -> None:
        """As `trace_endpoint` and `trace_sample_ratio` say."""
        self._ratio = ratio
        if endpoint == self._endpoint:
            return
        self.close()
        self._endpoint = endpoint
        if endpoint:
            self._exporter = Exporter(endpoint, self._name, cluster)
            self.is_on = True

    def close(self) -> None:
        self.is_on, self._endpoint = False, ""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.close()
            self.sent += exporter.sent
            self.dropped += exporter.dropped

    def counts(self) -> tuple[int, int]:
        """Spans that a collector has taken, and those that nobody got."""
        exporter = self._exporter
        if exporter is None:
            return self.sent, self.dropped
        return self.sent + exporter.sent, self.dropped + exporter.dropped

    def statement(self, parent: Parent | None, seen: Seen, user: str, address: str) -> Span | None:
        """None if it is not traced: its client decides, if it says anything, else chance."""
        is_wanted = random.random() < self._ratio if parent is None else parent.is_sampled
        exporter = self._exporter
        if exporter is None or not is_wanted:
            return None
        about: Attributes = {
            "db.system.name": "cairn",
            "db.query.text": seen.query,
            "user.name": user,
            "client.address": address,
        }
        return begun(parent, seen.kind.word, about, exporter.put)

    def asked(self, header: str, method: str) -> Span | None:
        """A peer asks for something that belongs to a traced statement."""
        exporter, parent = self._exporter, read_parent(header)
        if exporter is None or parent is None:
            return None
        return begun(parent, method, {"rpc.system": "cairn", "rpc.method": method}, exporter.put)
