"""A judge of what is kept of blocks: wherever changes are put back, the statements are run as well.

Whoever takes a kept change says that to run the statements again would give the same answers and
the same changes. Here that is done, and taken back: what differs is a mistake of whoever kept it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cairn.model.errors import BlockConflict
from cairn.node.statements.blocks.block_owner import BlockOwner
from cairn.node.statements.blocks.kept import NOTHING


class RunTwice:
    """What the judge has seen. `taken`: statements whose changes were put back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[str] = []
        self.wrong: list[str] = []
        self.all = 0  # statements that were listed before the last one
        statements = BlockOwner._statements

        def judged(owner: Any, run: Any, guard: Any, request: Any, planned: Any, *more: Any) -> Any:
            end = len(request.items) - (not request.is_commit and request.read is None)
            items = request.items[:end]
            early, done = owner._known_behind(items, planned)
            self.all += end
            if done is not NOTHING:
                self.taken += [item.text for item in items[early:]]
                self._judge(owner, run, items[early:], planned[early:], done.changes)
            return statements(owner, run, guard, request, planned, *more)

        monkeypatch.setattr(BlockOwner, "_statements", judged)

    def _judge(
        self, owner: Any, run: Any, items: Sequence[Any], planned: Any, kept: Sequence[Any]
    ) -> None:
        store = owner._execution.data.store
        before, enforced = list(store._changes), store._gathered.enforced
        store.connection.execute("SAVEPOINT twice")
        try:
            for item, prepared in zip(items, planned, strict=False):
                owner._compared(run, item, prepared)
            made = store._changes[len(before) :]
            if made != list(kept):
                self.wrong.append(f"{[item.text for item in items]}: {made} and not {kept}")
        except BlockConflict as problem:
            self.wrong.append(f"{problem.detail}")
        finally:
            store.connection.execute("ROLLBACK TO twice")
            store.connection.execute("RELEASE twice")
            store._changes[:], store._gathered.enforced = before, enforced
