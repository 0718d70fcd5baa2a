"""Which masters to move so that every place has its share of them. It only plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Mastered(NamedTuple):
    """A replicaset as far as its master may move."""

    name: str
    master: str
    fit: Sequence[str]  # other instances that could be master now


class Switch(NamedTuple):
    replicaset: str
    before: str
    to: str


def wished(status: Row) -> tuple[list[Switch], dict[str, str]]:
    """Of a cluster as `cairn_status` tells of it; and the place of each instance.

    A replicaset that is being given another master is left alone.
    """
    places = {row["name"]: _place(row) for row in status["instances"]}
    replicasets = [
        Mastered(row["name"], row["master"], [each["name"] for each in fit_for(status, row)])
        for row in status["replicasets"]
        if row["master"] in places and row["master"] == row["target_master"]
    ]
    return plan(replicasets, places), places


def fit_for(status: Row, replicaset: Row) -> list[Row]:
    """Other instances that could be its master now."""
    return [
        row
        for row in status["instances"]
        if row["name"] in replicaset["members"]
        and row["name"] != replicaset["master"]
        and row["current_state"].startswith("Online")
        and row["target_state"].startswith("Online")
    ]


def _place(row: Row) -> str:
    """What may fail as a whole: its failure domain, else its machine."""
    domain = row["failure_domain"]
    if domain:
        return ",".join(f"{key}={value}" for key, value in sorted(domain.items()))
    return str(row["addresses"]["peer"] or row["name"]).rpartition(":")[0]


def plan(replicasets: Sequence[Mastered], place_of: Mapping[str, str]) -> list[Switch]:
    """The switches after which no place can lose a master to one that has two fewer.

    A place may have no replica in one that has too few, but in a third one between them: so ways
    over several replicasets are looked for, the shortest first. Each way takes one master from the
    first place and gives one to the last.
    """
    masters = {each.name: each.master for each in replicasets}
    while way := _way(replicasets, masters, place_of):
        masters |= dict(way)
    return [
        Switch(each.name, each.master, masters[each.name])
        for each in replicasets
        if masters[each.name] != each.master
    ]


def masters_of(masters: Mapping[str, str], place_of: Mapping[str, str]) -> Counter[str]:
    """How many each place has, those without one too."""
    counted = Counter(dict.fromkeys(place_of.values(), 0))
    counted.update(place_of[master] for master in masters.values())
    return counted


def _way(
    replicasets: Sequence[Mastered], masters: Mapping[str, str], place_of: Mapping[str, str]
) -> list[tuple[str, str]]:
    """From a place with many to one with at least two fewer; []: there is none."""
    counted = masters_of(masters, place_of)
    for first, many in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        came: dict[str, list[tuple[str, str]]] = {first: []}
        line = [first]
        for here in line:
            if counted[here] <= many - 2:
                return came[here]
            for each in replicasets:
                if place_of[masters[each.name]] != here:
                    continue
                for to in (each.master, *each.fit):
                    there = place_of[to]
                    if there not in came:
                        came[there] = [*came[here], (each.name, to)]
                        line.append(there)
    return []
