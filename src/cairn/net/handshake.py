"""Proving to each other that we share the cluster's secret, before a word is said (sans-IO).

The dialler says hello, the listener answers with a nonce, the dialler proves first: a stranger
learns nothing, not even whether its guess of the cluster's name was right. The secret never
travels; each proof covers both nonces, the hello itself and, under TLS, both certificates.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

import msgspec

from cairn.model.errors import CairnError, Expelled, PeerRefused, WrongCluster

PROTOCOL = 1
_NONCE = 16


class Identity(msgspec.Struct, frozen=True):
    """Who is speaking. Empty fields are not known yet: a joining instance has no raft_id."""

    cluster_name: str
    cluster_uuid: str = ""
    instance_uuid: str = ""
    instance_name: str = ""
    raft_id: int = 0


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    protocol: int
    identity: Identity
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    mac: bytes


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    identity: Identity
    mac: bytes


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    reason: str
    expelled: bool = False
    mac: bytes = b""  # proves that a member says so: no member stops for a stranger's word
    is_lasting: bool = False  # until somebody changes the configuration of one of the two


_Any = Hello | Challenge | Proof | Welcome | Refused
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Any)


def _read(payload: bytes) -> _Any:
    try:
        found: _Any = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PeerRefused("the other side does not speak this protocol") from None
    return found


def _mac(secret: bytes, side: bytes, *parts: bytes) -> bytes:
    """The last part is what the channel is bound to; without TLS it is empty and left out."""
    covered = parts if parts[-1] else parts[:-1]
    return hmac.digest(secret or b"\x00", side + b"\x00".join(covered), "sha256")


#: Given a proven peer's identity: None, or why it is not let in.
Gatekeeper = Callable[[Identity], Refused | None]


class DialSide:
    """The one that connects. `peer` is set once the other side has proven itself."""

    def __init__(self, me: Identity, secret: bytes, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret
        self._hello = _encode(Hello(PROTOCOL, me, random_bytes(_NONCE)))
        self._challenge = b""
        self.binding = b""
        self.peer: Identity | None = None

    def start(self) -> bytes:
        return self._hello

    def receive(self, payload: bytes) -> bytes | None:
        """What to send next; None when the handshake is complete. Raises when refused."""
        match _read(payload):
            case Challenge() if not self._challenge:
                self._challenge = payload
                mac = _mac(self._secret, b"dial", self._hello, payload, self.binding)
                return _encode(Proof(mac))
            case Welcome(identity=identity, mac=mac) if self._challenge:
                said = (self._hello, self._challenge, _encode(identity))
                expected = _mac(self._secret, b"listen", *said, self.binding)
                if not hmac.compare_digest(mac, expected):
                    raise WrongCluster("the other side does not know the service password")
                self.peer = identity
                return None
            case Refused(reason=reason, expelled=True, mac=mac) if hmac.compare_digest(
                mac, self._refusal_mac(reason)
            ):
                raise Expelled(reason)
            case Refused(reason=reason, is_lasting=is_lasting):
                raise (WrongCluster if is_lasting else PeerRefused)(reason)
        raise PeerRefused("the other side broke the handshake")

    def _refusal_mac(self, reason: str) -> bytes:
        said = (self._hello, self._challenge, reason.encode())
        return _mac(self._secret, b"refused", *said, self.binding)


class ListenSide:
    """The one that was connected to."""

    def __init__(
        self,
        me: Callable[[], Identity],
        secret: bytes,
        random_bytes: Callable[[int], bytes],
        gatekeeper: Gatekeeper,
    ) -> None:
        self._me, self._secret = me, secret
        self._random_bytes, self._gatekeeper = random_bytes, gatekeeper
        self._hello = b""
        self._challenge = b""
        self._claimed: Identity | None = None
        self.binding = b""
        self.peer: Identity | None = None

    def receive(self, payload: bytes) -> tuple[bytes, CairnError | None]:
        """An answer, and why to hang up after it if the peer is not let in."""
        match _read(payload):
            case Hello(protocol=protocol, identity=identity) if not self._hello:
                if protocol != PROTOCOL:
                    why = f"peer protocol {protocol} is not {PROTOCOL}"
                    return _encode(Refused(why)), PeerRefused(why)
                self._hello, self._claimed = payload, identity
                self._challenge = _encode(Challenge(self._random_bytes(_NONCE)))
                return self._challenge, None
            case Proof(mac=mac) if self._hello and self._claimed is not None and self.peer is None:
                return self._judge(mac, self._claimed)
        raise PeerRefused("the other side broke the handshake")

    def _judge(self, mac: bytes, claimed: Identity) -> tuple[bytes, CairnError | None]:
        said = (self._hello, self._challenge)
        expected = _mac(self._secret, b"dial", *said, self.binding)
        if not hmac.compare_digest(mac, expected):
            why = "authentication failed: wrong service password"
            return _encode(Refused(why, is_lasting=True)), PeerRefused(why)
        me = self._me()
        refused = self._gatekeeper(claimed) or _other_cluster(me, claimed)
        if refused is not None:
            reason = refused.reason.encode()
            mac = _mac(self._secret, b"refused", *said, reason, self.binding)
            told = Refused(refused.reason, refused.expelled, mac, refused.is_lasting)
            return _encode(told), PeerRefused(refused.reason)
        self.peer = claimed
        proof = _mac(self._secret, b"listen", *said, _encode(me), self.binding)
        return _encode(Welcome(me, proof)), None


def _other_cluster(me: Identity, claimed: Identity) -> Refused | None:
    if claimed.cluster_name != me.cluster_name:
        return Refused(
            f'cluster_name mismatch: cluster_name of the instance = "{claimed.cluster_name}", '
            f'cluster_name of the cluster = "{me.cluster_name}"',
            is_lasting=True,
        )
    known = me.cluster_uuid and claimed.cluster_uuid
    if known and claimed.cluster_uuid != me.cluster_uuid:
        return Refused(
            f"cluster uuid mismatch: {claimed.cluster_uuid} is not {me.cluster_uuid}; "
            "two clusters started apart never merge"
        )
    return None
