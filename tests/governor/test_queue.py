"""The governor's queue: one row at a time, in order, and none while one is failed."""

from __future__ import annotations

import msgspec

from cairn.governor.actions import Action, RunOperation
from cairn.governor.rules.queue import (
    create_queue,
    fill_queue,
    finish_upgrade,
    raise_version,
    run_queue,
)
from cairn.governor.view import ClusterView, QueuedOperation
from cairn.model.log import ops
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Sharded
from tests.governor.builders import instance, view_of


def queued(number: int, status: str = "pending", kind: str = "custom") -> QueuedOperation:
    return QueuedOperation(number, "batch", f"op {number}", status=status, kind=kind)


def view(*queue: QueuedOperation, **fields: object) -> ClusterView:
    return msgspec.structs.replace(view_of(instance("i1", 1)), queue=queue, **fields)


def run(number: int, *, is_upgrade: bool = False) -> list[Action]:
    return [
        RunOperation(
            step="run sql operation step",
            subject=f"operation {number}",
            op_id=number,
            op=f"op {number}",
            op_format="sql",
            is_upgrade=is_upgrade,
        )
    ]


def test_the_first_pending_row_is_run() -> None:
    assert list(run_queue(view(queued(1, "done"), queued(2), queued(3)))) == run(2)


def test_nothing_is_taken_while_one_is_failed() -> None:
    assert list(run_queue(view(queued(1), queued(2, "failed"), queued(3)))) == []


def test_nothing_is_taken_while_a_schema_change_is_pending() -> None:
    pending = ops.DdlPrepare(1, ops.DropTable(1024, "t"))
    assert list(run_queue(view(queued(1), pending_ddl=pending))) == []


def test_an_upgrade_goes_before_what_was_queued_earlier() -> None:
    assert list(run_queue(view(queued(1), queued(2, kind="upgrade")))) == run(2, is_upgrade=True)


def test_the_queues_table_is_made_once_in_the_systems_range() -> None:
    [made] = create_queue(view(has_queue=False))
    assert made.subject == "_pico_governor_queue"
    assert list(create_queue(view())) == []
    assert system.PICO_GOVERNOR_QUEUE.id < 1024
    assert not isinstance(system.PICO_GOVERNOR_QUEUE.sharding, Sharded)


def versions(*each: str, cluster: str = "0.1.0", catalog: str = "0.1.0") -> ClusterView:
    rows = [
        msgspec.structs.replace(instance(f"i{at}", at), version=version)
        for at, version in enumerate(each, 1)
    ]
    found = view_of(*rows)
    properties = {"cluster_version": cluster, "system_catalog_version": catalog}
    return msgspec.structs.replace(
        found,
        cluster=msgspec.structs.replace(found.cluster, properties=properties),
        version=cluster,
    )


def test_the_version_is_raised_once_all_instances_run_it() -> None:
    assert list(raise_version(versions("0.1.0", "0.2.0"))) == []
    [raised] = raise_version(versions("0.2.0", "0.2.0"))
    assert raised.subject == "0.2.0"
    assert list(raise_version(versions("0.2.0", "0.2.0", cluster="0.2.0"))) == []


def test_ten_comes_after_nine() -> None:
    [raised] = raise_version(versions("0.10.0", cluster="0.9.0"))
    assert raised.subject == "0.10.0"


def test_the_catalogue_is_of_the_new_version_when_its_last_operation_is_done() -> None:
    upgrading = versions("0.2.0", cluster="0.2.0")
    missing = (queued(7, kind="upgrade"),)
    [filled] = fill_queue(msgspec.structs.replace(upgrading, upgrade=missing))
    assert filled.subject == "batch"
    assert list(finish_upgrade(msgspec.structs.replace(upgrading, upgrade=missing))) == []
    assert list(finish_upgrade(msgspec.structs.replace(upgrading, queue=missing))) == []
    failed = (queued(7, "failed", kind="upgrade"),)
    assert list(finish_upgrade(msgspec.structs.replace(upgrading, queue=failed))) == []
    done = (queued(7, "done", kind="upgrade"), queued(8))
    [finished] = finish_upgrade(msgspec.structs.replace(upgrading, queue=done))
    assert finished.subject == "0.2.0"
