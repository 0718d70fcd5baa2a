"""The port where instances talk: a bad frame costs its connection, never the instance."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from struct import pack
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.net.handshake import DialSide, Identity
from cairn.net.link import Link
from cairn.node.instance import Instance
from cairn.node.peer_calls import Right
from tests.cluster.as_peer import SECRET, member
from tests.cluster.harness import Cluster

SEED = 5
ROUNDS = 25  # of each call
DEEP = b"\x91" * 4_000 + b"\x01"
HELLO = b"\x84\xa4type\xa5hello\xa8protocol\x01\xa8identity\x81\xaccluster_name"
CALLS = (
    "raft_join",
    "update_instance",
    "expel",
    "cas",
    "wait_index",
    "read_index",
    "lease",
    "promise",
    "vclock",
    "replicated",
    "ballot",
    "subscribe",
    "copy_rows",
    "apply_schema_change",
    "report_links",
    "status",
    "raft",
    "snapshot_chunk",
    "read_rows",
    "write_rows",
    "discover",
    "cancel_request",
    "nobody",
)
#: Names of fields that requests have: a value of the wrong kind is worse than no value.
FIELDS = (
    "cluster_id",
    "instance_uuid",
    "advertise_address",
    "version",
    "index",
    "timeout_s",
    "replicaset",
    "epoch",
    "sql",
    "args",
    "tables",
    "rows",
    "table",
    "buckets",
    "ranges",
    "predicate",
    "op",
    "handle",
    "chunk",
    "vclock",
    "origins",
    "request_id",
)


def say(port: int, data: bytes) -> bytes:
    """What an instance answers to a stranger before it hangs up."""
    with socket.create_connection(("127.0.0.1", port), 10) as stranger:
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        found = b""
        while piece := stranger.recv(65536):
            found += piece
        return found


def framed(body: bytes) -> bytes:
    return pack("!I", len(body)) + body


def test_one_frame_of_a_stranger_does_not_end_an_instance(cluster: Cluster) -> None:
    node = cluster["i2"]
    before = node.child_pid
    chance = random.Random(SEED)
    for body in (
        HELLO + b"\xa1\xff\xa5nonce\xc4\x00",
        HELLO + b"\xdb\xff\xff\xff\xff",
        b"\x82\xa4type\xa5hello\xa1x" + DEEP,
        b"\xdd\xff\xff\xff\xff",
        b"",
        *(chance.randbytes(chance.randrange(200)) for _ in range(100)),
    ):
        say(node.peer_port, framed(body))
    say(node.peer_port, b"\xff\xff\xff\xff" + bytes(5000))
    say(node.peer_port, b"GET / HTTP/1.1\r\n\r\n")
    assert node.child_pid == before
    assert node.sql("SELECT 1") == [(1,)]


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(9 if depth < 4 else 6)
    match kind:
        case 0:
            return chance.choice((0, 1, -1, 2**63 - 1, -(2**63), 3301))
        case 1:
            return chance.choice(("", "i1", "x" * 5000, "\U0001f600", "SELECT 1", "127.0.0.1:port"))
        case 2:
            return chance.randbytes(chance.randrange(40))
        case 3:
            return chance.choice((None, True, False))
        case 4 | 5:
            return chance.choice((1.5, float("inf"), float("nan"), 1e308))
        case 6:
            return [any_value(chance, depth + 1) for _ in range(chance.randrange(5))]
        case _:
            return {
                chance.choice(FIELDS): any_value(chance, depth + 1)
                for _ in range(chance.randrange(6))
            }


def bodies(chance: random.Random) -> list[bytes]:
    whole = msgspec.msgpack.encode(any_value(chance))
    broken = bytearray(whole)
    broken[chance.randrange(len(broken))] = chance.randrange(256)
    return [whole, bytes(broken), whole[:-1] or b"\xc0", chance.randbytes(30)]


async def linked(port: int, who: Identity) -> Link:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Link] = loop.create_future()

    def make() -> Link:
        shake = DialSide(who, SECRET.encode(), random.randbytes)
        return Link(shake, {}, ready.set_result, lambda link, problem: None)

    await loop.create_connection(make, "127.0.0.1", port)
    return await asyncio.wait_for(ready, 10)


def test_no_call_of_a_peer_ends_an_instance(cluster: Cluster) -> None:
    """Every call, with bodies of the wrong kind: answered with an error, or the link is closed."""
    node = cluster["i2"]
    before = node.child_pid
    chance = random.Random(SEED)
    print("seed", SEED)

    async def scene() -> None:
        who = await member(node.peer, cluster.name)
        link = await linked(node.peer_port, who)
        for call in CALLS:
            for _ in range(ROUNDS):
                for body in (*bodies(chance), DEEP):
                    if not link.is_open:
                        link = await linked(node.peer_port, who)
                    if chance.random() < 0.3:
                        link.tell(call, body)
                    else:
                        link.request(call, msgspec.Raw(body), lambda answer: None)
                await asyncio.sleep(0)
        for _ in range(20):  # frames that are none, on a link that is proven
            if not link.is_open:
                link = await linked(node.peer_port, who)
            link._transport.write(framed(chance.randbytes(30)))
            await asyncio.sleep(0.01)
        link = await linked(node.peer_port, who)
        with pytest.raises(CairnError) as refused:
            await link.call("status", None, 10)
        assert refused.value.sqlstate == "08P01"
        link.close()

    asyncio.run(scene())
    assert node.child_pid == before
    assert node.sql("SELECT 1") == [(1,)]
    assert cluster.states("i1")["i2"] == "Online"
    assert "cairn.bug" not in node.log(), node.log()[-4000:]


def test_a_block_for_a_tier_that_is_not_there_is_refused(cluster: Cluster) -> None:
    """It ended the instance: found by fuzzing, and possible when a tier is dropped meanwhile."""
    node = cluster["i2"]

    async def scene() -> str:
        link = await linked(node.peer_port, await member(node.peer, cluster.name))
        items = [{"text": "SELECT 1", "user": 1, "now": 0}]
        body = {"items": items, "is_commit": True, "tier": "nowhere", "is_all": True}
        try:
            await link.call("run_block", body, 10)
        except CairnError as refused:
            return refused.message
        finally:
            link.close()
        return ""

    before = node.child_pid
    assert asyncio.run(scene()) == "there is no tier nowhere"
    assert node.child_pid == before


RIGHTS = {call.name: call.right for call in Instance._peer_calls(MagicMock())}


def refusals(cluster: Cluster, change: Callable[[Identity], Identity]) -> dict[str, str]:
    """Every call with a request that cannot be read: the SQLSTATE that each is refused with."""
    node = cluster["i2"]

    async def scene() -> dict[str, str]:
        who = change(await member(node.peer, cluster.name))
        link = await linked(node.peer_port, who)
        found: dict[str, str] = {}
        for name in RIGHTS:
            try:
                await link.call(name, "a word is no request", 10)
            except CairnError as refused:
                found[name] = refused.sqlstate
        link.close()
        return found

    return asyncio.run(scene())


UNREADABLE, NO_MEMBER, NOT_KNOWN = "08P01", "28000", "58000"


def test_who_has_no_place_in_the_cluster_may_only_ask_for_one(cluster: Cluster) -> None:
    expected = {
        name: UNREADABLE if right is Right.JOIN else NO_MEMBER for name, right in RIGHTS.items()
    }
    assert list(expected.values()).count(UNREADABLE) == 1
    assert refusals(cluster, lambda who: Identity(cluster.name)) == expected
    elsewhere = "00000000-0000-0000-0000-000000000000"
    nowhere = refusals(
        cluster, lambda who: msgspec.structs.replace(who, raft_id=0, instance_uuid=elsewhere)
    )
    assert nowhere == expected


def test_rows_and_administration_are_for_members_that_this_instance_knows(cluster: Cluster) -> None:
    """One that was admitted a moment ago may take part in Raft before we have heard of it."""
    unknown = refusals(cluster, lambda who: msgspec.structs.replace(who, raft_id=999))
    assert unknown == {
        name: UNREADABLE if right in (Right.JOIN, Right.RAFT) else NOT_KNOWN
        for name, right in RIGHTS.items()
    }


def test_a_member_may_ask_for_everything(cluster: Cluster) -> None:
    assert refusals(cluster, lambda who: who) == dict.fromkeys(RIGHTS, UNREADABLE)
