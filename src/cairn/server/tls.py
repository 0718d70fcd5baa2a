"""TLS for PostgreSQL clients: the context from files, the hash for SCRAM, the upgrade itself."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path
from typing import cast

from cairn.model.errors import ConfigProblem
from cairn.net.tls import first_certificate, no_passphrase, wrong_pair
from cairn.node.boot.config import InstanceConfig

HANDSHAKE_S = 10.0

#: DER of the signature algorithms for which all clients, ours too, bind to SHA-256 (RFC 5929).
_SHA256_SIGNATURES = (
    bytes.fromhex("06092a864886f70d01010b"),  # sha256WithRSAEncryption
    bytes.fromhex("06082a8648ce3d040302"),  # ecdsa-with-SHA256
)


class ServerTls:
    """What every session of a listener shares."""

    def __init__(self, context: ssl.SSLContext, binding: bytes | None) -> None:
        self.context = context
        self.binding = binding  # hash of our certificate; None: channels cannot be bound

    async def upgrade(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """Shake hands as the server; what a client says in clear meanwhile ends the connection."""
        loop = asyncio.get_running_loop()
        upgraded = await loop.start_tls(
            transport,
            protocol,
            self.context,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
        )
        return cast(asyncio.Transport, upgraded)


def from_config(config: InstanceConfig) -> ServerTls | None:
    """None without --tls-cert and --tls-key; a problem names the flag."""
    if not config.tls_cert and not config.tls_key:
        if config.tls_ca:
            raise ConfigProblem("--tls-ca needs --tls-cert and --tls-key")
        return None
    if not config.tls_cert or not config.tls_key:
        missing = "--tls-key" if config.tls_cert else "--tls-cert"
        raise ConfigProblem(f"--tls-cert and --tls-key go together: {missing} is missing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for flag, path in (("--tls-cert", config.tls_cert), ("--tls-key", config.tls_key)):
        if not Path(path).is_file():
            raise ConfigProblem(f"{flag} {path}: there is no such file")
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, password=no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as problem:
        why = wrong_pair(config.tls_cert, config.tls_key, problem)
        raise ConfigProblem(
            f"--tls-cert {config.tls_cert}, --tls-key {config.tls_key}: {why}"
        ) from None
    if config.tls_ca:
        _ask_clients_for_certificates(context, config.tls_ca)
    return ServerTls(context, end_point_hash(config.tls_cert))


def _ask_clients_for_certificates(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as problem:
        raise ConfigProblem(f"--tls-ca {path}: {problem}") from None
    context.verify_mode = ssl.CERT_REQUIRED


def end_point_hash(certificate_file: str) -> bytes | None:
    """`tls-server-end-point` of the first certificate; None unless it is signed with SHA-256."""
    certificate = first_certificate(certificate_file)
    if not any(algorithm in certificate for algorithm in _SHA256_SIGNATURES):
        return None
    return hashlib.sha256(certificate).digest()
