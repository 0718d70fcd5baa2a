"""What a peer names a copy becomes the name of a file: nothing but a uuid is taken."""

from __future__ import annotations

import msgspec
import pytest

from cairn.model.backups import CopyRequest, HoldRequest, PieceRequest

GOOD = "6b891f9a-f67a-489f-81b4-43b20d4198f0"


@pytest.mark.parametrize("kind", [CopyRequest, HoldRequest, PieceRequest])
@pytest.mark.parametrize(
    "wrong", ["../../raft", "/etc/passwd", "x" * 300, "", GOOD + "/..", "a\0b"]
)
def test_only_a_uuid_names_a_copy(kind: type[msgspec.Struct], wrong: str) -> None:
    body = {"copy_id": GOOD, "replicaset": "r1", "offset": 0}
    assert msgspec.convert(body, kind).copy_id == GOOD  # type: ignore[attr-defined]
    with pytest.raises(msgspec.ValidationError, match="copy_id"):
        msgspec.convert({**body, "copy_id": wrong}, kind)
