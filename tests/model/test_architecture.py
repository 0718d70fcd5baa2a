"""ARCHITECTURE.md names files and functions: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cairn"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
QUOTED = re.findall(r"`([^`\n]+)`", TEXT)
FILES = sorted({each for each in QUOTED if re.fullmatch(r"[\w/.-]+/[\w-]+\.(py|md)", each)})
NAMES = sorted({each for each in QUOTED if re.fullmatch(r"[a-z_]+(/[a-z_]+)+\.[A-Za-z_.]+", each)})
OBJECTS = sorted({each for each in QUOTED if re.fullmatch(r"[A-Z]\w+\.[a-z_]+", each)})


def is_there(path: str) -> bool:
    return (SOURCE / path).exists() or (ROOT / path).exists()


def test_it_names_files_functions_and_methods() -> None:
    assert len(FILES) > 50 and len(NAMES) > 4 and len(OBJECTS) > 2


def test_every_file_it_names_is_there() -> None:
    assert [path for path in FILES if not is_there(path)] == []


def test_every_function_it_names_is_in_its_file() -> None:
    """`node/statements/hops.ask`: a class or a function of that file."""
    missing = []
    for each in set(NAMES) - set(FILES):
        module, name = each.split(".", 1)
        file = SOURCE / f"{module}.py"
        text = file.read_text() if file.exists() else ""
        if not re.search(rf"(def|class) {name.split('.')[-1]}\b", text):
            missing.append(each)
    assert missing == []


def test_every_method_it_names_is_in_its_class() -> None:
    """`Executor.now`: a class somewhere, with that method."""
    texts = [file.read_text() for file in SOURCE.rglob("*.py")]
    missing = []
    for each in OBJECTS:
        kind, method = each.split(".")
        pattern = rf"^class {kind}\b(.|\n)*?^    (async )?def {method}\("
        if not any(re.search(pattern, text, re.M) for text in texts):
            missing.append(each)
    assert missing == []


# --- the rooms ------------------------------------------------------------------------------------

MOST_FILES, MOST_LINES = 17, 510  # of a folder, of a file: they may become fewer, not more


def test_the_rooms_are_those_that_are_there() -> None:
    told = [(row, text) for row, text in re.findall(r"^\| `([\w/]+)` \| (.+) \|$", TEXT, re.M)]
    there = []
    for init in sorted(SOURCE.rglob("__init__.py")):
        if init.parent != SOURCE:
            first = init.read_text().split('"""')[1].split("\n")[0].strip()
            there.append((str(init.parent.relative_to(SOURCE)), first))
    assert told == there


def test_rooms_fit_into_one_look() -> None:
    files: dict[str, int] = {}
    for file in SOURCE.rglob("*.py"):
        folder = str(file.parent.relative_to(SOURCE))
        files[folder] = files.get(folder, 0) + 1
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}
    lines = {
        str(file.relative_to(SOURCE)): file.read_text().count("\n") for file in SOURCE.rglob("*.py")
    }
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}
