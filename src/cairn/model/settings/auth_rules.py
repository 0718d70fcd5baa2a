"""Who may log in from where, and how: rules as in PostgreSQL's pg_hba.conf, in one setting.

`hostssl admin 10.0.0.0/8 scram-sha-256; host all 127.0.0.1/32 scram-sha-256; host all all reject`

The first rule that fits decides. Where there are rules and none fits, the answer is no.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from cairn.model.errors import InvalidParameter

KINDS = ("host", "hostssl", "hostnossl")
METHODS = ("scram-sha-256", "reject")
SHAPE = "host|hostssl|hostnossl USER[,USER]|all ADDRESS|all scram-sha-256|reject"


class Rule(NamedTuple):
    kind: str
    users: tuple[str, ...]  # empty: all
    network: IPv4Network | IPv6Network | None  # None: all
    method: str

    def fits(self, user: str, address: str, *, is_encrypted: bool) -> bool:
        if self.kind == "hostssl" and not is_encrypted:
            return False
        if self.kind == "hostnossl" and is_encrypted:
            return False
        if self.users and user not in self.users:
            return False
        return self.network is None or _is_in(address, self.network)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Every rule of the setting, or an error that names the one that is none."""
    return tuple(_rule(part) for part in text.split(";") if part.strip())


def admits(
    rules: tuple[Rule, ...], user: str, address: str, *, is_encrypted: bool, is_admin: bool
) -> bool:
    """The admin gets in from the machine itself: nobody can lock out everybody."""
    if not rules or (is_admin and _is_loopback(address)):
        return True
    for rule in rules:
        if rule.fits(user, address, is_encrypted=is_encrypted):
            return rule.method != "reject"
    return False


def _rule(text: str) -> Rule:
    words = text.split()
    if len(words) != 4:
        raise _wrong(text, f"a rule is: {SHAPE}")
    kind, users, address, method = words
    if kind not in KINDS:
        raise _wrong(text, f"it begins with one of {', '.join(KINDS)}")
    if method not in METHODS:
        raise _wrong(text, f"it ends with one of {', '.join(METHODS)}")
    try:
        network = None if address == "all" else ip_network(address)
    except ValueError as problem:
        raise _wrong(text, f"{problem}") from None
    named = () if users == "all" else tuple(name for name in users.split(",") if name)
    return Rule(kind, named, network, method)


def _wrong(rule: str, why: str) -> InvalidParameter:
    return InvalidParameter(f"invalid value for 'auth_rules': {rule.strip()!r}", hint=why)


def _is_in(address: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)  # ::ffff:10.0.0.1 is 10.0.0.1
    return (mapped or found) in network


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
