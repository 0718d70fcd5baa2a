"""TLS between instances: both sides show a certificate of the cluster's own authority.

Whoever dials checks that the certificate is made for the host that it dialled. Contexts are made
anew when a file has changed, so certificates can be exchanged while instances run; links that are
open keep what they were opened with. The proof of the service password covers both certificates
(`binding`), so it is worth nothing to somebody in the middle.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
from pathlib import Path

from cairn.model.errors import ConfigProblem

log = logging.getLogger("cairn.net")
_FLAGS = ("--peer-tls-cert", "--peer-tls-key", "--peer-tls-ca")


class PeerContext(ssl.SSLContext):
    """Knows the certificate that it shows."""

    own = b""


class PeerTls:
    """The three files, and the contexts made of them."""

    def __init__(self, cert: str, key: str, ca: str) -> None:
        self._files = (cert, key, ca)
        for flag, path in zip(_FLAGS, self._files, strict=True):
            if not path:
                raise ConfigProblem(f"{', '.join(_FLAGS)} go together: {flag} is missing")
            if not Path(path).is_file():
                raise ConfigProblem(f"{flag} {path}: there is no such file")
        self._seen = self._state()
        self.dialling, self.listening = self._made()

    def is_changed(self) -> bool:
        """Look at the files; True: there are new contexts. With bad files the old ones stay."""
        found = self._state()
        if found == self._seen:
            return False
        self._seen = found
        try:
            self.dialling, self.listening = self._made()
        except ConfigProblem as problem:
            log.error("the certificates in use stay as they are: %s", problem)
            return False
        log.info("new certificates between instances are in use")
        return True

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        """What tells one content of a file from the next; zeros while one is being replaced."""
        found = []
        for path in self._files:
            try:
                seen = os.stat(path)
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found)

    def _made(self) -> tuple[PeerContext, PeerContext]:
        return self._context(ssl.PROTOCOL_TLS_CLIENT), self._context(ssl.PROTOCOL_TLS_SERVER)

    def _context(self, side: int) -> PeerContext:
        cert, key, ca = self._files
        context = PeerContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # all instances are ours: nothing older
        try:
            context.load_cert_chain(cert, key, password=no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as problem:
            raise ConfigProblem(
                f"--peer-tls-cert {cert}, --peer-tls-key {key}: {wrong_pair(cert, key, problem)}"
            ) from None
        try:
            context.load_verify_locations(ca)
        except (ssl.SSLError, OSError) as problem:
            raise ConfigProblem(f"--peer-tls-ca {ca}: {problem}") from None
        context.verify_mode = ssl.CERT_REQUIRED
        context.own = first_certificate(cert)
        return context


def binding(shaken: ssl.SSLObject) -> bytes:
    """Hashes of both certificates, the listener's first: the same on both sides."""
    context = shaken.context
    own = context.own if isinstance(context, PeerContext) else b""
    other = shaken.getpeercert(binary_form=True) or b""
    pair = (own, other) if shaken.server_side else (other, own)
    return b"".join(hashlib.sha256(each).digest() for each in pair)


def first_certificate(path: str) -> bytes:
    """DER of the certificate that a file of PEM begins with: the one that is shown."""
    text = Path(path).read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[text.index(begin) : text.index(end) + len(end)])


def wrong_pair(cert: str, key: str, problem: Exception) -> str:
    """In words: OpenSSL says only "PEM lib" when the two are swapped."""
    texts = [Path(path).read_bytes() for path in (cert, key) if Path(path).is_file()]
    if len(texts) == 2:
        has_cert, has_key = b"-BEGIN CERTIFICATE-" in texts[0], b"PRIVATE KEY-" in texts[1]
        if not has_cert and b"-BEGIN CERTIFICATE-" in texts[1]:
            return "the first has no certificate and the second has one: are they swapped?"
        if not has_cert or not has_key:
            return "no certificate is in the first" if not has_cert else "no key is in the second"
    if getattr(problem, "reason", "") == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    return str(problem)


def no_passphrase() -> str:
    """Without a callback OpenSSL would ask for a passphrase on the terminal."""
    raise ValueError("the key is encrypted; give one without a passphrase")
