"""Long SELECTs that only scan: a worker reads the pages and makes the client's messages."""

from __future__ import annotations

import msgspec

from cairn.model.rpc import ReadRequest
from cairn.net.link import Link
from cairn.node.statements.owner.open_reads import gone
from cairn.server.face import PgFace
from cairn.server.scan import pool
from cairn.server.scan.scans import has_libraries
from cairn.server.scan.statement import ENOUGH, Scan
from cairn.server.scan.worker import CANNOT, END, FAILED, ScanRequest
from cairn.storage.files.pieces import Encoded, Piece

MANY = 200_000  # rows that are worth the start of a worker


class WorkerScans:
    """What the execution asks for rows of this instance."""

    def __init__(self, face: PgFace) -> None:
        self._face = face

    async def open(self, request: ReadRequest) -> WorkerRead | None:
        """None: SQLite has to read them."""
        scan = Scan.of(request.sql, request.args)
        if scan is None or request.row_max or request.opcode_max or not has_libraries():
            return None
        enough = ENOUGH if pool.has_idle(self._face) else MANY
        sample = msgspec.structs.replace(request, sql=scan.first_rows, shape=None, piece_bytes=0)
        [(last, count)] = await self._face.execution.reads.read(sample)
        if scan.guess(last, count, request.ranges or ()) < enough:
            return None
        worker = await pool.taken(self._face)
        if worker is None:
            return None
        read = WorkerRead(self._face, worker)
        try:
            return read if await read.begin(request) else None
        except BaseException:
            read.close()
            raise


class WorkerRead:
    """One answer that a worker tells. The pipe between us is all that is read ahead."""

    def __init__(self, face: PgFace, worker: pool.Worker) -> None:
        self._face, self._worker = face, worker
        self.epoch: int | None = None
        self.link: Link | None = None
        self.used_at = 0.0
        self._first: Piece | None = None
        self._is_busy = self._is_over = False
        face.execution.reads.open_reads.count += 1

    async def begin(self, request: ReadRequest) -> bool:
        """Whether the worker can; it has begun its transaction then."""
        assert request.shape is not None
        instance = self._face.instance
        self._worker.ask(
            ScanRequest(
                str(instance.data.store.path),
                str(instance.store.path),
                request.sql,
                tuple(request.args),
                (),
                request.shape.types,
                shape=request.shape,
                piece_bytes=request.piece_bytes,
            )
        )
        self._first = await self._next()
        return self._first is not None

    async def take(self) -> Piece:
        if self._first is not None:
            found, self._first = self._first, None
            return found
        if self._is_over or self._is_busy:
            raise gone()
        self._is_busy = True
        try:
            piece = await self._next()
            assert piece is not None  # it could begin
        except BaseException:
            self.close()
            raise
        finally:
            self._is_busy = False
        return piece

    async def _next(self) -> Piece | None:
        kind, data = await self._worker.next()
        if kind >= 0:
            return Piece(Encoded(kind, data), b"", False)
        self._end()
        pool.given_back(self._face, self._worker)
        if kind == CANNOT:
            return None
        if kind == FAILED:
            raise pool.failure(data)
        assert kind == END
        return Piece([], b"\x90", True)

    def close(self) -> None:
        """Nobody wants the rest: a process is the one thing that can always be stopped."""
        if not self._is_over:
            self._end()
            self._worker.end()

    def _end(self) -> None:
        self._is_over = True
        self._face.execution.reads.open_reads.count -= 1
