"""From an empty directory to a member: start_discover, start_boot or start_join, postjoin.

An instance that already has a raft_id on disk goes straight to postjoin.
A directory with a half-made database is dropped by the supervisor (rebootstrap) and started anew;
the instance uuid and what discovery learnt live in files of their own and survive that.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
from collections.abc import Iterable
from pathlib import Path

from cairn.model.errors import (
    CairnError,
    CasRetry,
    ConfigProblem,
    Expelled,
    InvalidParameter,
    JoinRefused,
    NoQuorum,
    NotLeader,
    OutcomeUnknown,
    PeerRefused,
    TimedOut,
    Unreachable,
    WrongCluster,
)
from cairn.model.members.topology import ConnectionType, Grade
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.rpc import (
    DiscoverRequest,
    DiscoverResponse,
    Empty,
    JoinRequest,
    JoinResponse,
    UpdateInstanceRequest,
)
from cairn.model.settings.parameters import SETTINGS
from cairn.net.handshake import Identity
from cairn.net.link import ANYTHING
from cairn.net.peers import Peers
from cairn.node.boot.alone import MembersFile, ask_if_alone
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.first_entries import first_entries, first_instance
from cairn.node.boot.forgotten import (
    has_forgotten,
    has_rows,
    leave_strange_rows,
    note_home,
    open_log,
    say_what_helps,
)
from cairn.node.boot.identity import (
    Kept,
    check_restart,
    put_identity,
    recorded_address,
    stored_identity,
)
from cairn.node.boot.restoring import check_not_interrupted, note_file
from cairn.node.consensus.upgrades import own_version
from cairn.node.instance import Instance
from cairn.node.lifetime import Ending
from cairn.node.peer_calls import PeerCall, Right, handlers, nobody_yet, not_yet
from cairn.node.runtime import Runtime, timestamp
from cairn.node.statements.changes.access import check_password
from cairn.pgwire.scram import make_verifier
from cairn.raft.types import HardState
from cairn.storage.files.sqlite import sync_directory
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.topology.admission import HasJoined
from cairn.topology.discovery import Discovery, DiscoveryState

log = logging.getLogger("cairn.boot")

DISCOVERY_ROUND_S = 0.1
NO_ADMIN = (
    "this cluster is founded without an admin password: nobody can log in, and there is no way to "
    "set one later. Stop all instances, remove their directories, and start them again with "
    "--admin-password-file FILE or the variable CAIRN_ADMIN_PASSWORD"
)
DISCOVERY_CALL_S = 2.0
ONLY_ONE_S = 1.5
SAY_EVERY_S = 5.0
SAY_AGAIN_S = 60.0  # what a person has to do
JOIN_CALL_S = 12.0
#: A place is asked for by the instance's own uuid: whoever has it already is given the same one.
_ASK_AGAIN = (Unreachable, TimedOut, PeerRefused, OutcomeUnknown, NoQuorum, CasRetry)


class Rebootstrap(Exception):
    """The directory holds half a database: the supervisor drops it and starts the child again."""


class Boot:
    """Everything before there is an `Instance`; its result."""

    def __init__(self, config: InstanceConfig, runtime: Runtime) -> None:
        self.config, self.runtime = config, runtime
        self.directory = runtime.directory()
        self.kept = Kept(self.directory, runtime)
        self.store: RaftStore | None = None
        self.identity = Identity(config.cluster_name)
        self.discovery: Discovery | None = None
        self.instance: Instance | None = None
        self.place: InstanceRow | None = None  # that it was given in this life
        discover = PeerCall("discover", DiscoverRequest, self._discover, Right.JOIN)
        self.expelled: CairnError | None = None
        self._reasons: dict[str, str] = {}  # address → why it refused us, told once
        self._silences: dict[str, str] = {}  # address → why it has not answered
        self._hopeless: dict[str, CairnError] = {}  # address → why it always will
        self._discover_call = discover
        self.peers = Peers(
            runtime.network,
            lambda: self.identity,
            config.service_secret,
            {**handlers((discover,), nobody_yet), ANYTHING: not_yet},
            runtime.chance,
            self._refused,
        )

    # --- the walk ---------------------------------------------------------------------------------

    async def start(self) -> Instance:
        """A running instance that has asked to be Online."""
        path = self.directory / "raft.db"
        check_not_interrupted(self.directory)
        if path.exists() or has_rows(self.directory):
            others = self.kept.load_discovery().others(self.config.advertise, self.config.peers)
            self.store = open_log(path, knows_others=bool(others))
        if self.store is not None:
            if self.store.get("raft_id") is None:
                self.store.close()
                raise Rebootstrap
            check_restart(self.config, self.store)
            self.identity = stored_identity(self.store)
            await self._check_only_one(self.store)
        await self._listen()
        if self.store is None:
            leader = await self.start_discover()
            if leader is None:
                self.store = self.start_boot(path)
            else:
                self.store = await self.start_join(path, leader)
        self.kept.note_founded()
        if note_file(self.store):
            log.warning(
                "this directory was copied since the last start; if the copy is older than what "
                "the cluster has done since, stop all instances and run `cairn restore`"
            )
        return await self.postjoin(self.store)

    async def _listen(self) -> None:
        try:
            await self.peers.listen(self.config.listen)
        except OSError as problem:
            why = problem.strerror or problem
            raise ConfigProblem(f"--listen {self.config.listen}: {why}") from None

    async def _check_only_one(self, store: RaftStore) -> None:
        """A copy of the directory, started while the first one runs: two would vote as one.

        The first one is where the others found it last. Before we listen: an old name of our own
        address would lead to ourselves.
        """
        was = recorded_address(store)
        if was is None or was == self.config.advertise:
            return
        found = await self.peers.who_is_at(was, ONLY_ONE_S)
        if found is not None and found.instance_uuid == self.identity.instance_uuid:
            raise ConfigProblem(
                f"{self.identity.instance_name} runs already, at {was}: this directory is a copy",
                hint="stop that one first; a new instance begins with an empty --instance-dir",
            )

    # --- start_discover ---------------------------------------------------------------------------

    async def start_discover(self) -> str | None:
        """None when this instance is to found the cluster, else whom to ask for a place."""
        self._check_admin_password()
        state = self.kept.load_discovery()
        self._check_not_founded(state)
        tier = next((t for t in self.config.tiers if t.name == self.config.tier), None)
        core = Discovery(
            state,
            own_address=self.config.advertise,
            can_vote=(tier is None or tier.can_vote) and not has_forgotten(self.directory),
            peers=self.config.peers,
        )
        self.kept.save_discovery(core.state)
        self.discovery = core
        loop = asyncio.get_running_loop()
        say_at = loop.time() + SAY_EVERY_S
        deadline = loop.time() + self.config.boot_timeout_s
        while not core.is_done:
            await asyncio.gather(*(self._ask(core, address) for address in core.to_ask()))
            if self.expelled is not None:
                raise self.expelled
            if core.is_done:
                break
            self._check_hope(core.state.peers)
            if loop.time() >= say_at:
                say_at += SAY_EVERY_S
                self._say_who_is_missing(core)
            if loop.time() >= deadline:
                raise TimedOut(
                    f"no cluster was found within {self.config.boot_timeout_s:g} s; "
                    f"no answer from {', '.join(core.silent())}"
                )
            await asyncio.sleep(DISCOVERY_ROUND_S)
        if core.is_founder:
            self.kept.save_discovery(core.state)
            log.info("this instance founds the cluster")
            return None
        log.info("the cluster is found at %s", core.leader)
        return core.leader

    def _check_not_founded(self, state: DiscoveryState) -> None:
        """Others may be there still, of the cluster that this directory founded or was part of."""
        was_member = state.founded or has_rows(self.directory)
        if was_member and not state.others(self.config.advertise, self.config.peers):
            raise ConfigProblem(
                f"{self.directory} is of a member of a cluster, and its raft.db is gone",
                hint="put it back (cairn restore), or join the cluster again: name one of its "
                "members with --peer. To found another cluster, empty the directory",
            )

    def _check_admin_password(self) -> None:
        """By the rules of a new cluster, and before anybody founds it."""
        if self.config.admin_password:
            try:
                check_password(self.config.admin_password, SETTINGS.get)
            except InvalidParameter as problem:
                raise ConfigProblem(f"the admin's first password: {problem.message}") from None

    async def _ask(self, core: Discovery, address: str) -> None:
        try:
            answer = await self.peers.call(
                address, "discover", core.request(address), DiscoverResponse, DISCOVERY_CALL_S
            )
        except CairnError as problem:
            self._silences[address] = problem.message
            return
        self._hopeless.pop(address, None)
        core.handle_response(address, answer)
        self.kept.save_discovery(core.state)

    def _say_who_is_missing(self, core: Discovery) -> None:
        if core.only_non_voters():
            log.warning("all peers that answered are of tiers that cannot vote: waiting for one")
        else:
            silent = core.silent()
            others = [each for each in silent if each not in self.config.peers]
            why = self._silences | dict.fromkeys(others, "not in --peer") | self._reasons
            missing = [f"{each} ({why[each]})" if each in why else each for each in silent]
            log.warning("waiting for an answer from: %s", ", ".join(missing) or "a leader")
            if others:
                log.warning(
                    "what is not in --peer is known from an earlier start, or by another instance; "
                    "an instance that never joined a cluster forgets it without its discovery.json"
                )

    def _discover(self, request: DiscoverRequest) -> DiscoverResponse:
        """Another instance asks who we are."""
        if self.instance is not None:
            members = tuple(sorted(self.instance.state.peer_addresses().values()))
            return DiscoverResponse("", False, members, self._member_to_ask(self.instance))
        if self.identity.raft_id:
            return DiscoverResponse("", False, (), self.config.advertise)
        if self.discovery is None:
            raise NotLeader("discovery has not begun")
        answer = self.discovery.handle_request(request)
        self.kept.save_discovery(self.discovery.state)
        return answer

    def _member_to_ask(self, instance: Instance) -> str:
        leader = instance.state.peer_addresses().get(instance.runner.leader_id)
        return leader or self.config.advertise

    # --- start_boot -------------------------------------------------------------------------------

    def start_boot(self, path: Path) -> RaftStore:
        """Write the first entries of the log. No Raft node yet: postjoin applies them."""
        if not self.config.admin_password:
            log.warning(NO_ADMIN)
        uuid = self.kept.own_uuid()
        row = self.place = first_instance(self.config, uuid, self.runtime.uuid())
        cluster_uuid = self.runtime.uuid()
        entries = first_entries(
            self.config,
            row,
            cluster_uuid,
            timestamp(self.runtime),
            lambda password: str(make_verifier(password, salt=os.urandom(16))),
        )
        store = RaftStore(path)
        with store.connection:
            store.append(entries)
            store.put_hard_state(HardState(term=1, vote=0, commit=entries[-1].index))
            put_identity(
                store,
                Identity(self.config.cluster_name, cluster_uuid, uuid, row.name, row.raft_id),
                row.replicaset_name,
                row.tier,
            )
        sync_directory(self.directory)
        log.info(
            "cluster %s (%s) is founded by %s", self.config.cluster_name, cluster_uuid, row.name
        )
        return store

    # --- start_join -------------------------------------------------------------------------------

    async def start_join(self, path: Path, leader: str) -> RaftStore:
        """Ask the leader for a place and write down what it gave."""
        response = await self._join(leader)
        row = self.place = response.instance
        leave_strange_rows(self.directory, response.cluster_uuid, row)
        store = RaftStore(path)
        with store.connection:
            put_identity(
                store,
                Identity(
                    self.config.cluster_name,
                    response.cluster_uuid,
                    row.uuid,
                    row.name,
                    row.raft_id,
                ),
                row.replicaset_name,
                row.tier,
            )
            store.put("joined_addresses", json.dumps(response.raft_group))
            store.put("joined_at", response.commit_index)
        sync_directory(self.directory)
        log.info("joined as %s, raft_id %d", row.name, row.raft_id)
        return store

    async def _join(self, leader: str) -> JoinResponse:
        request = JoinRequest(
            cluster_id=self.config.cluster_name,
            instance_uuid=self.kept.own_uuid(),
            advertise_address=self.config.advertise,
            version=own_version(),
            instance_id=self.config.instance_name,
            replicaset_id=self.config.replicaset_name,
            tier=self.config.tier,
            failure_domain=self.config.failure_domain,
            pg_address=self.config.pg_advertise,
            http_address=self.config.http_listen,
        )
        loop = asyncio.get_running_loop()
        deadline, say_at = loop.time() + self.config.boot_timeout_s, loop.time()
        found = self.discovery
        # The one that told of the cluster may leave it before it lets us in: others will.
        known = () if found is None else (*found.state.peers, *found.members)
        others = {each for each in known if each not in (leader, self.config.advertise)}
        in_turn, pause = itertools.cycle((leader, *sorted(others))), 0.05
        while True:
            try:
                return await self.peers.call(
                    leader, "raft_join", request, JoinResponse, JOIN_CALL_S
                )
            except NotLeader as redirect:
                leader = redirect.detail or next(in_turn)
            except HasJoined as refused:
                if not has_forgotten(self.directory):
                    raise
                deadline = math.inf  # it is for a person to decide
                if loop.time() >= say_at:
                    say_at = loop.time() + SAY_AGAIN_S
                    say_what_helps(self.directory, refused)
            except JoinRefused:
                raise
            except _ASK_AGAIN as problem:
                if self.expelled is not None:
                    raise self.expelled from None
                log.warning("joining through %s: %s", leader, problem)
                leader = next(in_turn)  # the leader may have moved: any member tells where it is
            if loop.time() > deadline:
                raise TimedOut("could not join the cluster in time")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    # --- postjoin ---------------------------------------------------------------------------------

    async def postjoin(self, store: RaftStore) -> Instance:
        """Create the Raft node and tell the cluster that this instance is ready to be raised."""
        self.identity = stored_identity(store)
        self.peers.hang_up()
        own = self.config.advertise
        contacts = [address for address in self.config.peers if address != own]
        instance = Instance(
            self.identity,
            store,
            self.peers,
            self.runtime,
            contacts=contacts,
            also=(self._discover_call,),
            hang_timeout_s=self.config.hang_timeout_s,
        )

        def others() -> list[str]:
            return [each for each in instance.state.peer_addresses().values() if each != own]

        place = self.place or instance.row
        if place is not None and place.uuid == self.identity.instance_uuid:
            note_home(instance.data.store, self.identity.cluster_uuid, place)
        file = MembersFile(self.directory, self.identity.cluster_uuid, instance.runner)
        await ask_if_alone(instance.runner, self.peers, file.read(), [*contacts, *others()])
        instance.news.on_applied.append(lambda done: file.note(others()))
        self.instance = instance
        instance.start()
        return instance

    async def activate(self, instance: Instance, reason: str) -> None:
        """Ask for target Online until the leader has written it.

        Only its answer counts: a row that says Online may be replayed and of an earlier life.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.boot_timeout_s
        say_at = loop.time() + SAY_EVERY_S
        while not instance.life.exit_code.done():
            request = UpdateInstanceRequest(
                cluster_uuid=self.identity.cluster_uuid,
                instance_name=instance.name,
                instance_uuid=self.identity.instance_uuid,
                target_grade=Grade.ONLINE.value,
                reason=reason,
                failure_domain=self.config.failure_domain,
                version=own_version(),
                clock_s=self.runtime.wall_clock().timestamp(),
                addresses={
                    ConnectionType.PEER.value: self.config.advertise,
                    ConnectionType.PGPROTO.value: self.config.pg_advertise,
                    ConnectionType.HTTP.value: self.config.http_listen,
                },
            )
            try:
                await instance.leader.ask("update_instance", request, Empty, 5.0)
                instance.awake()
                return
            except CairnError as problem:
                trouble = problem
            if self.expelled is not None:
                raise self.expelled
            self._check_hope((*self.config.peers, *instance.state.peer_addresses().values()))
            if loop.time() > deadline:
                raise TimedOut(f"failed to activate myself: {trouble}, shutting down...")
            if loop.time() > say_at:
                say_at += SAY_EVERY_S
                log.warning("waiting for a Raft leader: %s", trouble)
            await asyncio.sleep(0.05)  # a refusal may come at once

    def _check_hope(self, addresses: Iterable[str]) -> None:
        """All others refuse us for a reason that only an administrator can change: told once.

        One that is silent may still let us in, so that an old address of --peer which is another
        cluster's by now does no harm.
        """
        others = {each for each in addresses if each != self.config.advertise}
        if others and others <= self._hopeless.keys():
            told = "; ".join(f"{each}: {self._hopeless[each].message}" for each in sorted(others))
            raise ConfigProblem(
                f"nobody lets this instance in: {told}",
                hint="compare --service-password-file, --cluster-name and --peer with theirs",
            )

    def _refused(self, address: str, problem: CairnError) -> None:
        if isinstance(problem, WrongCluster):
            self._hopeless[address] = problem
        else:
            self._hopeless.pop(address, None)
        if isinstance(problem, Expelled):
            self.expelled = problem
            if self.instance is not None:
                self.instance.life.end(Ending.EXPELLED, problem)
        elif self._reasons.get(address) != problem.message:
            self._reasons[address] = problem.message
            log.warning("%s refused this instance: %s", address, problem)
