"""The tables of docs/reference/system-tables.md, from the description of the system tables."""

from __future__ import annotations

import re

from cairn.model.tables.column_checks import BY_TYPE
from cairn.model.tables.schema import Table
from cairn.model.tables.system_tables import CHECKS, MEANINGS, SYSTEM_TABLES
from cairn.model.types.values import ColumnType

_BLOCK = re.compile(r"<!-- columns of (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def columns_page(table: Table) -> str:
    """One line for each column: name, type, meaning, and what it may hold if that is less."""
    lines = ["| Column | Type | Meaning | Allowed |", "|---|---|---|---|"]
    for at, column in enumerate(table.columns):
        type_ = "text" if column.type is ColumnType.STRING else column.type.value
        marks = [type_]
        marks += ["key"] if column.name in table.primary_key else []
        marks += ["null"] if column.nullable else []
        check = CHECKS[table.id][at]
        is_general = check is BY_TYPE[column.type][1]
        allowed = "" if is_general else _allowed(check.words)
        meaning = MEANINGS[table.id][at]
        lines.append(f"| `{column.name}` | {', '.join(marks)} | {meaning} | {allowed} |")
    return "\n".join(lines)


def _allowed(words: str) -> str:
    return f"`{words}`" if any(mark in words for mark in '[{"') else words


def page_of(text: str) -> str:
    """`text` with the columns of each table written anew between their marks."""
    by_name = {table.name: table for table in SYSTEM_TABLES}

    def block(found: re.Match[str]) -> str:
        table = by_name[found[1]]
        return f"<!-- columns of {table.name} -->\n{columns_page(table)}\n<!-- end -->"

    return _BLOCK.sub(block, text)
