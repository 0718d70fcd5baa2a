"""A running cluster: what the console's banner knows, and what a person has to look for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cairn.cli.doctor.certificates import judged
from cairn.cli.doctor.findings import BAD, GOOD, REMARK, WARNING, Finding
from cairn.cli.steering.spreading import wished
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.settings.parameters import SETTINGS
from cairn.web import health

LAG_ROWS = 10_000
_LEVELS = {
    health.CRITICAL: BAD,
    health.WARNING: WARNING,
    health.INFO: REMARK,
    health.GOOD: GOOD,
}


def look_at(target: Target) -> list[Finding]:
    talk = Talk(target)
    try:
        status = talk.call("CALL cairn_status()")
        settings = dict(talk.rows("SELECT key, value FROM _pico_db_config"))
        versions = dict(talk.rows("SELECT name, picodata_version FROM _pico_instance"))
    finally:
        talk.close()
    name = str(status["cluster"]["name"])
    return [
        *(
            Finding(_LEVELS[each.level], name, each.title, each.action)
            for each in health.judge(status, {})
        ),
        *_shape(name, status),
        *_lags(status),
        *_versions(name, versions),
        *surprises(name, settings, status),
        *_ways_in(target, status),
    ]


def _shape(name: str, status: dict[str, Any]) -> list[Finding]:
    found = []
    voters = len(status["raft"]["voters"])
    if voters < 3:
        text = f"{voters} of its instances vote: if one dies, the cluster may stand still"
        found.append(Finding(WARNING, name, text, "Have three instances or more."))
    for tier in status["tiers"]:
        factor, where = tier["replication_factor"], f"tier {tier['name']}"
        rows = [row for row in status["instances"] if row["tier"] == tier["name"]]
        if factor == 1 and rows:
            text = "there is one copy of each row: a lost disk loses rows"
            way = f"`cairn tier set {tier['name']} --replication-factor 3`, and more instances."
            found.append(Finding(WARNING, where, text, way))
        if factor == 2 and tier["replication_mode"] == "sync":
            text = "sync with two copies: one dead replica stops the writes"
            found.append(Finding(WARNING, where, text, "Use replication factor 3 with sync."))
        domains = [str(sorted(row["failure_domain"].items())) for row in rows]
        if len(rows) > 1 and rows[0]["failure_domain"] and len(set(domains)) == 1:
            text = "all its instances stand in the same failure domain"
            found.append(Finding(REMARK, where, text, "Start some with another --failure-domain."))
    wanted, places = wished(status)
    if wanted:
        crowded = places[wanted[0].before]
        text = f"{crowded} has more masters than it must: it does more of the work than others"
        found.append(
            Finding(REMARK, name, text, "`cairn switchover --spread` shows which to move.")
        )
    return found


def _lags(status: dict[str, Any]) -> list[Finding]:
    return [
        Finding(
            WARNING,
            row["name"],
            f"it is {row['lag_rows']} rows behind its master",
            "Look at its disk, its CPU and its network; it lacks these rows if the master dies.",
        )
        for row in status["instances"]
        if (row["lag_rows"] or 0) > LAG_ROWS
    ]


def _versions(name: str, versions: dict[str, str]) -> list[Finding]:
    if len(set(versions.values())) < 2:
        return []
    told = ", ".join(f"{each} {version}" for each, version in sorted(versions.items()))
    return [Finding(WARNING, name, f"instances run several versions: {told}", "End the upgrade.")]


def surprises(name: str, settings: dict[str, Any], status: dict[str, Any]) -> list[Finding]:
    """Settings that somebody has changed once, and that others stumble over."""

    def value(key: str) -> Any:
        return settings.get(key, SETTINGS[key])

    def changed(key: str, text: str, level: str = WARNING) -> Finding:
        return Finding(level, key, text, f"ALTER SYSTEM RESET {key}, if it is not meant so.")

    found = []
    timeout = value("governor_auto_offline_timeout")
    if timeout > 30:
        found.append(
            changed("governor_auto_offline_timeout", f"a dead master is noticed after {timeout} s")
        )
    if timeout < 1:
        text = f"whoever is silent for {timeout} s is taken for dead"
        found.append(changed("governor_auto_offline_timeout", text))
    if not value("scrub_interval"):
        found.append(changed("scrub_interval", "damage of files is never looked for"))
    if not value("audit_log_size_max"):
        found.append(changed("audit_log_size_max", "there is no audit log", REMARK))
    if not value("atomic_blocks"):
        text = "each statement of BEGIN … COMMIT commits by itself"
        found.append(changed("atomic_blocks", text))
    if value("read_preference") != "leader":
        text = f"reads go to {value('read_preference')}: they may be a moment behind"
        found.append(changed("read_preference", text, REMARK))
    if value("replication_graph"):
        text = f"replicas follow each other by hand: {value('replication_graph')}"
        found.append(changed("replication_graph", text, REMARK))
    addresses = [row["addresses"]["pg"] or "" for row in status["instances"]]
    if not value("auth_rules") and not all(map(_is_here, addresses)):
        text = "everybody may try to log in from everywhere"
        way = "ALTER SYSTEM SET auth_rules = '…', see docs/how-to-secure.md."
        found.append(Finding(REMARK, "auth_rules", text, way))
    return found


def _is_here(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]"))


def _ways_in(target: Target, status: dict[str, Any]) -> list[Finding]:
    """Can clients reach each instance, and for how long are certificates good?"""
    found = []
    now = datetime.now(UTC)
    for row in status["instances"]:
        address, where = row["addresses"]["pg"], f"{row['name']} at {row['addresses']['pg']}"
        if not address or not row["answers"]:
            continue
        if not target.settings.allows(address):
            how = f"Put the host into the DSN, or allow_hosts={address.rpartition(':')[0]}."
            found.append(Finding(REMARK, where, "not asked: it is no host of the DSN", how))
            continue
        try:
            talk = Talk(target.at(address))
        except TalkProblem as problem:
            text = f"clients cannot come in: {problem}"
            way = "Look at --pg-listen, --pg-advertise and the network."
            found.append(Finding(BAD, where, text, way))
            continue
        try:
            certificate = talk.certificate()
        finally:
            talk.close()
        if certificate is not None:
            found.append(judged(where, certificate, now))
        elif not _is_here(address):
            text = "clients are not encrypted"
            found.append(Finding(WARNING, where, text, "--tls-cert and --tls-key of cairn run."))
    return found
