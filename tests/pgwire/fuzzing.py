"""How the fuzz tests of this directory are run, and the hostile bytes they share."""

from __future__ import annotations

from struct import pack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# No clock: this machine is shared, and a slow example is not a wrong one.
CALM = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + pack("!I", len(body) + 4) + body


def startup(**pairs: str) -> bytes:
    body = pack("!I", 196608)
    for name, value in pairs.items():
        body += name.encode() + b"\0" + value.encode() + b"\0"
    return pack("!I", len(body) + 5) + body + b"\0"


_FRONTEND = st.sampled_from([bytes([c]) for c in b"QPBDECHSFdcfXp\0\xffZ"])
_INTERESTING = st.sampled_from(
    [b"", b"\0", b"s\0", b"\0\0\0\0", b"\xff" * 4, b"S", b"P\0", b"\0\1", b"\x7f\xff\xff\xff"]
)

messages = st.builds(
    message, _FRONTEND, st.lists(_INTERESTING | st.binary(), max_size=5).map(b"".join)
)
streams = st.lists(messages | st.binary(max_size=20), max_size=8).map(b"".join)
