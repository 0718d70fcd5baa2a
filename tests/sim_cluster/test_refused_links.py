"""What a peer must not send, and a log that is not ours: refused, shown on the link, and said."""

from __future__ import annotations

import asyncio

import apsw
import msgspec
import pytest

from cairn.model.log.records import Packed
from cairn.replication.applier import OtherReplicaset
from cairn.replication.relay import Rows, Subscribe
from cairn.sim.cluster.loads.load import TABLE
from tests.sim_cluster.scenes import Triple, answer_anew, founded, inside, played, world_of
from tests.sim_cluster.test_data_rules import in_process


def _damaged(records: list[Packed]) -> list[Packed]:
    return [msgspec.structs.replace(record, body=b"\xc1") for record in records]


def _with_a_gap(records: list[Packed]) -> list[Packed]:
    return [msgspec.structs.replace(record, lsn=record.lsn + 5) for record in records]


def _of_another(records: list[Packed]) -> list[Packed]:
    return [msgspec.structs.replace(record, origin="nobody") for record in records]


def _of_another_table(records: list[Packed]) -> list[Packed]:
    """Table 1024 becomes 1025 in the bytes."""
    return [
        msgspec.structs.replace(record, body=record.body.replace(b"\xcd\x04\x00", b"\xcd\x04\x01"))
        for record in records
    ]


TAMPERING = {
    "a damaged record": (_damaged, "record {origin}:{lsn} cannot be read"),
    "a gap": (_with_a_gap, "row log of {origin}: expected lsn {lsn}, received"),
    "a wrong origin": (_of_another, "record nobody:{lsn} is of an origin that was not asked for"),
    "an unknown table": (_of_another_table, "record {origin}:{lsn} is for schema 1 of table 1025"),
}


@pytest.mark.parametrize("what", sorted(TAMPERING))
def test_what_must_not_be_applied_stops_the_link_and_everybody_can_see_it(what: str) -> None:
    tamper, expected = TAMPERING[what]

    async def script(scene: Triple) -> None:
        master, third = inside(scene.master), inside(scene.third)
        origin, subscriber = master.identity.instance_uuid, third.identity.instance_uuid
        lsn = master.data.vclock[origin] + 1
        handle = master.replication.relay.subscribe

        async def tampered(request: Subscribe) -> Rows:
            answer = await handle(request)
            if request.subscriber != subscriber:
                return answer
            return msgspec.structs.replace(answer, records=tamper(answer.records))

        master.replication.relay.subscribe = tampered  # type: ignore[method-assign]
        answer_anew(master)
        await asyncio.sleep(1.0)  # a pull that was held before would be answered untampered
        await scene.write(2)
        problem = expected.format(origin=origin, lsn=lsn)
        link = third.replication.follower.links[origin]
        await scene.world.until(lambda: link.state == "stopped", "the link to stop", 5.0)
        assert (link.problem or "").startswith(problem)
        said = f"{third.name} stopped following {master.name}: {problem}"
        governor = inside(scene.leader).governor

        def governor_says_so() -> bool:
            return any(line.startswith(said) for line in governor.status.blocked_by)

        await scene.world.until(governor_says_so, "the governor to say so", 5.0)
        # Meanwhile the row takes another way: nothing is wrong with the second upstream.
        await scene.world.until(lambda: 2 in scene.load.rows_of(scene.third), "the row", 5.0)
        master.replication.relay.subscribe = handle  # type: ignore[method-assign]
        answer_anew(master)
        await scene.calm()
        await scene.world.until(lambda: not governor.status.blocked_by, "all well again", 10.0)

    played("async", script)


def test_a_peer_of_another_replicaset_gets_no_rows() -> None:
    world = world_of("a", "b", factor=1)

    async def script() -> None:
        await founded(world)
        one, other = (inside(node) for node in world.nodes.values())
        theirs = other.state.cluster.replicasets[other.row.replicaset_name]  # type: ignore[union-attr]
        mine = one.state.cluster.replicasets[one.row.replicaset_name]  # type: ignore[union-attr]
        for uuid in (mine.uuid, theirs.uuid):  # a lie about where it belongs does not help
            request = Subscribe(one.identity.instance_uuid, uuid, {}, wait_s=0.0)
            with pytest.raises(OtherReplicaset, match="rows never cross replicasets"):
                await other.replication.relay.subscribe(request)

    world.run(script)


# --- another history ------------------------------------------------------------------------------


def test_a_log_that_tells_another_history_is_put_aside_and_the_rows_are_copied() -> None:
    """As if it had slept through failovers after which its lsns were used again."""

    async def script(scene: Triple) -> None:
        world, origin = scene.world, inside(scene.master).identity.instance_uuid
        await scene.write(2)
        scene.master.stop()
        heir = await scene.renamed()  # its epoch has a cut, and what is below that looks well
        await world.until(lambda: not scene.master.is_running, "it to leave", 10.0)
        scene.master.start()
        await world.settled()
        victim = next(node for node in world.nodes.values() if node not in (heir, scene.master))
        await world.until(lambda: scene.load.rows_of(victim).keys() == {1, 2}, "rows", 5.0)
        victim.crash()
        connection = apsw.Connection(str(victim.dir / "data.db"))
        connection.execute(f"UPDATE {TABLE.physical_name} SET c1 = 'of another' WHERE c0 = 2")
        connection.execute(
            "UPDATE row_log SET epoch = epoch + 1 WHERE lsn = (SELECT max(lsn) FROM row_log)"
        )
        connection.close()
        victim.start()
        await world.settled()
        await scene.load.check()
        connection = apsw.Connection(str(victim.dir / "data.db"))
        aside = connection.execute("SELECT DISTINCT origin FROM _cairn_diverged").fetchall()
        connection.close()
        assert aside == [(origin,)]

    played("async", script)


def test_an_address_that_failed_long_ago_is_tried_again_before_it_is_told() -> None:
    """Who calls over the other's link does not dial, and would tell of a failure for ever."""

    async def script(scene: Triple) -> None:
        peers, master = inside(scene.third).peers, inside(scene.master).raft_id
        address, now = peers._addresses[master], scene.world.loop.time()

        async def unreached() -> dict[int, str]:
            return peers.unreached()

        peers._links.pop(address, None)
        peers._in_vain[address] = now
        assert await in_process(scene.third, unreached) == {master: address}
        peers._in_vain[address] = now - 60.0
        assert await in_process(scene.third, unreached) == {}
        await scene.world.until(lambda: address not in peers._in_vain, "it to be reached", 5.0)

    played("async", script)
