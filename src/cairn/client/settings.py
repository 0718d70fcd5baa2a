"""What a user of the driver may set, read from a DSN and keyword arguments."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import ssl
from fnmatch import fnmatch
from typing import Any, Literal, TypeAlias

import msgspec

from cairn.model.errors import InvalidParameter
from cairn.model.settings.dsn import split_dsn
from cairn.model.settings.nearest import nearest
from cairn.pgwire.client.auth import ChannelBinding
from cairn.pgwire.client.client import PgClient

DEFAULT_PORT = 4327
#: Startup keys of connections for statements.
METADATA = {"picodata_stmt_invalidation": "true", "smart_connector_hints": "true"}
ReadFrom: TypeAlias = Literal["master", "replica", "any"]
_NAMED = ("sslmode", "sslrootcert", "sslcert", "sslkey", "channel_binding", "application_name")
_BINDINGS = ("disable", "prefer", "require")
_SSL_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every wait has a limit here; units come last."""

    hosts: tuple[str, ...]  # host:port, where to begin
    user: str
    password: str | None = None
    database: str = "cairn"
    options: dict[str, str] = {}  # further startup keys
    sslmode: str = "prefer"
    sslrootcert: str | None = None
    sslcert: str | None = None  # ours, for servers that ask for one
    sslkey: str | None = None
    channel_binding: ChannelBinding = "prefer"  # SCRAM-SHA-256-PLUS
    application_name: str = "cairn-client"

    connect_timeout_s: float = 5.0
    acquire_timeout_s: float = 5.0  # for a free connection of a full pool
    timeout_s: float = 30.0  # for a statement
    cancel_wait_s: float = 1.0  # for the answer to a CancelRequest, when a statement took too long
    retry_for_s: float = 10.0  # what was certainly not executed is tried again so long
    silence_s: float = 6.0  # a 0.2 service connection without a heartbeat (2 s) is given up
    max_per_instance: int = 10

    routing: bool = True  # False: instances in turn, for comparison
    read_from: ReadFrom = "master"
    tiers: tuple[str, ...] = ()  # unbounded statements go only there; empty: anywhere
    split_inserts: bool = True
    metadata_cache_size: int = 1000
    batch_records: int = 2000
    batch_age_s: float = 15.0
    allow_hosts: tuple[str, ...] = ()  # patterns or networks for addresses that are pushed to us

    def startup(self) -> dict[str, str]:
        """Startup keys of every connection."""
        found = {"application_name": self.application_name, **self.options}
        if self.read_from != "master":
            found.setdefault("read_preference", "any")
        return found

    def statement_keys(self) -> dict[str, str]:
        """Startup keys of connections for statements: who does not route needs no hints."""
        return METADATA if self.routing else {**METADATA, "smart_connector_hints": "false"}

    @property
    def opening_s(self) -> float:
        """For the first topology: some of the hosts may stand still."""
        return self.connect_timeout_s * min(len(self.hosts), 3)

    @property
    def tls(self) -> Literal["disable", "prefer", "require"]:
        return self.sslmode if self.sslmode in ("disable", "prefer") else "require"  # type: ignore[return-value]

    @property
    def verifies_hosts(self) -> bool:
        return self.sslmode == "verify-full"

    def ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.sslrootcert)
        context.check_hostname = self.verifies_hosts
        if self.sslmode not in ("verify-ca", "verify-full") and self.sslrootcert is None:
            context.verify_mode = ssl.CERT_NONE  # as with libpq, a given authority is asked
        if self.sslcert is not None:
            context.load_cert_chain(self.sslcert, self.sslkey)
        return context

    def allows(self, address: str) -> bool:
        """Whether credentials may go to an address that a server named.

        Yes if TLS checks the host name there, if the host is allowed, or if it is near a host
        that the user gave: the same host, the same /24 of private addresses, the same domain.
        """
        if self.verifies_hosts:
            return True
        host = split_address(address)[0]
        if any(_matches(host, pattern) for pattern in self.allow_hosts):
            return True
        return any(_is_near(host, split_address(known)[0]) for known in self.hosts)


#: Told to the server as they are.
_STARTUP = (
    *("application_name", "client_encoding", "forward", "options", "read_concern"),
    *("read_preference", "search_path", "smart_connector_hints", "sql_motion_row_max"),
    *("sql_repartition", "sql_vdbe_opcode_max", "statement_timeout", "timezone"),
    "pico_query_metadata",
    *("pico_stmt_invalidation", "picodata_stmt_invalidation"),
)


def parse_dsn(dsn: str, **more: Any) -> Settings:
    """`postgresql://user:password@host1:port1,host2/db?sslmode=…&options=…`; keywords win."""
    parts = split_dsn(dsn)
    if parts is None or parts.scheme not in ("postgresql", "postgres", "cairn"):
        named = f"{parts.scheme}://…" if parts is not None else "it has no scheme://"
        raise InvalidParameter(f"not a DSN: {named}", hint="postgresql://user@host/db")
    found: dict[str, Any] = {
        "hosts": tuple(map(_with_port, parts.hosts)),
        "user": parts.user or "admin",
        "password": parts.password or None,
    }
    if parts.database:
        found["database"] = parts.database
    options: dict[str, str] = dict(more.pop("options", {}))
    for name, value in parts.options:
        if [each for each, _ in parts.options].count(name) > 1:
            raise InvalidParameter(f"the DSN has {name} twice")
        if name in _NAMED:
            found[name] = value
        elif name == "connect_timeout":
            found["connect_timeout_s"] = _seconds(name, value)
        elif name in _STARTUP:
            options.setdefault(name, value)
        else:
            known = sorted({*_NAMED, *_STARTUP, "connect_timeout"})
            raise InvalidParameter(f"unknown option in the DSN: {name}", hint=nearest(name, known))
    found |= {name: value for name, value in more.items() if value is not None}
    for name in ("allow_hosts", "tiers"):
        if isinstance(found.get(name), str | list):
            value = found[name]
            found[name] = tuple(value.split(",") if isinstance(value, str) else value)
    unknown = set(found) - set(Settings.__struct_fields__)
    if unknown:
        raise InvalidParameter(
            f"unknown driver settings: {', '.join(sorted(unknown))}",
            hint=nearest(min(unknown), Settings.__struct_fields__),
        )
    settings = Settings(options=options, **found)
    if not settings.hosts:
        raise InvalidParameter("the DSN names no host")
    if settings.sslmode not in _SSL_MODES:
        raise InvalidParameter(f"sslmode={settings.sslmode}: use one of {', '.join(_SSL_MODES)}")
    if settings.channel_binding not in _BINDINGS:
        raise InvalidParameter(f"channel_binding: use one of {', '.join(_BINDINGS)}")
    return settings


def _seconds(name: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:
        raise InvalidParameter(f"{name}={value}: a number of seconds")
    return found


def make_pg(settings: Settings, params: dict[str, str]) -> PgClient:
    return PgClient(
        settings.user,
        random_bytes=os.urandom,
        password=settings.password,
        database=settings.database,
        params={**settings.startup(), **params},
        tls=settings.tls,
        channel_binding=settings.channel_binding,
    )


_HASHES = {  # by the OID of the signature, RSA and ECDSA; MD5 and SHA-1 count as SHA-256 (RFC 5929)
    bytes.fromhex("2a864886f70d010104"): "sha256",
    bytes.fromhex("2a864886f70d010105"): "sha256",
    bytes.fromhex("2a864886f70d01010b"): "sha256",
    bytes.fromhex("2a864886f70d01010c"): "sha384",
    bytes.fromhex("2a864886f70d01010d"): "sha512",
    bytes.fromhex("2a8648ce3d0401"): "sha256",
    bytes.fromhex("2a8648ce3d040302"): "sha256",
    bytes.fromhex("2a8648ce3d040303"): "sha384",
    bytes.fromhex("2a8648ce3d040304"): "sha512",
}


def certificate_hash(certificate: bytes | None) -> bytes | None:
    """tls-server-end-point (RFC 5929); None where it is not defined, as for Ed25519."""
    try:
        name = None if not certificate else _HASHES.get(_signature_oid(certificate))
    except IndexError:
        return None
    return None if name is None or certificate is None else hashlib.new(name, certificate).digest()


def _signature_oid(der: bytes) -> bytes:
    """Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OID … }, … }."""
    at, _ = _inside(der, 0)
    _, after_tbs = _inside(der, at)
    algorithm, _ = _inside(der, after_tbs)
    start, end = _inside(der, algorithm)
    return der[start:end]


def _inside(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size]), start + size
    return start, start + length


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or a bare host."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")) or port.endswith("]"):
        return address.strip("[]"), DEFAULT_PORT
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidParameter(f"{address} is not host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _with_port(host: str) -> str:
    name, port = split_address(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None


def _matches(host: str, pattern: str) -> bool:
    ip = _ip(host)
    if "/" in pattern and ip is not None:
        return ip in ipaddress.ip_network(pattern, strict=False)
    return fnmatch(host, pattern)


def _is_near(host: str, known: str) -> bool:
    if host == known:
        return True
    ip, given = _ip(host), _ip(known)
    if ip is not None and given is not None:
        if ip.is_loopback and given.is_loopback:
            return True
        near = ipaddress.ip_network(f"{given}/{24 if given.version == 4 else 64}", strict=False)
        return given.is_private and ip.version == given.version and ip in near
    domain = known.partition(".")[2]
    return ip is None and given is None and "." in domain and host.partition(".")[2] == domain
