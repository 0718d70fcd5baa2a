"""Instances that go, for a while (Offline) or for good (Expelled).

Leadership is handed over first, then the replicaset gets another master, then the current grade
follows the target. An expelled instance is told as Expelled, leaves Raft by `voters.py`; only then
are its rows deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cairn.governor.actions import Action, HandOverLeadership, Propose, SealAndName, SwitchMaster
from cairn.governor.buckets import given_away, redistribution
from cairn.governor.view import ClusterView
from cairn.model.log.ops import Delete, Dml, Replace, Update
from cairn.model.log.ranges import KeyRange, one_key, whole_table
from cairn.model.members.holders import EXPEL_BY_FORCE, lost_with
from cairn.model.members.topology import (
    Grade,
    Instance,
    Replicaset,
    ReplicasetState,
    State,
    deposed,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system

_TRANSFER = "transfer replication leader"
_WISH = "update target replication leader"
_HEIR = "find an heir with all rows"
_INSTANCES = system.PICO_INSTANCE
_REPLICASETS = system.PICO_REPLICASET


def set_state(instance: Instance, state: State) -> Dml:
    position = _INSTANCES.position("current_state")
    return Update(_INSTANCES.id, (instance.name,), ((position, rows.state_json(state)),))


def instance_range(instance: Instance) -> KeyRange:
    return one_key(_INSTANCES.id, (instance.name,))


def replicaset_range(replicaset: Replicaset) -> KeyRange:
    return one_key(_REPLICASETS.id, (replicaset.name,))


def put_replicaset(replicaset: Replicaset) -> Dml:
    return Replace(_REPLICASETS.id, rows.replicaset_row(replicaset))


def _is_leaving(instance: Instance) -> bool:
    target, current = instance.target_state.grade, instance.current_state.grade
    return target in (Grade.OFFLINE, Grade.EXPELLED) and current is not target


def hand_over_leadership(view: ClusterView) -> Iterator[Action]:
    """The acting leader is leaving: somebody else shall govern."""
    me = view.cluster.by_raft_id(view.leader)
    if me is None or me.target_state.grade is Grade.ONLINE:
        return
    heirs = [
        instance
        for instance in view.instances()
        if instance.raft_id in view.voters
        and instance.raft_id != view.leader
        and instance.target_state.grade is Grade.ONLINE
    ]
    steady = [heir for heir in heirs if view.is_steady(heir)] or heirs
    steady.sort(key=lambda heir: heir.raft_id in view.silent)
    for heir in steady:
        yield HandOverLeadership(step="transfer raft leader", subject=heir.name, to=heir.raft_id)


def _heirs(view: ClusterView, replicaset: Replicaset, without: str) -> list[Instance]:
    """Who may become master: a member with the replicaset's rows that is there to stay."""
    return [
        instance
        for instance in view.cluster.members(replicaset.name)
        if instance.name != without
        and instance.name in replicaset.members
        and instance.target_state.grade is Grade.ONLINE
        and instance.current_state.grade in (Grade.ONLINE, Grade.SHARDING_INITIALIZED)
    ]


def _successors(view: ClusterView, replicaset: Replicaset, without: str) -> list[Instance]:
    """The same when the master is gone. In sync mode a majority that comes up has every row that
    was acknowledged: it need not wait for one to have them from. In async mode it does: the master
    may have been alone for long.
    """
    heirs = _heirs(view, replicaset, without)
    if heirs or not _is_sync(view, replicaset):
        return heirs
    coming = [
        instance
        for instance in view.cluster.members(replicaset.name)
        if instance.name != without
        and instance.name in replicaset.members
        and view.is_rising(instance)
        and instance.current_state.grade in (Grade.RAFT_SYNCED, Grade.REPLICATED)
        and instance.current_state.incarnation == instance.target_state.incarnation
    ]
    return coming if len(coming) > len(replicaset.members) // 2 else []


def replace_master(view: ClusterView) -> Iterator[Action]:
    """A replicaset whose master leaves, left or is elsewhere gets another one, if one is fit."""
    for replicaset in view.replicasets():
        if replicaset.awaits_naming:
            continue  # whoever has most, and nobody else
        master = view.cluster.instances.get(replicaset.target_master_name)
        lost = (
            master is None
            or master.replicaset_name != replicaset.name
            or master.target_state.grade is not Grade.ONLINE
        )
        if not lost:
            continue
        if master is not None and _never_started(master):
            continue  # joined a moment ago and has not come up yet
        if keeps_damaged(view, replicaset):
            continue
        heirs = _successors(view, replicaset, replicaset.target_master_name)
        heirs.sort(key=lambda heir: heir.name in view.damaged)
        for heir in heirs if holds_more(view, replicaset) else heirs[:1]:
            yield _wish(view, replicaset, heir, f"{replicaset.target_master_name} as master")


def spare_damaged_master(view: ClusterView) -> Iterator[Action]:
    """A master whose file is damaged hands over to a replica whose file is not, as planned."""
    for replicaset in view.replicasets():
        master = replicaset.current_master_name
        if master not in view.damaged or replicaset.target_master_name != master:
            continue
        if keeps_damaged(view, replicaset):
            continue
        heirs = [each for each in _heirs(view, replicaset, master) if each.name not in view.damaged]
        for heir in heirs:
            yield _wish(view, replicaset, heir, f"{master}: it has damaged rows")


def _wish(view: ClusterView, replicaset: Replicaset, heir: Instance, whom: str) -> Propose:
    """An entry that announces another master; `switch_master` carries it out.

    From then on nobody is served until one is named, so an heir that may not get all rows of a
    damaged master is asked for them before: who has none waits, and each heir by itself.
    """
    changed = msgspec.structs.replace(replicaset, target_master_name=heir.name)
    must_have = holds_more(view, replicaset)
    return Propose(
        step=_HEIR if must_have else _WISH,
        subject=heir.name if must_have else replicaset.name,
        ops=(put_replicaset(changed),),
        ranges=(whole_table(_INSTANCES.id), replicaset_range(replicaset)),
        say=f"{replicaset.name}: {heir.name} shall replace {whom}",
        holders=(heir.name,) if must_have else (),
        needed=int(must_have),
    )


def _never_started(instance: Instance) -> bool:
    return instance.current_state == State(Grade.OFFLINE, 0) and instance.target_state == State(
        Grade.OFFLINE, 0
    )


def switch_master(view: ClusterView) -> Iterator[Action]:
    """Carry out a change of master that an entry has announced."""
    for replicaset in view.replicasets():
        if replicaset.current_master_name == replicaset.target_master_name:
            continue
        if replicaset.awaits_naming:
            yield from _seal(view, replicaset)
            continue
        heir = view.cluster.instances.get(replicaset.target_master_name)
        old = view.cluster.instances.get(replicaset.current_master_name)
        if heir is None or heir.target_state.grade is not Grade.ONLINE:
            continue
        if old is not None and old.target_state_reason != "silent" and view.may_respond(old):
            yield SwitchMaster(
                step=_TRANSFER,
                subject=replicaset.name,
                replicaset=replicaset.name,
                old=old.name,
                heir=heir.name,
            )
        if keeps_damaged(view, replicaset):
            yield _stay(replicaset)
        elif replicaset.current_master_name:
            yield _depose(replicaset)
        else:
            yield from _seal(view, replicaset)


def keeps_damaged(view: ClusterView, replicaset: Replicaset) -> bool:
    """Whether its damaged master goes on: a moment ago nobody else could get all of its rows."""
    return (_TRANSFER, replicaset.name) in view.waiting and holds_more(view, replicaset)


def lacks_heirs(view: ClusterView, replicaset: Replicaset) -> bool:
    """Whether its damaged master has to stay: it could not hand over, or nobody had all rows."""
    if not holds_more(view, replicaset):
        return False
    heirs = _heirs(view, replicaset, replicaset.current_master_name)
    whole = [heir.name for heir in heirs if heir.name not in view.damaged]
    return (_TRANSFER, replicaset.name) in view.waiting or (
        bool(whole) and all((_HEIR, name) in view.waiting for name in whole)
    )


def holds_more(view: ClusterView, replicaset: Replicaset) -> bool:
    """Whether its damaged master may have rows that nobody else has, and can still tell them.

    Unless the others have all that was acknowledged, or a person has given up what only it has.
    """
    master = view.cluster.instances.get(replicaset.current_master_name)
    return (
        master is not None
        and master.name in view.damaged
        and _may_promise(view, master)
        and master.target_state_reason != EXPEL_BY_FORCE
        and not _has_whole_majority(view, replicaset)
    )


def _stay(replicaset: Replicaset) -> Propose:
    """The wish is taken back. To name another one would lose rows that the damaged one can read."""
    master = replicaset.current_master_name
    return Propose(
        step=_WISH,
        subject=replicaset.name,
        ops=(put_replicaset(msgspec.structs.replace(replicaset, target_master_name=master)),),
        ranges=(whole_table(_INSTANCES.id), replicaset_range(replicaset)),
        say=f"{replicaset.name}: {master} stays master: nobody else can get all of its rows",
    )


def _depose(replicaset: Replicaset) -> Propose:
    """Nobody acts as master until one is named, whatever is asked for meanwhile.

    Whoever has promised takes no more records of this epoch. If the wish were taken back before a
    naming, that instance would wait for one for ever.
    """
    return Propose(
        step="depose master",
        subject=replicaset.name,
        ops=(put_replicaset(deposed(replicaset)),),
        ranges=(whole_table(_INSTANCES.id), replicaset_range(replicaset)),
        say=f"{replicaset.name}: {replicaset.current_master_name} is no longer its master",
    )


def _seal(view: ClusterView, replicaset: Replicaset) -> Iterator[SealAndName]:
    found = (view.cluster.instances.get(name) for name in replicaset.members)
    known = [row for row in found if row is not None]
    staying = [row for row in known if row.target_state.grade is Grade.ONLINE]
    if not staying:
        return
    # If one that is to leave has the most, it is named, and hands over as a living master does.
    leaving = [row for row in known if row not in staying and _may_promise(view, row)]
    members = tuple(row.name for row in (*staying, *leaving))
    is_sync = _is_sync(view, replicaset)
    majority = len(replicaset.members) // 2 + 1
    forced = [row.name for row in leaving if row.target_state_reason == EXPEL_BY_FORCE]
    yield SealAndName(
        step="seal and name master",
        subject=replicaset.name,
        replicaset=replicaset.name,
        members=members,
        needed=majority if is_sync else len(staying),
        of_all=not is_sync,
        whole=tuple(name for name in members if name not in view.damaged) if is_sync else (),
        given_up=tuple(name for name in forced if name in view.damaged),
    )


def _has_whole_majority(view: ClusterView, replicaset: Replicaset) -> bool:
    """Whether those without damage have all that was acknowledged."""
    rows = [view.cluster.instances.get(name) for name in replicaset.members]
    whole = [
        row
        for row in rows
        if row is not None and row.name not in view.damaged and view.is_steady(row)
    ]
    return _is_sync(view, replicaset) and len(whole) > len(rows) // 2


def _may_promise(view: ClusterView, row: Instance) -> bool:
    """One that is to leave still has its rows, and its promise may be needed for a majority."""
    return view.may_respond(row) and row.target_state_reason != "silent"


def _is_sync(view: ClusterView, replicaset: Replicaset) -> bool:
    tier = view.cluster.tiers.get(replicaset.tier)
    return tier is not None and tier.replication_mode == "sync"


def settle_offline(view: ClusterView) -> Iterator[Action]:
    """current := target for those who leave; the last of a replicaset takes its weight along."""
    for instance in view.instances():
        if not _is_leaving(instance):
            continue
        if instance.raft_id == view.leader and len(view.voters) > 1:
            continue  # leadership is handed over first; the successor does this
        if instance.target_state.grade is Grade.EXPELLED and (
            instance.raft_id in view.voters or view.is_joint
        ):
            continue  # it ends when it hears of it: its vote must not be needed any more
        replicaset = view.cluster.replicasets.get(instance.replicaset_name)
        if replicaset is None:
            continue
        if replicaset.current_master_name == instance.name and _successors(
            view, replicaset, instance.name
        ):
            continue  # the master is replaced first; those rules speak or back off
        if instance.target_state.grade is Grade.EXPELLED:
            if may_give_up(view, instance):
                yield from _expel(view, instance, replicaset)
            continue
        found: list[Dml] = [set_state(instance, instance.target_state)]
        alone = not any(
            view.is_rising(other) and other.name != instance.name
            for other in view.cluster.members(replicaset.name)
        )
        if alone and replicaset.weight_origin == "auto" and replicaset.weight != 0:
            found.append(put_replicaset(msgspec.structs.replace(replicaset, weight=0.0)))
        yield Propose(
            step="update instance state to offline",
            subject=instance.name,
            ops=tuple(found),
            ranges=(instance_range(instance), replicaset_range(replicaset)),
            say=f"{instance.name} is Offline: {instance.target_state_reason or 'as asked'}",
        )


def may_give_up(view: ClusterView, instance: Instance) -> bool:
    """Asked for by force, or nothing is lost: somebody who had the rows may have died since."""
    if instance.target_state_reason == EXPEL_BY_FORCE:
        return True
    return not lost_with(view.cluster, instance, view.sharded_tiers)


def _expel(view: ClusterView, instance: Instance, replicaset: Replicaset) -> Iterator[Action]:
    members = view.cluster.members(replicaset.name)
    found: list[Dml] = [set_state(instance, instance.target_state)]
    ranges = [whole_table(_INSTANCES.id), replicaset_range(replicaset)]
    if len(members) == 1:
        if view.cluster.owned(replicaset.name):
            if replicaset.tier in view.sharded_tiers:
                moved = given_away(view.cluster, replicaset.tier, replicaset.name)
            else:  # no rows yet: all are divided anew
                moved = redistribution(view.cluster, replicaset.tier, without=replicaset.name)
            if not moved:
                return  # nobody could take its buckets: refused when asked, waits if it came so
            found += moved
            ranges.append(whole_table(system.PICO_BUCKET.id))
        # Nothing may be given to it any more, and nobody may join it, until its row is deleted.
        ended = msgspec.structs.replace(
            replicaset, weight=0.0, state=ReplicasetState.TO_BE_EXPELLED
        )
        found.append(put_replicaset(ended))
    left = tuple(name for name in replicaset.members if name != instance.name)
    if len(members) > 1 and left != replicaset.members:
        found.append(put_replicaset(msgspec.structs.replace(replicaset, members=left)))
    # Sync mode: any majority of those who stay must have somebody with every acknowledged row, or
    # a failover after the second expel could miss what only the first two had.
    is_sync = len(members) > 1 and _is_sync(view, replicaset)
    yield Propose(
        step="expel instance",
        subject=instance.name,
        ops=tuple(found),
        ranges=tuple(ranges),
        say=f"{instance.name} is Expelled",
        holders=left if is_sync else (),
        needed=len(left) - len(left) // 2 if is_sync else 0,
    )


def forget_expelled(view: ClusterView) -> Iterator[Action]:
    """Rows of an expelled instance go once Raft has let it go; with the last one its replicaset.

    Its name is free from then on, so no row may name it any more: who joins under that name is
    another instance, and has no rows.
    """
    for instance in view.instances():
        if instance.current_state.grade is not Grade.EXPELLED or view.in_raft(instance):
            continue
        found: list[Dml] = [
            Delete(system.PICO_PEER_ADDRESS.id, (raft_id, kind))
            for raft_id, kind in sorted(view.cluster.addresses)
            if raft_id == instance.raft_id
        ]
        found.append(Delete(_INSTANCES.id, (instance.name,)))
        replicaset = view.cluster.replicasets.get(instance.replicaset_name)
        if replicaset is not None and not _others(view, instance):
            found.append(Delete(_REPLICASETS.id, (replicaset.name,)))
        elif replicaset is not None and instance.name in _named(replicaset):
            found.append(put_replicaset(_unnamed(replicaset, instance.name)))
        yield Propose(
            step="forget expelled instance",
            subject=instance.name,
            ops=tuple(found),
            ranges=(whole_table(_INSTANCES.id), whole_table(_REPLICASETS.id)),
            say=f"the rows of {instance.name} are deleted",
        )


def _others(view: ClusterView, instance: Instance) -> list[Instance]:
    """All rows of the replicaset count, also of those who are expelled and not forgotten yet."""
    return [
        other
        for other in view.instances()
        if other.replicaset_name == instance.replicaset_name and other.name != instance.name
    ]


def _named(replicaset: Replicaset) -> tuple[str, ...]:
    masters = (replicaset.current_master_name, replicaset.target_master_name)
    return (*masters, *replicaset.members)


def _unnamed(replicaset: Replicaset, name: str) -> Replicaset:
    current, target = replicaset.current_master_name, replicaset.target_master_name
    return msgspec.structs.replace(
        replicaset,
        current_master_name="" if current == name else current,
        target_master_name="" if target == name else target,
        members=tuple(each for each in replicaset.members if each != name),
    )
