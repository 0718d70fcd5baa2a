"""What a block's statement did is put back only while nothing has changed that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cairn.model.errors import BlockConflict
from cairn.model.log.records import RowChange, RowOp, Shape
from cairn.model.members.moves import MovePart
from cairn.model.rpc import BlockItem
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, ForeignKey
from cairn.node.statements.blocks import kept
from cairn.node.statements.blocks.kept import Done, Kept
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.moving_in import write_part
from tests.replication.builders import BY_B, TABLE, WIDER, Site, inserted, packed

BUCKET = frozenset((1,))
MINE = inserted(7, "mine")
OTHER = msgspec.structs.replace(TABLE, id=FIRST_USER_TABLE_ID + 1, name="other", schema_version=2)
BULK = f"INSERT INTO {TABLE.physical_name} VALUES (?, ?, ?)"


class Scene:
    """The master of some rows, and a statement of a block that was tried there."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory, "i1")
        self.store = self.site.store
        self.lead(1)
        self.site.create()
        self.site.insert(1)
        self.kept = Kept(self.store, 0)

    def lead(self, epoch: int, *ranges: tuple[int, int]) -> None:
        fence = Fence(epoch, is_master=True, master="i1", ranges=ranges or ((1, 10),))
        self.store.fence = self.store.newest = fence

    def keep(
        self, *changes: RowChange, buckets: frozenset[int] = BUCKET, told: bytes = b"one"
    ) -> BlockItem:
        item = BlockItem("", 1, 0, tables={TABLE.id: 1}, told=told)
        number = self.kept.keep(item, told, buckets, changes or (MINE,))
        return msgspec.structs.replace(item, made=number)

    def done(self, *items: BlockItem) -> list[RowChange] | None:
        found = self.kept.done(items)
        return None if found is None else list(found.changes)

    def statement(self, work: Callable[[], int]) -> None:
        self.site.group(lambda: self.store.statement(work))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.site.close()


def written(scene: Scene) -> None:
    scene.site.run(f"UPDATE {TABLE.physical_name} SET c1 = 'new' WHERE c0 = 1")


def inserted_alone(scene: Scene) -> None:
    scene.site.group(lambda: scene.store.insert_row(TABLE.id, BULK, (1, 2, "x")))


def inserted_in_bulk(scene: Scene) -> None:
    scene.statement(lambda: scene.store.bulk_insert(TABLE.id, BULK, [(1, 2, "x")]))


def told_by_another(scene: Scene) -> None:
    scene.site.enter(1)
    assert scene.site.take([packed("i2", 1, 1, inserted(2))]) == 1


def past_a_cut(scene: Scene) -> None:
    """What it saw last belongs to no history."""
    assert scene.site.enter(2, past={}, i1=1) != []


def emptied(scene: Scene) -> None:
    table = msgspec.structs.replace(TABLE, schema_version=2)
    scene.site.reshape(Shape(TABLE.id, table, truncate=True))


def widened(scene: Scene) -> None:
    scene.site.reshape(Shape(TABLE.id, WIDER))


def indexed(scene: Scene) -> None:
    table = msgspec.structs.replace(TABLE, schema_version=2)
    scene.site.reshape(Shape(TABLE.id, table, (BY_B,)))


def another_table(scene: Scene) -> None:
    """It may name rows of ours."""
    scene.site.reshape(Shape(OTHER.id, OTHER))


def buckets_came(scene: Scene) -> None:
    part = MovePart(1, 1, "empty", 1, 1)
    scene.site.group(lambda: write_part(scene.store, part))


def group_taken_back(scene: Scene) -> None:
    scene.store.failed()


def another_epoch(scene: Scene) -> None:
    scene.lead(2)


def bucket_left_and_came_back(scene: Scene) -> None:
    scene.lead(1, (2, 10))
    scene.lead(1)


def bucket_is_about_to_leave(scene: Scene) -> None:
    """The writer has not heard of it: who runs the statement asks for each of its buckets."""
    scene.store.newest = Fence(1, is_master=True, master="i1", ranges=((2, 10),))


@pytest.mark.parametrize(
    "happens",
    [
        *(written, inserted_alone, inserted_in_bulk, told_by_another, past_a_cut),
        *(emptied, widened, indexed, another_table, buckets_came, group_taken_back),
        *(another_epoch, bucket_left_and_came_back, bucket_is_about_to_leave),
    ],
    ids=lambda happens: happens.__name__,
)
def test_it_is_run_again_after(happens: Callable[[Scene], None], scene: Scene) -> None:
    item = scene.keep()
    assert scene.done(item) == [MINE]
    happens(scene)
    assert scene.done(item) is None


def test_a_change_of_the_schema_that_is_taken_back_counts_too(scene: Scene) -> None:
    """It made other texts and indexes of the table's in between."""
    item = scene.keep()
    scene.store.reload_tables()
    assert scene.done(item) is None


def test_a_new_table_alone_counts_though_nobody_was_told(scene: Scene) -> None:
    item = scene.keep()
    scene.site.group(lambda: scene.store.apply_shape(Shape(OTHER.id, OTHER)))
    assert scene.done(item) is None


def test_it_holds_whatever_happens_to_rows_of_other_buckets_and_tables(scene: Scene) -> None:
    scene.site.reshape(Shape(OTHER.id, OTHER))
    item = scene.keep()
    scene.site.run(f"INSERT INTO {TABLE.physical_name} VALUES (2, 2, 'x')")
    scene.site.run(f"INSERT INTO {OTHER.physical_name} VALUES (1, 2, 'x')")
    assert scene.done(item) == [MINE]


def test_one_that_does_not_hold_is_enough_to_run_all(scene: Scene) -> None:
    items = [scene.keep(buckets=frozenset((2,))), scene.keep(), scene.keep(buckets=frozenset())]
    assert scene.done(*items) == [MINE] * 3
    written(scene)
    assert scene.done(*items) is None
    assert scene.done(items[0], items[2]) == [MINE] * 2


def test_it_is_not_taken_for_another_answer_or_another_statement(scene: Scene) -> None:
    item = scene.keep()
    assert scene.done(msgspec.structs.replace(item, told=b"two")) is None
    assert scene.done(msgspec.structs.replace(item, made=item.made + 1)) is None
    assert scene.done(msgspec.structs.replace(item, made=0)) is None


@pytest.mark.parametrize("names", ["parent", "child"])
def test_rows_that_are_tied_to_others_are_never_kept(names: str, scene: Scene) -> None:
    """Their others are not watched."""
    child, parent = (OTHER, TABLE) if names == "parent" else (TABLE, OTHER)
    key = ForeignKey("fk", (0,), parent.id, (0,))
    tied = msgspec.structs.replace(child, foreign_keys=(key,), schema_version=3)
    scene.site.reshape(Shape(OTHER.id, OTHER))
    scene.site.reshape(Shape(child.id, tied))
    assert scene.keep().made == 0


def test_much_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [inserted(key) for key in range(kept.MOST_CHANGES + 1)]
    assert scene.keep(*many[1:]).made and not scene.keep(*many).made
    monkeypatch.setattr(kept, "MOST_BYTES", 200_000)
    assert scene.keep(inserted(7, "x" * 1_000)).made
    assert not scene.keep(inserted(7, "x" * 2_000)).made
    assert not scene.keep(buckets=frozenset(range(3_000))).made


@pytest.mark.parametrize("name", ["MOST", "MOST_BYTES"])
def test_the_oldest_are_forgotten_first(
    name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, name, {"MOST": 10, "MOST_BYTES": 200_000}[name])
    items = [scene.keep(inserted(key, "x" * 1_000)) for key in range(200)]
    held = [scene.done(item) is not None for item in items]
    assert held == sorted(held) and 10 <= sum(held) < 200
    scene.kept.forget(items)
    assert scene.kept._bytes == 0 and scene.done(items[-1]) is None


def test_what_is_put_back_is_as_if_it_had_been_run(scene: Scene) -> None:
    changed = RowChange(TABLE.id, 1, RowOp.UPDATE, (1, 1, "x"), (1, 1, "y"))
    found = scene.kept.done([scene.keep(MINE, changed)])
    assert found is not None

    def put_back() -> int:
        scene.kept.do_again(found)
        return scene.store.count_rows()

    scene.statement(put_back)
    assert scene.site.rows() == [(1, "y"), (7, "mine")]
    newest = scene.site.log_of("i1")[-1]
    assert newest == packed("i1", 1, 3, MINE, changed)
    assert scene.store.touched.is_since(scene.store.touched.now - 1, (TABLE.id,), BUCKET)


@pytest.mark.parametrize(
    "change",
    [inserted(1), RowChange(TABLE.id, 1, RowOp.DELETE, (1, 9, "x"), None)],
    ids=["a row that is there", "a row that is not"],
)
def test_what_does_not_fit_is_a_conflict_and_nothing_of_it_stays(
    change: RowChange, scene: Scene
) -> None:
    done = Done((MINE, change), scene.kept._exact.said((MINE, change)))
    with pytest.raises(BlockConflict):
        scene.statement(lambda: scene.kept.do_again(done) or 0)
    assert scene.site.rows() == [(1, "x")]


@pytest.mark.parametrize(
    "happens",
    [told_by_another, past_a_cut, emptied, another_table, buckets_came, group_taken_back],
    ids=lambda happens: happens.__name__,
)
def test_what_is_not_known_in_detail_touches_everything(
    happens: Callable[[Scene], None], scene: Scene
) -> None:
    then = scene.store.touched.now
    happens(scene)
    assert scene.store.touched.is_since(then, (), ())
