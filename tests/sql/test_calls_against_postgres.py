"""Calls of functions with odd values give what PostgreSQL gives, or the same error."""

from __future__ import annotations

import json
import os
import random
import re
from decimal import Decimal
from typing import Any

import pytest

from .generate_functions import ALL_FORMS, ROWS, TABLE, CallGenerator
from .postgres import postgres  # noqa: F401 (a fixture)
from .typed import Answer, Pair

pytestmark = pytest.mark.clients
SEED = int(os.environ.get("CAIRN_SQL_SEED", "20261118"))
CALLS = int(os.environ.get("CAIRN_FUNCTION_CALLS", "300"))  # beside two of every form


def _number(text: str) -> str:
    return str(Decimal(text).normalize())


def _shown(value: Any, type_: int) -> Any:
    """JSON by its value: blanks, the order of members and zeros are told otherwise here; arrays of
    numbers have no zeros. JSON's null cannot be told from NULL by this harness."""
    if value is None or value == b"null":
        return None
    text = value.decode()
    try:
        if type_ in (114, 3802) or text[:1] in "[{":
            read = json.loads(text, parse_float=_number, parse_int=_number)
            return json.dumps(read, sort_keys=True)
    except ValueError:
        pass
    if re.fullmatch(r"\{[-0-9.,NUL]*\}", text):
        return re.sub(r"(\.\d*?)0+(?=[,}])", lambda found: found[1].rstrip("."), text)
    return text


def _plain(answer: Answer) -> Any:
    state, types, rows = answer
    shown = [list(map(_shown, row, types)) if types else row for row in rows]
    return state, [3802 if each == 114 else each for each in types], sorted(shown, key=repr)


@pytest.fixture(scope="module")
def pair(postgres: Any) -> Pair:  # noqa: F811
    found, generator = Pair(postgres), CallGenerator(random.Random(SEED))
    found.both(f"DROP TABLE IF EXISTS odd\n{TABLE}")
    for key in range(1, ROWS + 1):
        found.one(generator.row(key))
    found.check()
    return found


def test_generated_calls_give_the_same_answers(pair: Pair) -> None:
    generator = CallGenerator(random.Random(SEED))
    calls = [generator.query(form) for form in ALL_FORMS for _ in range(2)]
    calls += [generator.query() for _ in range(CALLS)]
    different = []
    for text in calls:
        ours, theirs = pair.ours(text), pair.theirs(text)
        # Of several rows that fail either may be the first.
        both_fail = ours[0] and theirs[0] and "crash" not in ours[0]
        if not (both_fail and "id >" in text) and _plain(ours) != _plain(theirs):
            different.append(f"{text}\n  ours   {ours}\n  theirs {theirs}")
    assert not different, f"{len(different)} of {len(calls)}\n" + "\n".join(different[:40])
