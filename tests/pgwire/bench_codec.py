"""CPU time of the codec for one prepared point read: `python tests/pgwire/bench_codec.py`."""

from __future__ import annotations

import time
from struct import pack

from cairn.pgwire.server.extended import Signature, StatementBook
from cairn.pgwire.server.requests import Bind, Describe, Execute, Sync
from cairn.pgwire.server.server import PgServer, Phase
from cairn.pgwire.values.oids import INT8
from cairn.pgwire.values.rows import row_encoder


def prepared_read(key: bytes = b"12345") -> bytes:
    """What pgbench -M prepared sends for one SELECT with one parameter."""
    body = b"\0P0_1\0" + pack("!hhh", 1, 0, 1) + pack("!i", len(key)) + key + pack("!hh", 1, 0)
    bind = b"B" + pack("!i", len(body) + 4) + body
    return bind + b"D\0\0\0\6P\0" + b"E\0\0\0\x09\0\0\0\0\0" + b"S\0\0\0\4"


def session() -> tuple[PgServer, StatementBook[str]]:
    pg = PgServer()
    pg.phase = Phase.OPEN
    book: StatementBook[str] = StatementBook()
    book.parse(b"P0_1", "plan", Signature([INT8], [("abalance", INT8)]))
    return pg, book


def answer(pg: PgServer, book: StatementBook[str], data: bytes) -> bytes:
    """One batch as a session would handle it, with the database left out."""
    requests = pg.feed(data)
    while requests:
        request = requests.popleft()
        kind = type(request)
        if kind is Bind:
            book.bind(request)  # type: ignore[arg-type]
            pg.bind_complete()
        elif kind is Execute:
            portal = book.portal(request.portal)  # type: ignore[union-attr]
            pg.data_rows(portal.shape.encode_row((portal.values[0],)))
            pg.command_complete("SELECT 1")
        elif kind is Describe:
            pg.raw(book.portal(request.name).shape.description)  # type: ignore[union-attr]
        elif kind is Sync:
            book.sync(in_transaction=False)
            pg.ready("I")
    return pg.take()


def cpu_us(step: object, rounds: int = 7, times: int = 20_000) -> float:
    """The best round's CPU µs per call: other people's load only ever adds."""
    assert callable(step)
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            step()
        best = min(best, time.process_time() - start)
    return best / times * 1e6


def main() -> None:
    pg, book = session()
    data = prepared_read()
    print(answer(pg, book, data))
    print(f"Bind+Describe+Execute+Sync, 1 row: {cpu_us(lambda: answer(pg, book, data)):.2f} µs")
    encode = row_encoder([20, 25, 701], [0, 0, 0])
    row = (123456, "some text here", 2.5)
    print(f"one row of int, text, float:       {cpu_us(lambda: encode(row)):.2f} µs")
    print(f"feed alone:                        {cpu_us(lambda: pg.feed(data).clear()):.2f} µs")


if __name__ == "__main__":
    main()
