"""The rules of functions that tell something else each time, taken out one at a time.

`python -m tests.replication.run_mutants once:` plants them.
"""

from __future__ import annotations

ONCE, MERGE, WITH = "sql/render/once.py", "sql/compile_merge.py", "sql/compile_with.py"
RELATIONS = "sql/bind/queries/relations.py"
UNIT = "tests/sql/test_once.py::test_"
ROW = UNIT + "a_call_is_made_once_for_a_row"
TWICE = UNIT + "a_query_of_with_that_would_be_made_twice_is_refused"

#: (rule, name, file, old, new, test)
OF_CALLS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("SQL", "once: sub-queries of FROM are taken apart", ONCE),
        *("    if not _shows_anew(query):\n", "    if True:\n"),
        ROW,
    ),
    (
        *("SQL", "once: a union below another query is taken apart", ONCE),
        *("return _shows_anew(left) or _shows_anew(right)", "return False"),
        ROW,
    ),
    (
        *("SQL", "once: copies of a call are calls", ONCE),
        *("    if not calls:\n", "    if calls:\n"),
        ROW,
    ),
    (
        *("SQL", "once: conditions have calls of their own", ONCE),
        *("(times + where_times).items()", "times.items()"),
        ROW,
    ),
    (
        *("SQL", "once: two calls are one", "sql/bind/expressions/functions.py"),
        *("(Const(I, binder.next_rel()),)", "(Const(I, 0),)"),
        UNIT + "two_calls_are_two_values",
    ),
    (
        *("SQL", "once: WITH is asked wherever it is named", RELATIONS),
        *("if len(cte.named_at) > 1 and told_anew(query):", "if False:"),
        TWICE,
    ),
    (
        *("SQL", "once: parts that write ask WITH again", WITH),
        *("            _check_named_once(found, read, before, planning, text)\n", ""),
        TWICE,
    ),
    (
        *("SQL", "once: each WHEN has rows of its own", MERGE),
        *("        self._check_the_same_for_all()\n", ""),
        UNIT + "merge_asks_for_its_rows_once_for_each_when",
    ),
)
