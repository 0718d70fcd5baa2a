"""The report as one self-contained HTML page: plots drawn as SVG, no script, no network."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Any

from cairn.spark.report.analytics import Findings
from cairn.spark.report.histories import UNRECORDED
from cairn.spark.report.plots import bars, cells, lanes, legend, segments, strip
from cairn.spark.report.words import in_bytes, in_time, table_of

_STATES = {
    "Online": "ok", "Offline": "bad", "starting": "warn", UNRECORDED: "gap", "Expelled": "off",
    "Gone": "off",
}  # fmt: skip
_ENOUGH = 5  # rows per bucket on the average, before anything is said of skew
_SLOWEST = 10
_CSS = """
:root{--paper:#fcfcfa;--ink:#24292f;--dim:#6b7280;--line:#e3e3de;--card:#f1f1ec;--ok:#4f9a6b;
--bad:#d0443e;--warn:#d9a93a;--off:#a8a8a8;--gap:#8a2f6b;--cold:244,243,238;--hot:#174e79;--empty:#eeeee8;
--c0:#2f6f9f;--c1:#d08b2c;--c2:#5a9e6f;--c3:#9b5fa5;--c4:#b5524d;--c5:#4d8f97;--c6:#8a7a3b;
--c7:#6b6f8a}
@media (prefers-color-scheme:dark){:root{--paper:#16181c;--ink:#e4e6ea;--dim:#969ca8;
--line:#31353d;--card:#22262d;--hot:#7cc0f2;--empty:#22262d;--ok:#5fb07d;--bad:#e5655f;
--gap:#c86aa8;
--c0:#5c9fd0;--c1:#dda24e;--c2:#74b98a;--c3:#b981c2;--c4:#cf7570;--c5:#6bb0b8;--c6:#b3a25a;
--c7:#9296b4}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--paper)}
h1{font-size:1.6rem;margin:0} h2{font-size:1.15rem;margin:2.4rem 0 .6rem;
overflow-wrap:anywhere}
h3{font-size:.95rem;margin:1.2rem 0 .4rem} .dim{color:var(--dim)} p{margin:.4rem 0}
.wide{overflow-x:auto} table{border-collapse:collapse;font-size:13px;margin:.5rem 0}
td,th{padding:.25rem 1.6rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);
white-space:nowrap} th{color:var(--dim);font-weight:500} td.n,th.n{text-align:right}
svg{display:block;width:100%;min-width:48rem;height:auto} svg text{font:12px system-ui,sans-serif;
fill:var(--ink)} svg text.dim{fill:var(--dim)} svg line{stroke:var(--line)}
.cards{display:flex;gap:.8rem;flex-wrap:wrap;margin-top:1rem}
.card{background:var(--card);padding:.6rem 1.1rem;border-radius:6px;min-width:6.5rem}
.card b{display:block;font-size:1.4rem} .key{display:inline-block;width:.8em;height:.8em;
border-radius:2px;margin:0 .35em 0 .9em} .key:first-child{margin-left:0}
svg.field{min-width:0}
@media (max-width:40rem){body{margin:1rem auto;padding:0 .8rem} h1{font-size:1.35rem}
svg{min-width:36rem} svg text{font-size:17px}
.cards{gap:.5rem} .card{flex:1 1 40%;padding:.5rem .8rem}
td,th{padding-right:1rem} .long{white-space:normal;min-width:14rem}}
"""


def page(found: Findings) -> str:
    parts = [
        f"<h1>{_title(found)}</h1><p class=dim>{escape(found.cluster)} · "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>",
        _cards(found),
        "<p class=dim>Rest the pointer on a bar or a cell to see its numbers.</p>",
        "<h2>Availability</h2>" + availability(found),
        "<h2>Masters and failovers</h2><p class=dim>Who could write in each replicaset.</p>"
        + masters(found),
        "<h2>Raft leadership</h2><p class=dim>Each new term is an election.</p>"
        + leadership(found),
        "<h2>Buckets by replicaset</h2><p class=dim>Which of the buckets each one serves now.</p>"
        + ownership(found)
        + moves(found),
        "<h2>Lag of replicas</h2><p class=dim>How far each is behind whom it follows, now.</p>"
        + lags(found),
        "<h2>What took long</h2><p class=dim>Operations of the governor's queue and moves of "
        "buckets, as far as their history is kept.</p>" + slow(found),
        *(f"<h2>Table {escape(name)}</h2>{table_skew(found, name)}" for name in found.skew),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f"<title>{_title(found)}</title>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<style>{_CSS}</style></head><body>{''.join(parts)}"
        "<p class=dim>Ordered by Raft position; times are the proposers' clocks, to the second."
        "</p></body></html>\n"
    )


def _title(found: Findings) -> str:
    return escape(f"Cluster {found.cluster_name}" if found.cluster_name else "Cluster report")


def _cards(found: Findings) -> str:
    instances = {row["instance_uuid"] for row in found.intervals}
    rows = sum(count for skew in found.skew.values() for _, count, _ in skew)
    moved = sum(row["buckets"] for row in found.moves)
    facts = [
        (len(instances), "instances seen"),
        (len({row["replicaset"] for row in found.ownership}), "replicasets"),
        (len(found.failovers), "changes of master"),
        (f"{moved:,}", "buckets moved"),
        (f"{rows:,}", "rows"),
    ]
    cards = "".join(f"<div class=card><b>{value}</b>{label}</div>" for value, label in facts)
    return f"<div class=cards>{cards}</div>"


def _name(found: Findings, uuid: str | None) -> str:
    return found.names.get(uuid or "", (uuid or "—")[:8])


def _span(found: Findings) -> tuple[datetime, datetime]:
    """From the first event to now."""
    begin = min(row["ts"] for row in found.intervals)
    now = datetime.now(UTC)
    now = now if begin.tzinfo is not None else now.replace(tzinfo=None)
    return begin, max([row["until"] or row["ts"] for row in found.intervals] + [now])


# --- who was there --------------------------------------------------------------------------------


def availability(found: Findings) -> str:
    """One lane for each instance: what it was, from when to when."""
    if not found.intervals:
        return "<p class=dim>No events.</p>"
    begin, end = _span(found)
    ordered = sorted(
        {row["instance_uuid"] for row in found.intervals}, key=lambda u: _name(found, u)
    )
    drawn = {uuid: [] for uuid in ordered}  # type: dict[str, list[tuple[Any, ...]]]
    joined: set[str] = set()
    for row in found.intervals:
        uuid = row["instance_uuid"]
        is_known = row["state"] in _STATES and (uuid in joined or row["state"] != "Offline")
        word = row["state"] if is_known else "starting"  # who has not joined yet is not missing
        if row["state"] == "Online":
            joined.add(uuid)
        title = f"{row['state']} from {row['ts']:%H:%M:%S} at {row['term']}:{row['index']}"
        drawn[row["instance_uuid"]].append((row["ts"], row["until"] or end, _STATES[word], title))
    plot = lanes([(_name(found, uuid), drawn[uuid]) for uuid in ordered], begin, end)
    words = {state: colour for state, colour in _STATES.items() if state != "Gone"}
    return plot + legend(words) + _unrecorded(found) + _shares(found, end)


def _unrecorded(found: Findings) -> str:
    gaps: dict[tuple[datetime, datetime], list[str]] = {}
    for row in found.intervals:
        if row["state"] == UNRECORDED:
            gaps.setdefault((row["ts"], row["until"]), []).append(
                _name(found, row["instance_uuid"])
            )
    return "".join(
        f"<p>From {begin:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} there was no quorum at "
        f"some time, and nobody recorded since when: {escape(', '.join(sorted(names)))} "
        f"{'is' if len(names) == 1 else 'are'} counted as away for all of it, at most "
        f"{in_time((until - begin).total_seconds())}.</p>"
        for (begin, until), names in sorted(gaps.items())
    )


def _shares(found: Findings, end: datetime) -> str:
    rows = []
    for uuid in dict.fromkeys(row["instance_uuid"] for row in found.intervals):
        mine = [row for row in found.intervals if row["instance_uuid"] == uuid]
        first = next((at for at, row in enumerate(mine) if row["state"] == "Online"), 0)
        spans = [(r["state"], ((r["until"] or end) - r["ts"]).total_seconds()) for r in mine]
        spans = spans[first:]  # joining is no outage
        total = sum(span for _, span in spans) or 1.0
        online = sum(span for state, span in spans if state == "Online")
        outages = sum(state not in ("Online", "Expelled") for state in _words(mine[first:]))
        rows.append((_name(found, uuid), _share(online, total), outages,
                     in_time(total - online), mine[-1]["state"]))  # fmt: skip
    head = ("instance", "online since it joined", "outages", "away in all", "now")
    return table_of(head, sorted(rows), (1, 2, 3))


def _share(part: float, whole: float) -> str:
    """In hundredths of a percent; what is not all of it never looks as if it were."""
    shown = f"{100 * part / whole:.2f}"
    return f"{100 * part / whole:.5f} %" if shown == "100.00" and part < whole else f"{shown} %"


def _words(rows: list[dict[str, Any]]) -> list[str]:
    """States without the steps of coming back."""
    return [
        row["state"]
        for at, row in enumerate(rows)
        if row["state"] == "Online" or at == 0 or rows[at - 1]["state"] == "Online"
    ]


def masters(found: Findings) -> str:
    """Who was master when, in each replicaset."""
    if not found.masters:
        return "<p class=dim>No events.</p>"
    begin, end = _span(found)
    colours = {
        uuid: f"c{at % 8}"
        for at, uuid in enumerate(
            sorted({row["master"] for row in found.masters}, key=lambda u: _name(found, u))
        )
    }
    drawn: dict[str, list[tuple[Any, ...]]] = {}
    for row in found.masters:
        mine = drawn.setdefault(row["replicaset_uuid"], [])
        if mine:
            mine[-1] = (mine[-1][0], row["ts"], *mine[-1][2:])
        title = f"{_name(found, row['master'])} from {row['ts']:%H:%M:%S}"
        mine.append((row["ts"], end, colours[row["master"]], title, _name(found, row["master"])))
    _end_with_their_masters(found, drawn)
    ordered = sorted(drawn, key=lambda uuid: _name(found, uuid))
    plot = lanes([(_name(found, uuid), drawn[uuid]) for uuid in ordered], begin, end)
    if not found.failovers:
        return plot + "<p class=dim>No master was ever replaced.</p>"
    rows = [
        (
            _name(found, row["replicaset_uuid"]),
            f"{_name(found, row['before'])} → {_name(found, row['master'])}",
            f"{row['ts']:%Y-%m-%d %H:%M:%S}",
            "still away" if row["seconds"] is None else in_time(row["seconds"]),
            f"{row['term']}:{row['index']}",
        )
        for row in found.failovers
    ]
    return plot + table_of(("replicaset", "master", "when", "old one away", "position"), rows, (3,))


def _end_with_their_masters(found: Findings, drawn: dict[str, list[tuple[Any, ...]]]) -> None:
    """A replicaset whose last master was expelled has none any more."""
    last = {row["instance_uuid"]: row for row in found.intervals}
    for row in found.masters:
        mine, known = drawn[row["replicaset_uuid"]], last.get(row["master"])
        is_last = mine[-1][0] == row["ts"]
        if is_last and known is not None and known["state"] in ("Expelled", "Gone"):
            mine[-1] = (mine[-1][0], max(known["ts"], row["ts"]), *mine[-1][2:])


def leadership(found: Findings) -> str:
    """Who led Raft when: each new term is an election."""
    if not found.leaders:
        return "<p class=dim>No leader was seen.</p>"
    begin, end = _span(found)
    names = sorted({row["leader"] for row in found.leaders})
    drawn, rows = [], []
    for at, row in enumerate(found.leaders):
        is_last = at + 1 == len(found.leaders)
        since, until = row["since"], end if is_last else found.leaders[at + 1]["since"]
        title = f"{row['leader']} leads term {row['term']} from {since:%H:%M:%S}"
        colour = f"c{names.index(row['leader']) % 8}"
        drawn.append((max(since, begin), max(until, begin), colour, title, row["leader"]))
        span = (until - since).total_seconds()
        rows.append((row["term"], row["leader"], f"{since:%Y-%m-%d %H:%M:%S}", in_time(span),
                     row["events"]))  # fmt: skip
    head = ("term", "leader", "since", "for", "topology events")
    return lanes([("cluster", drawn)], begin, end) + table_of(head, rows, (0, 3, 4))


# --- where things are -----------------------------------------------------------------------------


def ownership(found: Findings) -> str:
    """How many buckets each replicaset has, and where they lie."""
    uuids = sorted({row["replicaset"] for row in found.ownership}, key=lambda u: _name(found, u))
    count = max((row["end"] for row in found.ownership), default=1)
    rows = []
    for at, uuid in enumerate(uuids):
        mine = [row for row in found.ownership if row["replicaset"] == uuid]
        total = sum(row["end"] - row["start"] + 1 for row in mine)
        parts = [
            (row["start"] - 1, row["end"], f"c{at % 8}",
             f"{row['tier']} {row['start']}–{row['end']}") for row in mine
        ]  # fmt: skip
        rows.append((_name(found, uuid), parts, f"{total:,}"))
    return segments(rows, count)


def moves(found: Findings) -> str:
    """Buckets that changed their owner, over time."""
    if not found.moves:
        return "<p class=dim>No bucket was ever moved.</p>"
    begin, end = _span(found)
    seconds = max((end - begin).total_seconds(), 1.0)
    step = max(seconds / 60, 1.0)
    counts = [0] * (int(seconds / step) + 1)
    sums: dict[tuple[str, str], int] = {}
    for row in found.moves:
        size = row["buckets"]
        counts[min(int((row["ts"] - begin).total_seconds() / step), len(counts) - 1)] += size
        way = (_name(found, row["from_replicaset"]), _name(found, row["to_replicaset"]))
        sums[way] = sums.get(way, 0) + size
    plot = strip([(value, f"{value:,} buckets") for value in counts], begin, end)
    top = f"at most {max(counts):,} in {in_time(step)}"
    rows = [(source, target, f"{size:,}") for (source, target), size in sorted(sums.items())]
    return f"<h3>Buckets moved</h3>{plot}<p class=dim>{top}</p>" + table_of(
        ("from", "to", "buckets"), rows, (2,)
    )


def table_skew(found: Findings, table: str) -> str:
    """Rows of every bucket as a field of cells, the skew in numbers, and the hottest keys."""
    known = found.skew[table]
    if not known:
        return "<p class=dim>The table is empty.</p>"
    counts = {bucket: rows for bucket, rows, _ in known}
    sizes = {bucket: size for bucket, _, size in known}
    tier = found.table_tiers[table]
    total = max(max(counts), found.bucket_counts.get(tier, 0))
    rows, size, most = sum(counts.values()), sum(sizes.values()), max(counts.values())
    mean = rows / total
    words = f"<p>{rows:,} {'row' if rows == 1 else 'rows'}, {in_bytes(size)}"
    if mean < _ENOUGH:
        words += f": too few for {total:,} buckets to say whether they lie evenly.</p>"
        return words + _hot(found, table, rows) + _changes(found, table)
    by_chance = mean + 4 * mean**0.5  # what the fullest of some thousand buckets comes to
    judged = "as chance has it" if most <= by_chance else f"by chance at most {by_chance:,.0f}"
    words += (
        f"; {mean:,.1f} rows per bucket, the fullest has {most:,} "
        f"({most / mean:,.1f}× the mean, {judged}), {total - len(counts):,} of {total:,} are "
        "empty.</p><p class=dim>One cell for each bucket: the more rows, the deeper its colour.</p>"
    )
    plot = cells([counts.get(bucket, 0) for bucket in range(1, total + 1)], most)
    owners = _by_owner(found, tier, counts, sizes)
    return words + plot + owners + _hot(found, table, rows) + _changes(found, table)


def _by_owner(found: Findings, tier: str, counts: dict[int, int], sizes: dict[int, int]) -> str:
    sums: dict[str, list[int]] = {}
    for row in found.ownership:
        if row["tier"] != tier:
            continue
        mine = sums.setdefault(row["replicaset"], [0, 0])
        for bucket in range(row["start"], row["end"] + 1):
            mine[0] += counts.get(bucket, 0)
            mine[1] += sizes.get(bucket, 0)
    total = sum(rows for rows, _ in sums.values()) or 1
    rows = [
        (_name(found, uuid), f"{rows:,}", f"{100 * rows / total:.1f} %", in_bytes(size))
        for uuid, (rows, size) in sorted(sums.items(), key=lambda item: _name(found, item[0]))
    ]
    return table_of(("replicaset", "rows", "share", "size"), rows, (1, 2, 3))


def _hot(found: Findings, table: str, total: int) -> str:
    keys = found.hot_keys.get(table, [])
    if not keys:
        return "<p class=dim>Every distribution key has one row: there are no hot keys.</p>"
    return "<h3>Hottest keys</h3>" + bars(
        [(key, rows, f"{rows:,} rows, {100 * rows / total:.1f} %") for key, rows in keys]
    )


def _changes(found: Findings, table: str) -> str:
    """Keys that are written again and again, from the row log."""
    seen, keys = found.changed_keys.get(table, (0, []))
    if not seen:
        return ""
    if not keys:
        some = (
            f"None of the last {seen:,} changes was of the same row" if seen > 1 else "One change"
        )
        return f"<p class=dim>{some}.</p>"
    most = keys[0][1]
    if len(keys) > 1 and most == keys[-1][1]:  # of many that are equal, ten say nothing
        return (
            f"<p class=dim>No row stands out in the last {seen:,} changes: none was changed more "
            f"than {most:,} times.</p>"
        )
    return f"<h3>Most changed rows, of the last {seen:,} changes</h3>" + bars(
        [(key, count, f"{count:,} changes, {100 * count / seen:.1f} %") for key, count in keys]
    )


# --- what is slow ---------------------------------------------------------------------------------


def lags(found: Findings) -> str:
    if not found.links:
        return "<p class=dim>No instance follows another: there are no replicas.</p>"
    rows = [
        (
            row["instance"], row["upstream"], row["state"], f"{row['lag_rows']:,}",
            "—" if row["lag_s"] is None else in_time(row["lag_s"]), row["problem"] or "",
        )
        for row in found.links
    ]  # fmt: skip
    return table_of(
        ("replica", "follows", "state", "records behind", "for", "problem"), rows, (3, 4)
    )


def slow(found: Findings) -> str:
    if not found.lasting:
        return "<p class=dim>Nothing of that is kept.</p>"
    rows = [
        (
            row["kind"], row["what"], f"{row['began']:%Y-%m-%d %H:%M:%S}",
            "under way" if row["is_under_way"] else in_time(row["seconds"]), row["state"],
        )
        for row in found.lasting[:_SLOWEST]
    ]  # fmt: skip
    return table_of(("kind", "what", "began", "took", "ended"), rows, (3,), long=1)
