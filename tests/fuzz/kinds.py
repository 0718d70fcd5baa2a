"""Each kind of input: one step of it, with the chance it is given."""

from __future__ import annotations

import asyncio
import io
import random
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from struct import pack
from typing import Any
from unittest.mock import MagicMock

import msgspec
import psycopg
import pyarrow as pa
from psycopg import pq

from cairn.client.settings import parse_dsn
from cairn.model.errors import CairnError
from cairn.net.handshake import DialSide, Identity
from cairn.net.link import Link
from cairn.node.boot.config import DEFAULT_FILE, SOURCES, load
from cairn.node.instance import Instance
from tests.cluster.as_peer import SECRET
from tests.fuzz.files import backups, migrations
from tests.fuzz.mutate import any_number, any_text, mutated
from tests.fuzz.relations import Relations
from tests.fuzz.secrets import secrets
from tests.fuzz.sql import Grammar
from tests.fuzz.target import Broken, Target
from tests.server.raw import Raw, fields, message, startup_packet
from tests.web.browsing import Browser

Step = Callable[[Target, random.Random], None]


def _refuse_internal(sqlstate: str | None, what: object) -> None:
    if sqlstate == "XX000":
        raise Broken(f"XX000 for {what!r}")


# --- SQL ------------------------------------------------------------------------------------------


def sql(target: Target, chance: random.Random) -> None:
    """One session with some statements, simple and extended."""
    grammar = Grammar(chance)
    relations = Relations(grammar, chance)
    with closing(target.node.connect()) as connection:  # whatever it was doing
        pg = connection.pgconn
        pg.exec_(b"SET statement_timeout = '1s'")
        for _ in range(20):
            text = grammar.statement() if chance.random() < 0.6 else relations.statement()
            if grammar.params:
                values = [None if each is None else each.encode() for each in grammar.params]
                result = pg.exec_params(text.encode(), values, result_format=chance.randrange(2))
            else:
                result = pg.exec_(text.encode())
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            _refuse_internal(state and state.decode(), (text, grammar.params))
            if result.status in (pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_IN):
                return
            if pg.status != pq.ConnStatus.OK:
                raise Broken(f"{text!r} ended the session: {pg.error_message!r}")


# --- pgwire bytes ---------------------------------------------------------------------------------


def pgwire(target: Target, chance: random.Random) -> None:
    """Messages that are nearly right, before the login and after it."""
    with Raw(target.node.pg_port, 5.0) as raw:
        if chance.random() < 0.3:
            packet = startup_packet(
                user=any_text(chance).replace("\0", ""), options=any_text(chance)
            )
            raw.send(mutated(chance, packet), mutated(chance, message(b"p", chance.randbytes(30))))
        else:
            raw.log_in()
            raw.send(*(mutated(chance, _message(chance)) for _ in range(chance.randrange(1, 12))))
            raw.send(message(b"S"))
        with suppress(OSError):
            raw.socket.shutdown(socket.SHUT_WR)
            for kind, body in raw.until(b"never"):
                if kind == b"E":
                    _refuse_internal(fields(body).get("C"), fields(body))


def _message(chance: random.Random) -> bytes:
    name, text = any_text(chance).encode()[:30], Grammar(chance).statement().encode()
    number = pack("!H", any_number(chance) & 0xFFFF)
    value = pack("!i", chance.choice((-1, 0, 3, 2**31 - 1))) + b"abc"
    return chance.choice(
        (
            message(b"Q", text + b"\0"),
            message(
                b"P", name + b"\0" + text + b"\0" + pack("!HI", 1, any_number(chance) & 0xFFFFFFFF)
            ),
            message(b"P", b"\0SELECT $1::int\0\0\0"),
            message(b"B", b"\0\0" + pack("!HH", 0, 1) + value + pack("!H", 0)),
            message(b"B", name + b"\0\0" + number + number + value + number),
            message(b"D", chance.choice((b"S", b"P", b"x")) + name + b"\0"),
            message(b"E", b"\0" + pack("!I", any_number(chance) & 0xFFFFFFFF)),
            message(b"C", b"S" + name + b"\0"),
            *(message(kind) for kind in (b"S", b"H", b"c", b"X")),
            message(b"d", chance.randbytes(9)),
            message(b"f", name + b"\0"),
            message(b"Q", b"COPY names FROM STDIN\0"),
        )
    )


# --- COPY and Arrow -------------------------------------------------------------------------------

_LINES = b"1\ta\t1.5\n2\t\\N\t-3\n\\.\n"


def copy(target: Target, chance: random.Random) -> None:
    """Text and CSV."""
    options = chance.choice(
        ("", " (FORMAT csv)", " (FORMAT csv, HEADER, DELIMITER ';')", " (FORMAT text, NULL 'x')")
    )
    names = chance.choice(("id, t, d", "id, l, s", "id, at, v", "id, n, u", "id, j, b"))
    _copy_in(target, f"COPY things ({names}) FROM STDIN{options}", mutated(chance, _LINES))


_COLUMNS = ("id", "t", "d", "n", "b", "u", "at", "w", "y", "v", "j", "l", "s")


def binary(target: Target, chance: random.Random) -> None:
    """COPY's binary format: what we tell ourselves, changed."""
    names = ["id", *chance.sample(_COLUMNS[1:], chance.randrange(4))]
    first = chance.randrange(10**6, 10**9)
    values = {
        "u": "gen_random_uuid()",
        "at": "now()",
        "w": "localtimestamp",
        "y": "current_date",
        "v": "interval '1 mon 2 days 3 s'",
        "j": """'{"a": [1, null]}'::json""",
        "l": "ARRAY[1, NULL, 3]",
        "s": "ARRAY['a', '']",
    }
    shown = ", ".join([f"id + {first}", *(values.get(each, each) for each in names[1:])])
    asked = f"COPY (SELECT {shown} FROM things WHERE id IN (1, 2, 3)) TO STDOUT (FORMAT binary)"
    with target.node.connect() as connection:
        try:
            with connection.cursor().copy(asked) as reading:
                data = b"".join(bytes(each) for each in reading)
        except psycopg.Error as problem:  # other kinds drop the table, and make others of its name
            _refuse_internal(problem.sqlstate, asked)
            return
    text = f"COPY things ({', '.join(names)}) FROM STDIN (FORMAT binary)"
    _copy_in(target, text, mutated(chance, data))


def arrow(target: Target, chance: random.Random) -> None:
    count = chance.randrange(5)
    keys = pa.array(range(1_000, 1_000 + count), pa.int64())
    column = chance.choice(
        (
            pa.array([any_text(chance) for _ in range(count)]),
            pa.array([1.5] * count),
            pa.array([[1, 2]] * count, pa.list_(pa.int64())),
            pa.array(["a"] * count).dictionary_encode(),
            pa.array([b"0123456789abcdef"] * count),
        )
    )
    batch = pa.record_batch([keys, column], names=["id", chance.choice(("t", "d", "l", "u", "j"))])
    sink = io.BytesIO()
    packed = pa.ipc.IpcWriteOptions(compression=chance.choice((None, "zstd", "lz4")))
    with pa.ipc.new_stream(sink, batch.schema, options=packed) as writer:
        writer.write_batch(batch)
    names = ", ".join(batch.schema.names)
    text = f"COPY things ({names}) FROM STDIN (FORMAT arrow)"
    _copy_in(target, text, mutated(chance, sink.getvalue()))


def _copy_in(target: Target, text: str, data: bytes) -> None:
    with target.node.connect() as connection, connection.cursor() as cursor:
        try:
            with cursor.copy(text) as writing:
                writing.write(data)
        except psycopg.Error as problem:
            _refuse_internal(problem.sqlstate, (text, data))


# --- peers ----------------------------------------------------------------------------------------

#: Made only to read the names and the types of the requests.
PEER_CALLS = {call.name: call.request for call in Instance._peer_calls(MagicMock())}
_STRANGE = ("discover", "cancel_request", "ping", "nobody")


def peers(target: Target, chance: random.Random) -> None:
    """Calls of somebody who knows the service password, as a stranger and as a member."""
    asyncio.run(_peers(target, chance))


async def _peers(target: Target, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Link] = loop.create_future()
    who = chance.choice((Identity(target.cluster.name), _member(target)))

    def make() -> Link:
        shake = DialSide(who, SECRET.encode(), chance.randbytes)
        return Link(shake, {}, ready.set_result, lambda *_: None)

    await loop.create_connection(make, "127.0.0.1", target.node.peer_port)
    link = await asyncio.wait_for(ready, 10)
    refused: list[Any] = []
    answered = asyncio.Event()

    def told(answer: Any) -> None:
        if isinstance(answer, CairnError):
            refused.append(answer)
        waiting.pop()
        if not waiting:
            answered.set()

    waiting: list[int] = []
    for _ in range(10):
        if not link.is_open:
            break
        name = chance.choice((*PEER_CALLS, *_STRANGE))
        body = msgspec.msgpack.encode(_body(chance, name))
        if chance.random() < 0.4:
            changed = mutated(chance, body) or b"\xc0"
            if name != "promise" and (name not in _WITH_TEXT or _has_our_texts(changed)):
                body = changed
        if chance.random() < 0.2:
            link.tell(name, body)
        else:
            waiting.append(1)
            link.request(name, msgspec.Raw(body), told)
    if waiting:
        with suppress(TimeoutError):  # some calls wait for what never comes
            await asyncio.wait_for(answered.wait(), 0.3)
    if link.is_open and chance.random() < 0.1:
        link._transport.write(mutated(chance, pack("!I", 30) + chance.randbytes(30)))
    link.close()
    for each in refused:
        _refuse_internal(each.sqlstate, each)


_MEMBERS: dict[str, Identity] = {}


def _member(target: Target) -> Identity:
    key = str(target.node.dir)
    if key not in _MEMBERS:
        uuid, raft_id = target.node.sql("SELECT uuid, raft_id FROM _pico_instance")[0]
        cluster = target.node.sql("SELECT value FROM _pico_property WHERE key = 'cluster_uuid'")
        _MEMBERS[key] = Identity(
            target.cluster.name, str(cluster[0][0]).strip('"'), str(uuid), "i1", raft_id
        )
    return _MEMBERS[key]


#: Between members a text that SQLite cannot read is a mistake of ours, and told as one.
_WITH_TEXT = ("read_rows", "write_rows", "join_rows", "split_rows")
_TEXTS = ("SELECT 1", "SELECT 1 LIMIT 1")


def _has_our_texts(body: bytes) -> bool:
    """Changed bytes may still be a request, with another text in it."""
    try:
        found = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    parts = [found, found.get("read")] if isinstance(found, dict) else []
    return all(
        each.get("sql") in _TEXTS and each.get("grouped", "") in ("", *_TEXTS)
        for each in parts
        if isinstance(each, dict)
    )


def _body(chance: random.Random, name: str) -> Any:
    kind = PEER_CALLS.get(name)
    if kind is None or kind is bytes:
        return chance.randbytes(chance.randrange(40))
    if name == "expel":  # a member may do that
        return {"instance": any_text(chance) + "?"}
    if name == "promise":  # of the next epoch, and the master would wait for it ever after
        return {"replicaset": any_text(chance), "epoch": chance.choice((-1, 0, 1, 1 << 40))}
    body = valued(chance, msgspec.inspect.type_info(kind))
    if name in _WITH_TEXT and isinstance(body, dict):
        known = {"sql": chance.choice(_TEXTS), "grouped": "", "args": [], "rows": []}
        body |= known | ({"tables": []} if name == "join_rows" else {})
        if isinstance(read := body.get("read"), dict):
            read |= known
    return body


def valued(chance: random.Random, info: Any, depth: int = 0) -> Any:
    """A value of this type, or now and then of another."""
    inspect = msgspec.inspect
    if chance.random() < 0.03:
        return chance.choice((None, -1, "x", [], {}, 1.5, b"\xff"))
    match info:
        case inspect.IntType():
            return any_number(chance)
        case inspect.StrType():
            return any_text(chance)
        case inspect.BytesType():
            return chance.randbytes(chance.randrange(20))
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.FloatType():
            return chance.choice((0.0, -1.0, 0.05, float("nan"), float("inf"), 1e308))
        case inspect.NoneType():
            return None
        case inspect.UnionType(types=types):
            return valued(chance, chance.choice(types), depth)
        case inspect.LiteralType(values=values):
            return chance.choice(values)
        case inspect.EnumType(cls=cls):
            return chance.choice([each.value for each in cls])
        case inspect.DictType(key_type=key, value_type=value):
            count = chance.randrange(3) if depth < 4 else 0
            made = [
                (valued(chance, key, depth + 1), valued(chance, value, depth + 1))
                for _ in range(count)
            ]
            return {one: two for one, two in made if isinstance(one, str | int | bytes)}
        case inspect.TupleType(item_types=types):
            return [valued(chance, each, depth + 1) for each in types]
        case inspect.VarTupleType(item_type=of) | inspect.ListType(item_type=of):
            count = chance.randrange(4) if depth < 4 else 0
            return [valued(chance, of, depth + 1) for _ in range(count)]
        case inspect.SetType(item_type=of) | inspect.FrozenSetType(item_type=of):
            return [valued(chance, of, depth + 1) for _ in range(chance.randrange(3))]
        case inspect.StructType(fields=parts, array_like=is_array, tag=tag, tag_field=tag_field):
            values = {
                each.encode_name: valued(chance, each.type, depth + 1)
                for each in parts
                if each.required or is_array or chance.random() < 0.7
            }
            if is_array:
                return [*([tag] if tag is not None else []), *values.values()]
            return {**({tag_field: tag} if tag is not None else {}), **values}
        case inspect.RawType():
            return {"x": any_number(chance)}
    return chance.choice((any_number(chance), any_text(chance), None, b"\xff", [1], {"a": 1}))


# --- HTTP -----------------------------------------------------------------------------------------

_PATHS = (
    *("/", "/metrics", "/api/v1/status", "/api/v1/health/ready", "/nothing", "/%ff/../..", "*"),
    *("/api/v1/overview", "/api/v1/samples?since=1e999", "/api/v1/events?after=1:2"),
    *("/api/v1/login", "/api/v1/logout", "/api/v1/query", "/static/console.js", "/static/%2e%2e/x"),
)
_BODIES = (
    *(b"", b"x" * 5_000, b"5\r\nhello\r\n0\r\n\r\n"),
    *(b'{"user": "admin", "password": "x"}', b'{"ticket": "AAAA"}', b'{"sql": "SELECT 1"}'),
)


def http(target: Target, chance: random.Random) -> None:
    verb = chance.choice(("GET", "POST", "HEAD", "OPTIONS", "PUT", "BREW", "CONNECT"))
    body = chance.choice(_BODIES)
    head = chance.choice(
        (
            "Connection: close",
            f"Content-Length: {any_number(chance)}",
            "Transfer-Encoding: chunked",
            f"X-Long: {'x' * chance.choice((10, 5_000, 70_000))}",
            "Upgrade: websocket\r\nConnection: upgrade",
            "Expect: 100-continue",
            f"X-Cairn: console\r\nContent-Length: {len(body)}",
            "Cookie: cairn_00000000=AAAA; " + "x=y; " * 50,
        )
    )
    path = chance.choice(_PATHS) + chance.choice(("", "?a=b", "?" + "x" * 5_000))
    request = f"{verb} {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", target.http_port), 5) as client:
        client.sendall(mutated(chance, request))
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(65536)
            if answer.startswith(b"HTTP/1.1 500"):
                raise Broken(f"500 for {request[:300]!r}")


def console(target: Target, chance: random.Random) -> None:
    """The query box, by somebody who is logged in: an answer or an error in JSON, never a 500."""
    browser = _BROWSERS.setdefault(target.http_port, Browser(target.http_port))
    if not browser.cookies:
        browser.log_in()
    grammar = Grammar(chance)
    for _ in range(5):
        text = chance.choice((grammar.statement, Relations(grammar, chance).statement))()
        try:
            status, told = browser.query(text)
        except TimeoutError:  # the box gives a statement 30 s
            continue
        if status == 401:  # another kind has ended the session
            browser.log_in()
        if status >= 500 and status != 503:
            raise Broken(f"{status} for {text!r}: {told}")
        if isinstance(told, dict) and "error" in told:
            _refuse_internal(told["error"].get("sqlstate"), text)


_BROWSERS: dict[int, Browser] = {}


# --- configuration --------------------------------------------------------------------------------


def config(target: Target, chance: random.Random) -> None:
    """Files, variables and connection strings: read, or refused by an error of ours."""
    path = target.cluster.dir / "fuzzed.yaml"
    for _ in range(20):
        lines = [
            line.replace("# ", "", 1) if chance.random() < 0.5 else line
            for line in DEFAULT_FILE.splitlines()
        ]
        path.write_bytes(mutated(chance, "\n".join(lines).encode()))
        environment = {
            variable: any_text(chance) for variable, _ in SOURCES.values() if chance.random() < 0.1
        }
        with suppress(CairnError):
            load({"config": str(path)}, environment)
        dsn = b"postgresql://admin:x@127.0.0.1:4327,[::1]:1/cairn?sslmode=require&connect_timeout=3"
        with suppress(CairnError):
            parse_dsn(mutated(chance, dsn).decode(errors="replace"))


KINDS: dict[str, Step] = {
    "pgwire": pgwire,
    "sql": sql,
    "peers": peers,
    "arrow": arrow,
    "copy": copy,
    "binary": binary,
    "http": http,
    "config": config,
    "console": console,
    "secrets": secrets,
    "backups": backups,
    "migrations": migrations,
}
