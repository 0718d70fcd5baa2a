"""A long text costs memory while it is understood, and a function what its answer needs; then
nothing is left that only a collection of garbage would find."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from cairn.model import stops
from cairn.model.errors import CairnError, QueryCanceled
from cairn.model.tables.catalog import Catalog
from cairn.model.types.array_text import CHECKED
from cairn.node.watching.statistics import Statistics
from cairn.server.statements import StatementCache
from cairn.sql.api import prepare
from cairn.sql.functions import words
from cairn.sql.functions.functions import j_check
from cairn.sql.functions.lists import _reader


@pytest.fixture
def without_collections() -> Iterator[None]:
    prepare("SELECT 1", Catalog())  # what is imported late
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize(
    "text",
    [
        f"SELECT 1 WHERE 1 IN ({','.join(map(str, range(5_000)))})",
        f"SELECT nothing WHERE 1 IN ({','.join(map(str, range(5_000)))})",
        f"SELECT length('{'x' * 100_000}')",
    ],
    ids=["a list", "a refusal", "a value"],
)
def test_a_long_text_leaves_nothing_for_the_garbage_collection(text: str) -> None:
    async def understood() -> None:
        cache = StatementCache(Statistics())
        try:
            await cache.later(text.encode(), (), 1, Catalog)
        except CairnError:
            pass
        finally:
            cache.close()

    asyncio.run(understood())
    assert gc.collect() < 500


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_functions_of_long_texts_take_what_their_answer_needs() -> None:
    text = "ab," * 200_000
    assert peak(lambda: words.c_split_part(text, ",", 150_000)) < len(text)
    assert peak(lambda: words.c_split_part(text, ",", -150_000)) < len(text)
    assert peak(lambda: words.c_initcap(text)) < 10 * len(text)
    json = f"[{'[],' * 200_000}1]"
    assert peak(lambda: j_check(json)) < 2 * len(json)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65_536])
def test_words_are_not_cut_at_the_border_of_a_piece(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "PIECE", piece)
    assert words.c_initcap("heLLo wORLD_of 3rd élan-VITAL") == "Hello World_Of 3rd Élan-Vital"
    assert words.c_initcap("x" * 20) == "X" + "x" * 19


@pytest.mark.parametrize(
    ("text", "delimiter", "at", "part"),
    [
        ("a,b,c", ",", 1, "a"),
        ("a,b,c", ",", 3, "c"),
        ("a,b,c", ",", 4, ""),
        ("a,b,c", ",", -1, "c"),
        ("a,b,c", ",", -3, "a"),
        ("a,b,c", ",", -4, ""),
        ("1aaa,,", "aa", -1, "a,,"),
        ("abc", "", 1, "abc"),
        ("abc", "", 2, ""),
        ("", ",", 1, ""),
        ("a,b", ",", 2**62, ""),
    ],
)
def test_a_part_of_a_text(text: str, delimiter: str, at: int, part: str) -> None:
    assert words.c_split_part(text, delimiter, at) == part


@pytest.mark.parametrize("after", [1, 3])
def test_a_long_list_in_a_text_is_left_when_nobody_wants_it_any_more(after: int) -> None:
    """Two million numbers were read for seconds after their statement had ended."""
    asked = itertools.count()
    read = _reader(int)
    text = "{" + ",".join(["1"] * (2 * CHECKED)) + "}"
    with (
        stops.working_until(lambda: next(asked) >= after),
        pytest.raises(QueryCanceled),
    ):
        read(text)
