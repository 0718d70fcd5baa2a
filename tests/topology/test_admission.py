"""Who may join, and as what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cairn.model.errors import JoinRefused
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, State, Tier
from cairn.model.rpc import JoinRequest
from cairn.model.tables import system_tables as system
from cairn.topology.admission import admit
from tests.governor.builders import instance, replicaset


def cluster(*people: Any, factor: int = 2, **properties: Any) -> Cluster:
    sets: dict[str, list[str]] = {}
    for each in people:
        sets.setdefault(each.replicaset_name, []).append(each.name)
    return Cluster(
        instances={each.name: each for each in people},
        replicasets={
            name: replicaset(name, members[0], tuple(members)) for name, members in sets.items()
        },
        tiers={"default": Tier("default", factor, is_default=True), "cold": Tier("cold", 1)},
        properties={
            "cluster_name": "demo",
            "cluster_version": "0.1.0",
            "last_raft_id": max((each.raft_id for each in people), default=0),
            **properties,
        },
    )


def request(**fields: Any) -> JoinRequest:
    made = JoinRequest("demo", "uuid-new", "host:3301", "0.1.0", pg_address="host:4327")
    return msgspec.structs.replace(made, **fields)


def admitted(asked: JoinRequest, to: Cluster) -> Any:
    return admit(asked, to, lambda: "uuid-of-a-new-replicaset")


def test_a_newcomer_fills_the_first_replicaset_that_lacks_members() -> None:
    found = admitted(request(), cluster(instance("a", 1, replicaset="default_1"))).instance
    assert (found.name, found.raft_id, found.replicaset_name) == ("default_1_1", 2, "default_1")
    assert (found.current_state, found.target_state) == (State(Grade.OFFLINE),) * 2


def test_a_full_replicaset_makes_the_next_one_a_new_one() -> None:
    full = cluster(
        instance("a", 1, replicaset="default_1"), instance("b", 2, replicaset="default_1")
    )
    assert admitted(request(), full).instance.replicaset_name == "default_2"


def test_members_of_a_replicaset_stand_in_different_failure_domains() -> None:
    one = cluster(instance("a", 1, replicaset="default_1", domain={"DC": "A"}))
    same = admitted(request(failure_domain={"DC": "A"}), one).instance
    other = admitted(request(failure_domain={"DC": "B"}), one).instance
    assert (same.replicaset_name, other.replicaset_name) == ("default_2", "default_1")


def test_a_raft_id_is_never_used_twice() -> None:
    gone = cluster(instance("a", 1), last_raft_id=7)
    assert admitted(request(), gone).instance.raft_id == 8


def test_the_entry_names_the_replicaset_before_the_instance() -> None:
    tables = [op.table for op in admitted(request(), cluster()).ops]
    assert tables.index(system.PICO_REPLICASET.id) < tables.index(system.PICO_INSTANCE.id)


def test_joining_again_with_the_same_uuid_gives_the_same_place_and_no_entry() -> None:
    before = instance("a", 1, State(Grade.OFFLINE), replicaset="default_1")
    again = admitted(request(instance_uuid="uuid-a", instance_id="a"), cluster(before))
    assert again.instance == before
    assert again.ops == ()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"cluster_id": "other"}, "cluster_name mismatch"),
        ({"version": "0.3.0"}, "version 0.3.0 cannot join a cluster of version 0.1.0"),
        ({"version": "1.1.0"}, "version 1.1.0 cannot join"),
        ({"tier": "hot"}, 'tier "hot" doesn\'t exist'),
        ({"instance_id": "a"}, "`a` is already joined"),
        ({"instance_id": "no blanks"}, "is no instance name"),
        ({"replicaset_id": "default_1", "tier": "cold"}, "tier mismatch"),
        ({"instance_uuid": "uuid-a"}, "has joined already, and this directory has no raft.db"),
        ({"instance_uuid": "uuid-a", "instance_id": "z"}, "already exists but with different name"),
        ({"failure_domain": {}}, "missing failure domain names: DC"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(
    fields: dict[str, Any], sentence: str
) -> None:
    here = cluster(instance("a", 1, replicaset="default_1", domain={"DC": "A"}))
    asked = request(**{"failure_domain": {"DC": "B"}, **fields})
    if fields.get("instance_uuid"):
        asked = msgspec.structs.replace(asked, failure_domain={"DC": "A"})
    with pytest.raises(JoinRefused, match=sentence):
        admitted(asked, here)


def test_the_next_minor_version_may_join() -> None:
    assert admitted(request(version="0.2.0"), cluster()).instance.version == "0.2.0"


def test_a_name_that_a_replicaset_still_has_is_given_to_nobody() -> None:
    """An older version left it there; who joins under it would be taken for the one who went."""
    there = cluster(instance("b", 2))
    left = replicaset("r1", "a", ("a", "b"))
    there = msgspec.structs.replace(there, replicasets={"r1": left})
    with pytest.raises(JoinRefused, match="`a` is still named as an instance of r1"):
        admitted(request(instance_id="a"), there)
