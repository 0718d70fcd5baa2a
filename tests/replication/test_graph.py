"""`replication_graph`: what it says, what is refused, and whom it leaves without rows."""

from __future__ import annotations

import pytest

from cairn.model.errors import InvalidParameter
from cairn.replication.graph import check_graph, edges_of, unreached

HOMES = {"i1": "r1", "i2": "r1", "i3": "r1", "j1": "r2", "j2": "r2"}


def test_edges_are_those_among_the_members() -> None:
    text = " i1>i2, i2 > i3,j1>j2 "
    assert edges_of(text, {"i1", "i2", "i3"}) == {("i1", "i2"), ("i2", "i3")}
    assert edges_of(text, {"j1", "j2"}) == {("j1", "j2")}


def test_a_replicaset_that_is_not_named_stays_a_full_mesh() -> None:
    assert edges_of("i1>i2", {"j1", "j2"}) is None
    assert edges_of("", {"i1", "i2"}) is None


def test_a_member_whose_neighbours_have_gone_has_no_edges() -> None:
    assert edges_of("i1>gone,gone>i2", {"i1", "i2"}) == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("garbage", "write edges like i1>i2,i2>i3"),
        (">", "write edges like i1>i2,i2>i3"),
        ("i1>", "write edges like i1>i2,i2>i3"),
        ("i1>i2>i3", "write edges like i1>i2,i2>i3"),
        ("i1>i2,i2>i2", "i2 cannot follow itself"),
        ("i1>i9", "there is no instance i9"),
        ("i1>i2,i9>i2", "there is no instance i9"),
        ("i1>j1", "i1 and j1 are of different replicasets"),
    ],
)
def test_what_would_cut_replicas_off_without_a_word_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_graph(text, HOMES)
    assert refused.value.message == f"invalid value for 'replication_graph': {why}"


@pytest.mark.parametrize("text", ["", " ", ",", "i1>i2", "i1>i2,i2>i1, j1>j2"])
def test_what_names_instances_is_taken(text: str) -> None:
    check_graph(text, HOMES)


def test_members_that_a_master_does_not_reach_are_named() -> None:
    chain = {("i1", "i2"), ("i2", "i3")}
    members = ("i1", "i2", "i3")
    assert unreached(chain, "i1", members) == []
    assert unreached(chain, "i2", members) == ["i1"]
    assert unreached(chain, "i3", members) == ["i1", "i2"]
    assert unreached(set(), "i1", members) == ["i2", "i3"]
    assert unreached(None, "i1", members) == []
