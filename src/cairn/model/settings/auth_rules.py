"""Who may log in from where, and how: rules as in PostgreSQL's pg_hba.conf, in one setting.

`hostssl admin 10.0.0.0/8 scram-sha-256; host all 127.0.0.1/32 scram-sha-256; host all all reject`

The first rule that fits decides. Where there are rules and none fits, the answer is no.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import NamedTuple

from cairn.model.errors import InvalidParameter

KINDS = ("host", "hostssl", "hostnossl")
METHODS = ("scram-sha-256", "reject")
_MAPPED = IPv6Network("::ffff:0:0/96")  # addresses of IPv4, as IPv6 spells them
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
    if not rules or (is_admin and is_loopback(address)):
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
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        raise _wrong(text, "write addresses of IPv4 as such: 10.0.0.0/8")  # it would fit nobody
    named = () if users == "all" else tuple(users.split(","))
    if "" in named:
        raise _wrong(text, "a user's name is missing")  # without any it would be for all
    return Rule(kind, named, network, method)


def _wrong(rule: str, why: str) -> InvalidParameter:
    return InvalidParameter(f"invalid value for 'auth_rules': {rule.strip()!r}", hint=why)


def _is_in(address: str, network: IPv4Network | IPv6Network) -> bool:
    found = _read(address)
    return found is not None and found in network


def is_loopback(address: str) -> bool:
    """Whether it is this machine itself."""
    found = _read(address)
    return found is not None and found.is_loopback


def _read(address: str) -> IPv4Address | IPv6Address | None:
    """::ffff:10.0.0.1 is 10.0.0.1, as a listener for both kinds tells it."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
