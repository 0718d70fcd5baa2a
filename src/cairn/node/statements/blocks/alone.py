"""Statements of a block that committed by themselves: ROLLBACK cannot undo them."""

from __future__ import annotations

from cairn.model.errors import Unsupported

#: What leaves nothing but an empty thing that was not there before: nobody's rows, rights or users.
MAKING = frozenset(
    ("CREATE TABLE", "CREATE INDEX", "CREATE VIEW", "CREATE SEQUENCE", "CREATE TYPE")
)


class Alone:
    """How many there were in one block."""

    def __init__(self) -> None:
        self.rows = 0  # that changed rows
        self.schema = 0  # the same for the schema
        self.made = 0  # of these, what only made something new

    @property
    def committed(self) -> int:
        return self.rows + self.schema

    def note(self, tag: str = "", *, is_schema: bool = False) -> None:
        if is_schema:
            self.schema += 1
        else:
            self.rows += 1
        self.made += tag in MAKING

    def refusal(self, tag: str, *, has_written: bool) -> Unsupported:
        if self.rows:
            why = "a statement of this block has committed by itself"
        elif has_written:
            why = f"{tag} would commit by itself, and the block has written rows"
        else:
            why = f"{tag} would commit by itself"
        return Unsupported(
            f"this block could not be undone as a whole: {why}",
            hint="end the block first, or let every statement commit by itself: "
            "SET atomic_blocks = off",
        )
