"""Until when a certificate is good. Read from its bytes: `ssl` tells it of trusted ones only."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cairn.cli.doctor.findings import BAD, GOOD, WARNING, Finding

SOON = timedelta(days=30)
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0


def good_until(der: bytes) -> datetime:
    """`notAfter`; ValueError for what is no certificate."""
    try:
        [(_, certificate)] = list(_parts(der))[:1]
        [(_, signed)] = list(_parts(certificate))[:1]
        fields = [part for part in _parts(signed) if part[0] != _VERSION]
        _, (kind, text) = list(_parts(fields[3][1]))  # serial, algorithm, issuer, validity
    except (ValueError, IndexError):
        raise ValueError("not a certificate") from None
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(kind)
    if form is None:
        raise ValueError("not a certificate")
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            many = size & 0x7F
            size = int.from_bytes(data[at : at + many], "big")
            at += many
        if at + size > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + size]
        at += size


def judged(where: str, der: bytes, now: datetime) -> Finding:
    try:
        end = good_until(der)
    except ValueError as problem:
        return Finding(BAD, where, f"the certificate cannot be read: {problem}", "Make a new one.")
    left = end - now
    if end < now:
        return Finding(BAD, where, f"the certificate has expired {_told(-left)} ago", RENEW)
    if left < SOON:
        return Finding(WARNING, where, f"the certificate expires in {_told(left)}", RENEW)
    return Finding(GOOD, where, f"the certificate is good for {_told(left)}")


def _told(time: timedelta) -> str:
    """Hours count while they are few: a cluster that stops tonight has no "0 days"."""
    size, word = (time.days, "day") if time.days else (time.seconds // 3600, "hour")
    return f"{size} {word}{'' if size == 1 else 's'}"


RENEW = "Put a new one in its place; then `cairn restart` for clients', nothing more for peers'."


def of_file(path: str) -> bytes:
    """The first certificate of a PEM file."""
    text = Path(path).read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    at = text.find(begin)
    if at < 0 or end not in text:
        raise ValueError("no certificate in it")
    return ssl.PEM_cert_to_DER_cert(text[at : text.index(end, at) + len(end)])
