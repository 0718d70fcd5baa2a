"""A private PostgreSQL, and the same statement on it and on three replicasets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cairn.model.errors import CairnError
from tests.cluster.harness import free_ports

from .corpus import ROWS, TABLES
from .harness import Cluster

psycopg = pytest.importorskip("psycopg")
from psycopg.types.json import set_json_loads  # noqa: E402 (not everybody has it)

BINARIES = Path("/usr/lib/postgresql/15/bin")


def _binaries() -> Path | None:
    if (BINARIES / "initdb").exists():
        return BINARIES
    config = shutil.which("pg_config")
    if config is None:
        return None
    found = Path(subprocess.check_output([config, "--bindir"], text=True).strip())
    return found if (found / "initdb").exists() else None


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A private server in a directory of its own; stopped by its own pg_ctl whatever happens."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server is not installed")
    home = tempfile.mkdtemp(prefix="cairn-pg-")
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses root
        as_user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(home, "postgres", "postgres")
    data, port = f"{home}/data", free_ports(1)[0]

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=home)

    initdb = str(binaries / "initdb")
    run(initdb, "-D", data, "-A", "trust", "-U", "admin", "--no-sync", "-E", "UTF8",
        "--locale=C", "--lc-ctype=C.UTF-8")  # fmt: skip
    options = f"-k {home} -h 127.0.0.1 -p {port} -c fsync=off -c timezone=UTC"
    control = str(binaries / "pg_ctl")
    try:
        run(control, "-D", data, "-w", "-t", "60", "-l", f"{home}/log", "-o", options, "start")
        connection = psycopg.connect(
            host="127.0.0.1", port=port, user="admin", dbname="postgres", autocommit=True
        )
        set_json_loads(partial(json.loads, parse_float=Decimal), connection)  # with their zeros
        yield connection
    finally:
        subprocess.run(
            [*as_user, control, "-D", data, "-m", "immediate", "stop"],
            check=False,
            capture_output=True,
            cwd=home,
        )
        shutil.rmtree(home, ignore_errors=True)


#: Of ours alone: they must not change what is answered.
INDEXES = (
    "CREATE INDEX ON item (lower(s))",
    "CREATE INDEX ON item ((n % 3), id)",
    "CREATE INDEX ON item (grp) WHERE ok = true",
    "CREATE INDEX ON part (upper(note))",
    "CREATE INDEX ON note (abs(n))",
    "CREATE INDEX ON note (lower(tag), n)",
)


class Both:
    """One statement, two databases."""

    def __init__(self, postgres: Any, together: Collection[str] = ()) -> None:
        """All rows of the tables named in `together` lie in one bucket."""
        self.cluster, self.postgres = Cluster(), postgres
        self.met = 0  # answers for which rows went to where others stay
        for ours, theirs in TABLES:
            name = theirs.split()[2]
            postgres.execute(f"DROP TABLE IF EXISTS {name}")
            postgres.execute(theirs)
            if name in together:
                ours = f"{ours[: ours.index(' DISTRIBUTED BY')]} DISTRIBUTED BY ()"
            self.cluster.run(ours)
        for statement in INDEXES:
            self.cluster.run(statement)
        for statement in ROWS:
            postgres.execute(statement)
            self.cluster.run(statement)
        self.cluster._mirror()

    def theirs(self, text: str, params: list[Any] | None = None) -> tuple[str, list[Any]]:
        try:
            if params:
                cursor = psycopg.RawCursor(self.postgres).execute(text.encode(), params)
            else:
                cursor = self.postgres.execute(text.encode())
        except psycopg.Error as error:
            return str(error.sqlstate), []
        return "", cursor.fetchall() if cursor.description else [cursor.rowcount]

    def ours(self, text: str, params: list[Any] | None = None) -> tuple[str, list[Any]]:
        try:
            values = params or []
            result = self.cluster.run(text, values, [_oid(value) for value in values])
        except CairnError as error:
            return error.sqlstate, []
        except Exception as error:  # a bug of ours: reported with its statement
            return f"crash {error!r}", []
        return "", result if isinstance(result, list) else [result]


def _oid(value: Any) -> int:
    """The type that psycopg declares for a value."""
    if isinstance(value, bool):
        return 16
    if isinstance(value, list):
        return {int: 1016, str: 1009, Decimal: 1231}[type(value[0])] if value else 1016
    return {int: 21, Decimal: 1700}.get(type(value), 0)


@pytest.fixture(scope="module")
def both(postgres: Any) -> Both:
    return Both(postgres)


#: Where equal numbers meet, either answer may show the zeros of another one of them.
_TIES = re.compile(
    r"\b(min|max|greatest|least|group by|distinct|union|intersect|except|row_number|limit)\b", re.I
)


def _same_value(a: Any, b: Any, zeros: bool) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        return x == y or abs(x - y) <= 1e-9 * max(abs(x), abs(y))
    if isinstance(a, datetime) and isinstance(b, datetime):
        return a.astimezone(UTC) == b.astimezone(UTC)
    if zeros and isinstance(a, Decimal) and isinstance(b, Decimal):
        return f"{a:f}" == f"{b:f}"  # zeros behind the last digit too
    return bool(a == b)


def _key(row: Any) -> tuple[str, list[str]]:
    def shown(value: Any) -> str:
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return f"{float(value):.6g}"
        return repr(value)

    if not isinstance(row, tuple):
        return shown(row), []
    # Their zeros decide among equal rows only: a sum of integers is no Decimal on the other side.
    return "|".join(map(shown, row)), [f"{v:f}" for v in row if isinstance(v, Decimal)]


def difference(
    ours: list[Any], theirs: list[Any], *, ordered: bool, zeros: bool = True
) -> str | None:
    """What differs between two results, or None."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, PostgreSQL has {len(theirs)}: {ours[:5]} / {theirs[:5]}"
    if ordered and zeros:  # of equal numbers either may come first
        found = difference(ours, theirs, ordered=True, zeros=False)
        return found or difference(ours, theirs, ordered=False)
    if not ordered:
        ours, theirs = sorted(ours, key=_key), sorted(theirs, key=_key)
    for mine, other in zip(ours, theirs, strict=True):
        left = mine if isinstance(mine, tuple) else (mine,)
        right = other if isinstance(other, tuple) else (other,)
        if len(left) != len(right) or not all(
            _same_value(*pair, zeros) for pair in zip(left, right, strict=True)
        ):
            return f"{mine} / {other}"
    return None


def compare(both: Both, text: str, *, ordered: bool, params: list[Any] | None = None) -> str | None:
    """What differs, in whichever way the statement can be read."""
    theirs, ours = both.theirs(text, params), both.ours(text, params)
    found = _compared(text, theirs, ours, ordered=ordered, params=params)
    for way in range(both.cluster.ways):
        both.cluster.way = way
        met = both.ours(text, params)
        both.cluster.way = None
        both.met += 1
        found = found or _compared(f"{text} [{way}]", theirs, met, ordered=ordered, params=params)
    return found


def _compared(
    text: str, theirs: Any, ours: Any, *, ordered: bool, params: list[Any] | None
) -> str | None:
    if theirs[0] or ours[0]:
        if theirs[0][:2] == ours[0][:2]:
            return None
        return f"{text} {params or ''}\n    ours: {ours}\n    PostgreSQL: {theirs}"
    zeros = _TIES.search(text) is None
    found = difference(ours[1], theirs[1], ordered=ordered, zeros=zeros)
    return None if found is None else f"{text} {params or ''}\n    {found}"


def report(problems: list[str | None]) -> None:
    found = [problem for problem in problems if problem]
    assert not found, f"{len(found)} of {len(problems)} differ:\n" + "\n".join(found[:40])
