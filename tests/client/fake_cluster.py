"""Several fake instances in one process, for the driver's tests: real sockets, scripted answers.

They share a table `t (id INT, v TEXT)` and a catalogue; each keeps a list of what it executed. A
statement that arrives at the wrong instance is executed all the same, and seen to be a hop.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from cairn.model.buckets import bucket_of
from cairn.model.cluster import Cluster
from cairn.model.errors import BehindPosition, CairnError, InvalidParameter, StatementInvalidated
from cairn.model.events import AnyEvent, Version, encode
from cairn.model.topology import (
    BucketRange,
    BucketState,
    Grade,
    Instance,
    Position,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.values import ColumnType
from cairn.pgwire import oids
from cairn.pgwire import requests as ask
from cairn.pgwire.extended import Signature, StatementBook
from cairn.pgwire.server import PgServer
from cairn.topology.changes import difference
from cairn.topology.snapshot import heartbeat, hello, snapshot_end, snapshot_events

NOW = "2026-01-02T03:04:05+00:00"
ROW = re.compile(r"\(\s*\$\d+[^)]*\)")


class Text:
    """A statement of the toy language, with its shape and metadata."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.verb = sql.split()[0].lower()
        self.rows = len(ROW.findall(sql)) if self.verb == "insert" else 0
        self.params = [oids.INT8, oids.TEXT] * self.rows
        self.columns: list[tuple[str, int]] | None = None
        self.key: list[list[int]] = [[1, oids.INT8]] if self.rows == 1 else []
        if self.verb == "select":
            self.columns = [("id", oids.INT8), ("v", oids.TEXT)]
            if "id = $1" in sql:
                self.params, self.key = [oids.INT8], [[1, oids.INT8]]
            elif "v = $1" in sql:
                self.params = [oids.TEXT]
        elif self.verb not in ("insert", "begin", "commit", "rollback", "copy", "create"):
            raise CairnError(f"syntax error at {self.verb}", sqlstate="42601")


class FakeInstance:
    """One listening socket. Set `refuse`, `versions` … to make it misbehave."""

    def __init__(self, cluster: FakeCluster, name: str, port: int) -> None:
        self.cluster, self.name, self.port = cluster, name, port
        self.executed: list[tuple[str, list[Any]]] = []
        self.parsed: Counter[str] = Counter()
        self.refuse: list[str] = []  # SQLSTATEs for the next executions
        self.hang_up_on: str | None = None  # a verb: executed, then the connection is cut
        self.silent = False
        self.versions: tuple[str, ...] = ("0.1", "0.2")
        self.is_behind = False
        self.sessions: set[FakeSession] = set()
        self.server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Refuse new connections and cut the old ones."""
        if self.server is not None:
            self.server.close()
            self.server = None
        for session in list(self.sessions):
            session.cut()


class FakeSession(asyncio.Protocol):
    def __init__(self, instance: FakeInstance) -> None:
        self.instance, self.cluster = instance, instance.cluster
        self.pg = PgServer(known_extensions=frozenset({"smart_connector"}))
        self.book: StatementBook[Text] = StatementBook()
        self.made_at: dict[bytes, int] = {}
        self.status = "I"
        self.version: Version | None = None
        self.options: dict[str, str] = {}
        self.transport: asyncio.Transport | None = None
        self.copying: bytearray | None = None
        self.simple = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.instance.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.instance.sessions.discard(self)

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        requests = self.pg.feed(data)
        while requests:
            request = requests.popleft()
            try:
                self.handle(request)
            except CairnError as error:
                if self.simple:
                    self.simple, self.copying = False, None
                    self.pg.error(error)
                    self.pg.ready(self.status)
                elif self.pg.phase.value == "authentication":
                    self.pg.fatal(error)
                else:
                    self.pg.fail(error)
        assert self.transport is not None
        out = self.pg.take()
        if not self.instance.silent:
            self.transport.write(out)
        if self.pg.is_closed:
            self.transport.close()

    def push(self, events: list[AnyEvent]) -> None:
        for event in events:
            self.pg.notice(encode(event))
        if self.transport is not None:
            self.transport.write(self.pg.take())

    def handle(self, request: ask.Request) -> None:
        match request:
            case ask.StartupReceived():
                self.welcome(request.params.options)
            case ask.Parse():
                self.parse(request)
            case ask.Bind():
                self.check_version(request.statement)
                self.book.bind(request)
                self.pg.bind_complete()
            case ask.Describe(kind="P"):
                self.pg.raw(self.book.portal(request.name).shape.description)
            case ask.Describe():
                signature = self.book.statement(request.name).signature
                self.pg.raw(signature.parameter_description + signature.statement_rows)
            case ask.Execute():
                portal = self.book.portal(request.portal)
                rows, tag = self.execute(portal.statement.plan, portal.values)
                self.pg.data_rows(b"".join(portal.shape.encode_row(row) for row in rows))
                self.pg.command_complete(tag)
            case ask.Close():
                self.book.close(request.kind, request.name)
                self.pg.close_complete()
            case ask.Sync():
                self.pg.ready(self.status)
            case ask.Query():
                self.query(Text(request.sql.decode()))
            case ask.CopyData():
                assert self.copying is not None
                self.copying += request.data
            case ask.CopyDone():
                self.end_copy()
            case ask.CopyFail():
                raise CairnError(f"COPY failed: {request.message}", sqlstate="57014")
            case ask.BadMessage():
                self.pg.refuse(request, self.status)
            case _:
                pass

    def welcome(self, options: dict[str, str]) -> None:
        self.options = options
        asked = options.get("smart_connector")
        self.pg.auth_ok()
        self.pg.parameter_status("server_version", "15.0")
        if asked is not None:
            if asked not in self.instance.versions:
                message = f"smart_connector version {asked} is not spoken here"
                return self.pg.fatal(InvalidParameter(message))
            after = options.get("smart_connector_after")
            if after is not None and self.instance.is_behind:
                return self.pg.fatal(BehindPosition("this instance is behind"))
            self.version = "0.1" if asked == "0.1" else "0.2"
            for event in self.cluster.opening(self.version, after):
                self.pg.notice(encode(event))
        self.pg.backend_key_data(1, b"abcd")
        self.pg.ready("I")
        return None

    def parse(self, request: ask.Parse) -> None:
        text = Text(request.sql.decode())
        self.instance.parsed[text.sql] += 1
        self.book.parse(request.name, text, Signature(text.params, text.columns))
        self.made_at[request.name] = self.cluster.schema_version
        if "picodata_stmt_invalidation" in self.options:
            notice = {
                "type": "PreparedStatementMetadata",
                "query": text.sql,
                "tier": "default",
                "dk_cols": [number - 1 for number, _ in text.key],
                "dk_meta": text.key,
                "hash_version": 2,
            }
            self.pg.notice(json.dumps(notice))
        self.pg.parse_complete()

    def check_version(self, name: bytes) -> None:
        made, now = self.made_at.get(name, 0), self.cluster.schema_version
        if made != now:
            raise StatementInvalidated(prepared_version=made, current_version=now)

    def execute(self, text: Text, values: list[Any]) -> tuple[list[tuple[Any, ...]], str]:
        instance = self.instance
        if instance.refuse and text.verb not in ("begin", "commit"):
            code = instance.refuse.pop(0)
            raise CairnError(f"refused with {code}", sqlstate=code)
        instance.executed.append((text.verb, values))
        if instance.hang_up_on == text.verb:
            self.cut()
        table = self.cluster.rows
        match text.verb:
            case "insert":
                pairs = list(zip(values[::2], values[1::2], strict=True))
                for key, _ in pairs:
                    if key in table:
                        raise CairnError(f"duplicate key {key}", sqlstate="23505")
                table.update(pairs)
                return [], f"INSERT 0 {len(pairs)}"
            case "select":
                found = [
                    row
                    for row in table.items()
                    if not values or row[0] == values[0] or row[1] == values[0]
                ]
                return found, f"SELECT {len(found)}"
            case "begin" | "commit" | "rollback":
                self.status = "T" if text.verb == "begin" else "I"
                return [], text.verb.upper()
        return [], text.verb.upper()

    def query(self, text: Text) -> None:
        self.simple = True
        if text.verb == "copy" and "stdin" in text.sql.lower():
            self.copying = bytearray()
            self.pg.copy_in_response(0, 2)
            return
        if text.verb == "copy":
            self.pg.copy_out_response(0, 2)
            for key, value in self.cluster.rows.items():
                self.pg.copy_data(f"{key}\t{value}\n".encode())
            self.pg.copy_done()
            self.pg.command_complete(f"COPY {len(self.cluster.rows)}")
        else:
            rows, tag = self.execute(text, [])
            shape = Signature(text.params, text.columns).shape((), ())
            if text.columns is not None:
                self.pg.raw(shape.description)
            self.pg.data_rows(b"".join(shape.encode_row(row) for row in rows))
            self.pg.command_complete(tag)
        self.simple = False
        self.pg.ready(self.status)

    def end_copy(self) -> None:
        assert self.copying is not None
        lines = bytes(self.copying).decode().splitlines()
        for line in lines:
            key, _, value = line.partition("\t")
            if not key.isdigit():
                raise CairnError(f"bad line {line!r}", sqlstate="22P02")
            self.cluster.rows[int(key)] = value
        self.simple, self.copying = False, None
        self.pg.command_complete(f"COPY {len(lines)}")
        self.pg.ready(self.status)


class FakeCluster:
    """i1 is master of r1 and i3 its replica; i2 is master of r2. Subscribers hear of changes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.instances: dict[str, FakeInstance] = {}
        self.rows: dict[int, str] = {}
        self.schema_version = 1
        self.picture = Cluster(properties={"cluster_uuid": "fake"})
        self.told: list[tuple[Position, dict[str, list[AnyEvent]]]] = []

    # --- the catalogue ------------------------------------------------------------------------

    async def start(self) -> None:
        for name in ("i1", "i2", "i3"):
            await self.listen(name)
        self.picture = Cluster(
            position=Position(1, 10),
            instances={
                name: self.row(name, replicaset)
                for name, replicaset in (("i1", "r1"), ("i2", "r2"), ("i3", "r1"))
            },
            replicasets={
                name: Replicaset(
                    name, f"u-{name}", master, master, "default", 1.0, "auto", ReplicasetState.READY
                )
                for name, master in (("r1", "i1"), ("r2", "i2"))
            },
            tiers={"default": Tier("default", 2)},
            addresses={(each.port, "pgproto"): each.address for each in self.instances.values()},
            buckets=(
                BucketRange("default", 1, 1500, BucketState.ACTIVE, "r1"),
                BucketRange("default", 1501, 3000, BucketState.ACTIVE, "r2"),
            ),
            properties={"cluster_uuid": "fake"},
        )

    async def listen(self, name: str, port: int = 0) -> FakeInstance:
        instance = self.instances[name] = FakeInstance(self, name, port)
        server = await self.loop.create_server(lambda: FakeSession(instance), "127.0.0.1", port)
        instance.server = server
        instance.port = server.sockets[0].getsockname()[1]
        return instance

    def row(self, name: str, replicaset: str, grade: Grade = Grade.ONLINE) -> Instance:
        port = self.instances[name].port
        state = State(grade, 1)
        return Instance(
            name, f"u-{name}", port, replicaset, f"u-{replicaset}", state, state, {}, "default", "1"
        )

    def opening(self, version: Version, after: str | None) -> list[AnyEvent]:
        position = self.picture.position
        if after is None or version == "0.1":
            return snapshot_events(self.picture, position=position, timestamp=NOW, version=version)
        term, _, index = after.partition(":")
        known = Position(int(term), int(index))
        later = [event for at, told in self.told if at > known for event in told["0.2"]]
        return [hello(self.picture), *later, snapshot_end(position, reset=False)]

    def on_loop(self, action: Callable[[], Any]) -> Any:
        """Run in the servers' thread and wait for it."""

        async def run() -> Any:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def change(self, **fields: Any) -> None:
        """A new picture of the cluster, told to everybody who listens."""
        self.on_loop(lambda: self._change(fields))

    def _change(self, fields: dict[str, Any]) -> None:
        before = self.picture
        position = Position(before.position.term, before.position.index + 1)
        self.picture = msgspec.structs.replace(before, position=position, **fields)
        versions: tuple[Version, ...] = ("0.1", "0.2")
        told = {
            version: difference(
                before, self.picture, position=position, timestamp=NOW, version=version
            )
            for version in versions
        }
        self.told.append((position, told))
        for instance in self.instances.values():
            for session in instance.sessions:
                if session.version is not None:
                    session.push(told[session.version])

    def heartbeat(self) -> None:
        self.on_loop(
            lambda: [
                session.push([heartbeat(self.picture.position)])
                for instance in self.instances.values()
                for session in instance.sessions
                if session.version == "0.2"
            ]
        )

    def set_grade(self, name: str, grade: Grade) -> None:
        row = self.picture.instances[name]
        changed = msgspec.structs.replace(row, current_state=State(grade, 2))
        self.change(instances={**self.picture.instances, name: changed})

    def set_master(self, replicaset: str, master: str) -> None:
        row = self.picture.replicasets[replicaset]
        changed = msgspec.structs.replace(row, current_master_name=master)
        self.change(replicasets={**self.picture.replicasets, replicaset: changed})

    def give_all_buckets_to(self, replicaset: str) -> None:
        self.change(buckets=(BucketRange("default", 1, 3000, BucketState.ACTIVE, replicaset),))

    def stop(self, name: str) -> None:
        self.on_loop(self.instances[name].stop)

    # --- what tests ask -----------------------------------------------------------------------

    def dsn(self, *names: str) -> str:
        hosts = ",".join(self.instances[name].address for name in names or ("i1",))
        return f"postgresql://admin@{hosts}/cairn?sslmode=disable"

    def key_of(self, master: str) -> int:
        """A key whose bucket is the given master's at the start."""
        return next(key for key in range(1000) if self.home(key) == master)

    def home(self, key: int) -> str:
        return "i1" if bucket_of([ColumnType.INTEGER], [key]) <= 1500 else "i2"

    def services(self) -> list[str]:
        """Instances that somebody has a service connection to."""
        return [
            name
            for name, instance in self.instances.items()
            for session in list(instance.sessions)
            if session.version is not None
        ]


@contextmanager
def fake_cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    thread = threading.Thread(target=cluster.loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(cluster.start(), cluster.loop).result(10)
    try:
        yield cluster
    finally:
        for name in list(cluster.instances):
            cluster.stop(name)
        cluster.loop.call_soon_threadsafe(cluster.loop.stop)
        thread.join(10)
        cluster.loop.close()
