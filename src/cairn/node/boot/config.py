"""The configuration of one instance: flag beats environment beats file beats default."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from cairn.model.errors import ConfigProblem
from cairn.model.members.topology import Tier
from cairn.net.peers import split_address
from cairn.net.tls import PeerTls
from cairn.node.boot.config_file import dig, read_file, whole
from cairn.node.boot.secret_files import read_secret

PEER_PORT, PG_PORT, HTTP_PORT = 3301, 4327, 5327

#: flag (without dashes) → (environment variable, key in the YAML file)
SOURCES: dict[str, tuple[str, str]] = {
    "cluster-name": ("CAIRN_CLUSTER_NAME", "cluster.name"),
    "instance-name": ("CAIRN_INSTANCE_NAME", "instance.name"),
    "instance-dir": ("CAIRN_INSTANCE_DIR", "instance.instance_dir"),
    "listen": ("CAIRN_LISTEN", "instance.iproto.listen"),
    "advertise": ("CAIRN_ADVERTISE", "instance.iproto.advertise"),
    "pg-listen": ("CAIRN_PG_LISTEN", "instance.pg.listen"),
    "pg-advertise": ("CAIRN_PG_ADVERTISE", "instance.pg.advertise"),
    "http-listen": ("CAIRN_HTTP_LISTEN", "instance.http.listen"),
    "peer": ("CAIRN_PEER", "instance.peer"),
    "tier": ("CAIRN_TIER", "instance.tier"),
    "replicaset-name": ("CAIRN_REPLICASET_NAME", "instance.replicaset_name"),
    "failure-domain": ("CAIRN_FAILURE_DOMAIN", "instance.failure_domain"),
    "init-replication-factor": (
        "CAIRN_INIT_REPLICATION_FACTOR",
        "cluster.default_replication_factor",
    ),
    "service-password-file": ("CAIRN_SERVICE_PASSWORD_FILE", "instance.service_password_file"),
    "admin-password-file": ("CAIRN_ADMIN_PASSWORD_FILE", "instance.admin_password_file"),
    "tls-cert": ("CAIRN_TLS_CERT", "instance.pg.tls.cert_file"),
    "tls-key": ("CAIRN_TLS_KEY", "instance.pg.tls.key_file"),
    "tls-ca": ("CAIRN_TLS_CA", "instance.pg.tls.ca_file"),
    "peer-tls-cert": ("CAIRN_PEER_TLS_CERT", "instance.iproto.tls.cert_file"),
    "peer-tls-key": ("CAIRN_PEER_TLS_KEY", "instance.iproto.tls.key_file"),
    "peer-tls-ca": ("CAIRN_PEER_TLS_CA", "instance.iproto.tls.ca_file"),
    "log-level": ("CAIRN_LOG_LEVEL", "instance.log.level"),
    "boot-timeout": ("CAIRN_BOOT_TIMEOUT", "instance.boot_timeout"),
    "hang-timeout": ("CAIRN_HANG_TIMEOUT", "instance.hang_timeout"),
}


class InstanceConfig(msgspec.Struct, frozen=True):
    """Everything `cairn run` was told, checked and completed."""

    cluster_name: str = "demo"
    instance_name: str | None = None
    instance_dir: Path = Path()
    listen: str = f"127.0.0.1:{PEER_PORT}"
    advertise: str = f"127.0.0.1:{PEER_PORT}"
    pg_listen: str = f"127.0.0.1:{PG_PORT}"
    pg_advertise: str = f"127.0.0.1:{PG_PORT}"
    http_listen: str = ""
    peers: tuple[str, ...] = ()
    tier: str = "default"
    replicaset_name: str | None = None
    failure_domain: dict[str, str] = {}
    tiers: tuple[Tier, ...] = (Tier("default", 1, is_default=True),)
    service_secret: bytes = b""
    admin_password: str | None = None
    tls_cert: str = ""  # with a certificate, PostgreSQL clients must encrypt
    tls_key: str = ""
    tls_ca: str = ""  # with it, they must also show a certificate that it has signed
    peer_tls_cert: str = ""  # with all three, instances encrypt, and show each other certificates
    peer_tls_key: str = ""
    peer_tls_ca: str = ""
    log_level: str = "info"
    boot_timeout_s: float = 7200.0
    hang_timeout_s: float = 60.0  # 0: one that stands still is left alone

    def __repr__(self) -> str:  # secrets never reach a log
        return f"InstanceConfig({self.instance_name!r}, {self.advertise})"


def with_port(address: str, default: int) -> str:
    """`host` → `host:default`; `host:port` as it is."""
    address = address.strip()
    if not address:
        raise ConfigProblem("an address must not be empty")
    if re.search(r":\d+$", address) and not (address.count(":") > 1 and "]" not in address):
        port = int(address.rpartition(":")[2])
        if not 0 < port < 65536:
            raise ConfigProblem(f"{address}: a port is 1 to 65535")
        return address
    if ":" in address and not address.startswith("["):
        raise ConfigProblem(f"{address} is no address: write host:port")
    return f"{address}:{default}"


def parse_failure_domain(text: str | Mapping[str, Any]) -> dict[str, str]:
    """`K=V,K=V` in capitals, as comparisons ignore case."""
    if isinstance(text, Mapping):
        return {str(key).upper(): str(value).upper() for key, value in text.items()}
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise ConfigProblem(f"--failure-domain {part!r}: write KEY=VALUE,KEY=VALUE")
        if key.upper() in found:
            raise ConfigProblem(f"--failure-domain names {key.upper()} twice")
        found[key.upper()] = value.upper()
    return found


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> InstanceConfig:
    """One configuration from flags, environment and file; a problem names its source."""
    known = (key for _, key in SOURCES.values())
    file = read_file(flags.get("config") or environment.get("CAIRN_CONFIG"), known)

    def pick(flag: str) -> Any:
        variable, key = SOURCES[flag]
        if flags.get(flag) is not None:
            return flags[flag]
        if environment.get(variable):
            return environment[variable]
        return dig(file, key)

    name = pick("instance-name")
    listen = with_port(str(pick("listen") or f"127.0.0.1:{PEER_PORT}"), PEER_PORT)
    advertise = with_port(str(pick("advertise") or listen), PEER_PORT)
    pg_listen = with_port(str(pick("pg-listen") or f"127.0.0.1:{PG_PORT}"), PG_PORT)
    pg_advertise = with_port(str(pick("pg-advertise") or pg_listen), PG_PORT)
    http = pick("http-listen")
    directory = pick("instance-dir") or (f"./{name}" if name else "./cairn-instance")
    if file and flags.get("init-replication-factor") is not None:
        raise ConfigProblem("--init-replication-factor and --config exclude each other")
    if file and dig(file, "cluster.name") is None:
        raise ConfigProblem("cluster.name is missing in the file given by --config")
    tiers = _tiers(file, pick("init-replication-factor"))
    tier = str(pick("tier") or "default")
    if bool(pick("tls-cert")) != bool(pick("tls-key")):
        raise ConfigProblem("--tls-cert and --tls-key go together: one of them is missing")
    secret = _secret(pick("service-password-file"), environment)
    level = str(pick("log-level") or "info").lower()
    if level not in ("debug", "info", "warning", "error"):
        raise ConfigProblem(f"--log-level {level}: debug, info, warning or error")
    return InstanceConfig(
        cluster_name=str(pick("cluster-name") or "demo"),
        instance_name=None if name is None else str(name),
        instance_dir=Path(directory).absolute(),
        listen=listen,
        advertise=advertise,
        pg_listen=pg_listen,
        pg_advertise=pg_advertise,
        http_listen=with_port(str(http), HTTP_PORT) if http else "",
        peers=_peers(pick("peer"), advertise),
        tier=tier,
        replicaset_name=pick("replicaset-name"),
        failure_domain=parse_failure_domain(pick("failure-domain") or {}),
        tiers=tiers,
        service_secret=secret,
        admin_password=_admin_password(pick("admin-password-file"), environment),
        tls_cert=str(pick("tls-cert") or ""),
        tls_key=str(pick("tls-key") or ""),
        tls_ca=str(pick("tls-ca") or ""),
        peer_tls_cert=str(pick("peer-tls-cert") or ""),
        peer_tls_key=str(pick("peer-tls-key") or ""),
        peer_tls_ca=str(pick("peer-tls-ca") or ""),
        log_level=level,
        boot_timeout_s=_number(pick("boot-timeout") or 7200, "--boot-timeout"),
        hang_timeout_s=_hang_timeout(pick("hang-timeout")),
    )


def check_open(config: InstanceConfig) -> None:
    """Whoever reaches the peers' port and knows the secret is a member; without one, anybody.

    Certificates of an own authority keep strangers out as well.
    """
    host, _ = split_address(config.listen)
    if not config.service_secret and not config.peer_tls_cert and not _is_loopback(host):
        raise ConfigProblem(
            f"--listen {config.listen} can be reached from other machines, and there is no service "
            "password: anybody could join the cluster and read it",
            hint="make one and give it to every instance: openssl rand -hex 32 > service.password; "
            "chmod 600 service.password; cairn run --service-password-file service.password …",
        )


def peer_tls(config: InstanceConfig) -> PeerTls | None:
    """None without certificates for the traffic between instances; a problem names the flag."""
    files = (config.peer_tls_cert, config.peer_tls_key, config.peer_tls_ca)
    return PeerTls(*files) if any(files) else None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _number(value: Any, flag: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigProblem(f"{flag} {value!r} is no number of seconds") from None


def _hang_timeout(value: Any) -> float:
    limit_s = _number(60 if value is None else value, "--hang-timeout")
    if limit_s != 0 and not 5 <= limit_s < math.inf:
        raise ConfigProblem(f"--hang-timeout {value}: 5 seconds or more, or 0 for never")
    return limit_s


def _peers(value: Any, advertise: str) -> tuple[str, ...]:
    if value is None:
        return (advertise,)
    words = value if isinstance(value, list) else str(value).split(",")
    found = tuple(with_port(str(word), PEER_PORT) for word in words if str(word).strip())
    if not found:
        raise ConfigProblem("--peer names no address")
    return found


def _tiers(file: dict[str, Any], factor: Any) -> tuple[Tier, ...]:
    default_factor = _factor(factor if factor is not None else 1, "--init-replication-factor")
    given = dig(file, "cluster.default_bucket_count")
    buckets = whole(3000 if given is None else given, "cluster.default_bucket_count", 0)
    listed = dig(file, "cluster.tier") or {"default": {}}
    found = []
    for at, (name, options) in enumerate(listed.items()):
        options = {key: value for key, value in (options or {}).items() if value is not None}
        source = f"cluster.tier.{name}"
        mode = str(options.get("replication_mode", "async"))
        if mode not in ("async", "sync"):
            raise ConfigProblem(f"{source}.replication_mode: async or sync, not {mode}")
        can_vote = options.get("can_vote", True)
        if not isinstance(can_vote, bool):
            raise ConfigProblem(f"{source}.can_vote: true or false, not {can_vote}")
        factor = options.get("replication_factor", default_factor)
        found.append(
            Tier(
                name=str(name),
                replication_factor=_factor(factor, f"{source}.replication_factor"),
                can_vote=can_vote,
                bucket_count=whole(
                    options.get("bucket_count", buckets), f"{source}.bucket_count", 0
                ),
                is_default=at == 0,
                hash_version=whole(options.get("hash_version", 2), f"{source}.hash_version", 1, 2),
                replication_mode=mode,
            )
        )
    return tuple(found)


def _factor(value: Any, source: str) -> int:
    return whole(value, source, 1, 31)


def _secret(path: Any, environment: Mapping[str, str]) -> bytes:
    if path:
        return read_secret("--service-password-file", str(path)).encode()
    return environment.get("CAIRN_SERVICE_PASSWORD", "").encode()


def _admin_password(path: Any, environment: Mapping[str, str]) -> str | None:
    if path:
        return read_secret("--admin-password-file", str(path))
    return environment.get("CAIRN_ADMIN_PASSWORD")


def default_file() -> str:
    """What `cairn config default` prints."""
    return DEFAULT_FILE


DEFAULT_FILE = f"""\
# Configuration of one Cairn instance: cairn run --config cairn.yaml
# A flag beats an environment variable (CAIRN_…), which beats this file.
cluster:
  name: demo                        # --cluster-name: must be the same everywhere
  default_replication_factor: 1     # --init-replication-factor; used when the cluster is made
  default_bucket_count: 3000
  tier:                             # named groups of replicasets; the first is the default
    default:
      replication_factor: 1         # copies of each row, 1 to 31
      can_vote: true                # whether its instances may vote in Raft
      bucket_count: 3000            # 0: no sharded data in this tier
      replication_mode: async       # async or sync
instance:
  name: null                        # --instance-name; given by the leader when absent
  instance_dir: null                # --instance-dir; ./<name> when absent
  peer: ["127.0.0.1:{PEER_PORT}"]         # --peer: any two lists must share an entry
  tier: default                     # --tier
  replicaset_name: null             # --replicaset-name
  failure_domain: {{}}                # --failure-domain, for example {{DC: MSK}}
  boot_timeout: 7200                # seconds to wait for the cluster at start
  hang_timeout: 60                  # seconds of standing still until it is restarted; 0: never
  service_password_file: null       # --service-password-file: shared by all instances
  iproto:                           # between instances
    listen: "127.0.0.1:{PEER_PORT}"
    tls: {{}}                         # --peer-tls-cert, …: {{cert_file, key_file, ca_file}}
  pg:
    listen: "127.0.0.1:{PG_PORT}"
    tls: {{}}                         # --tls-cert, …: {{cert_file: …, key_file: …, ca_file: …}}
  http: {{listen: null}}
  log: {{level: info}}
"""

assert os.name == "posix", "Cairn runs on POSIX systems"
