"""The report as one self-contained HTML page: plots drawn as SVG, no script, no network."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Any

from cairn.spark.analytics import Findings

_COLOURS = ("#2f6f9f", "#d08b2c", "#5a9e6f", "#9b5fa5", "#b5524d", "#4d8f97", "#8a7a3b", "#6b6f8a")
_STATES = {"Online": "#5a9e6f", "Offline": "#d9534f", "Expelled": "#777777", "Gone": "#bbbbbb"}
_WIDTH, _LEFT, _ROW = 900, 110, 26
_CSS = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.6rem;margin-bottom:0} h2{font-size:1.15rem;margin-top:2.2rem} .dim{color:#777}
table{border-collapse:collapse;font-size:13px} td,th{padding:.25rem .8rem;text-align:left;
border-bottom:1px solid #e5e5e5} svg{max-width:100%;height:auto} svg text{font:12px system-ui}
.cards{display:flex;gap:1rem;flex-wrap:wrap;margin-top:1rem}.card{background:#f5f5f2;padding:.6rem
1.1rem;border-radius:6px}.card b{display:block;font-size:1.4rem}
"""


def page(found: Findings) -> str:
    parts = [
        f"<h1>Cluster report</h1><p class=dim>{escape(found.cluster)} · "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>",
        _cards(found),
        "<h2>Availability</h2>" + timeline(found),
        "<h2>Failovers</h2>" + _failovers(found),
        "<h2>Buckets by replicaset</h2>" + ownership(found),
        *(f"<h2>Rows of {escape(name)}</h2>{heat(found, name)}" for name in found.skew),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Cluster report</title>"
        f"<style>{_CSS}</style></head><body>{''.join(parts)}"
        "<p class=dim>Ordered by Raft position; times are the proposers' clocks, to the second."
        "</p></body></html>\n"
    )


def _cards(found: Findings) -> str:
    instances = {row["instance_uuid"] for row in found.intervals}
    rows = sum(count for skew in found.skew.values() for _, count in skew)
    facts = [
        (len(instances), "instances seen"),
        (len({row["replicaset"] for row in found.ownership}), "replicasets"),
        (len(found.failovers), "failovers"),
        (len(found.moves), "bucket moves"),
        (f"{rows:,}", "rows"),
    ]
    cards = "".join(f"<div class=card><b>{value}</b>{label}</div>" for value, label in facts)
    return f"<div class=cards>{cards}</div>"


# --- availability ---------------------------------------------------------------------------------


def timeline(found: Findings) -> str:
    """One bar for each instance: what it was, from when to when."""
    if not found.intervals:
        return "<p class=dim>No events.</p>"
    names: dict[str, str] = {}
    for row in found.intervals:
        names[row["instance_uuid"]] = found.names.get(
            row["instance_uuid"], row["instance_uuid"][:8]
        )
    begin = min(row["ts"] for row in found.intervals)
    end = max([row["until"] or row["ts"] for row in found.intervals] + [_now(begin)])
    scale = (_WIDTH - _LEFT - 10) / max((end - begin).total_seconds(), 1.0)
    order = sorted(names, key=lambda uuid: names[uuid])
    shapes = [
        f'<text x="0" y="{at * _ROW + 17}">{escape(names[uuid])}</text>'
        for at, uuid in enumerate(order)
    ]
    for row in found.intervals:
        start = (row["ts"] - begin).total_seconds()
        stop = ((row["until"] or end) - begin).total_seconds()
        y = order.index(row["instance_uuid"]) * _ROW + 4
        shapes.append(
            f'<rect x="{_LEFT + start * scale:.1f}" y="{y}" height="18" rx="2" '
            f'width="{max((stop - start) * scale, 1.5):.1f}" '
            f'fill="{_STATES.get(row["state"], "#d9b64f")}">'
            f"<title>{escape(row['state'])} {row['ts']:%H:%M:%S} at {row['term']}:{row['index']}"
            "</title></rect>"
        )
    height = len(order) * _ROW + 26
    shapes += _axis(begin, end, height)
    legend = " ".join(
        f'<span style="color:{colour}">■</span> {state}' for state, colour in _STATES.items()
    )
    return _svg(height, shapes) + f"<p class=dim>{legend}</p>" + _shares(found, end)


def _now(like: datetime) -> datetime:
    now = datetime.now(UTC)
    return now if like.tzinfo is not None else now.replace(tzinfo=None)


def _axis(begin: datetime, end: datetime, height: int) -> list[str]:
    marks = []
    for step in range(5):
        at = begin + (end - begin) * step / 4
        x = _LEFT + (_WIDTH - _LEFT - 10) * step / 4
        anchor = "start" if step == 0 else "end" if step == 4 else "middle"
        marks.append(
            f'<text x="{x:.0f}" y="{height - 6}" fill="#777" text-anchor="{anchor}">'
            f"{at:%m-%d %H:%M:%S}</text>"
        )
    return marks


def _shares(found: Findings, end: datetime) -> str:
    rows = []
    for uuid in dict.fromkeys(row["instance_uuid"] for row in found.intervals):
        mine = [row for row in found.intervals if row["instance_uuid"] == uuid]
        spans = [(r["state"], ((r["until"] or end) - r["ts"]).total_seconds()) for r in mine]
        total = sum(span for _, span in spans) or 1.0
        online = sum(span for state, span in spans if state == "Online")
        name = found.names.get(uuid, uuid[:8])
        rows.append((name, f"{100 * online / total:.2f} %", len(mine) - 1, mine[-1]["state"]))
    return _table(("instance", "online", "changes", "now"), sorted(rows))


def _failovers(found: Findings) -> str:
    if not found.failovers:
        return "<p class=dim>No master was ever replaced.</p>"
    rows = []
    for row in found.failovers:
        name = found.names.get
        took = row["seconds"]
        rows.append(
            (
                name(row["replicaset_uuid"], row["replicaset_uuid"][:8]),
                f"{name(row['before'], row['before'][:8])} → "
                f"{name(row['master'], row['master'][:8])}",
                f"{row['ts']:%Y-%m-%d %H:%M:%S}",
                "—" if took is None else f"{took:.0f} s",
                f"{row['term']}:{row['index']}",
            )
        )
    return _table(("replicaset", "master", "when", "told gone before", "position"), rows)


# --- buckets and rows -----------------------------------------------------------------------------


def ownership(found: Findings) -> str:
    """How many buckets each replicaset has, and where they lie."""
    uuids = sorted({row["replicaset"] for row in found.ownership}, key=lambda u: _name(found, u))
    totals = dict.fromkeys(uuids, 0)
    shapes = []
    count = max((row["end"] for row in found.ownership), default=1)
    scale = (_WIDTH - _LEFT - 80) / count
    for row in found.ownership:
        totals[row["replicaset"]] += row["end"] - row["start"] + 1
        y = uuids.index(row["replicaset"]) * _ROW + 4
        shapes.append(
            f'<rect x="{_LEFT + (row["start"] - 1) * scale:.1f}" y="{y}" height="18" '
            f'width="{max((row["end"] - row["start"] + 1) * scale, 1):.1f}" '
            f'fill="{_COLOURS[uuids.index(row["replicaset"]) % len(_COLOURS)]}">'
            f"<title>{row['tier']} {row['start']}–{row['end']}</title></rect>"
        )
    for at, uuid in enumerate(uuids):
        shapes.append(f'<text x="0" y="{at * _ROW + 17}">{escape(_name(found, uuid))}</text>')
        shapes.append(
            f'<text x="{_WIDTH}" y="{at * _ROW + 17}" text-anchor="end">{totals[uuid]:,}</text>'
        )
    return _svg(len(uuids) * _ROW + 6, shapes)


def _name(found: Findings, uuid: str) -> str:
    return found.names.get(uuid, uuid[:8])


def heat(found: Findings, table: str) -> str:
    """Rows of every bucket as a field of cells, and the skew in numbers."""
    counts = dict(found.skew[table])
    if not counts:
        return "<p class=dim>The table is empty.</p>"
    total = max(max(counts), max(found.bucket_counts.values(), default=0))
    across, size = 100, 8.8
    most = max(counts.values())
    shapes = [
        f'<rect x="{(bucket - 1) % across * size:.1f}" y="{(bucket - 1) // across * size:.1f}" '
        f'width="8" height="8" fill="{_shade(counts.get(bucket, 0) / most)}">'
        f"<title>bucket {bucket}: {counts.get(bucket, 0):,} rows</title></rect>"
        for bucket in range(1, total + 1)
    ]
    rows = sum(counts.values())
    mean = rows / total
    words = (
        f"<p>{rows:,} rows, {mean:.1f} per bucket; fullest {most:,} "
        f"({most / mean:.1f}× the mean), {total - len(counts):,} empty.</p>"
    )
    return (
        _svg(int((total - 1) // across * size + size + 2), shapes)
        + words
        + _by_owner(found, counts)
    )


def _by_owner(found: Findings, counts: dict[int, int]) -> str:
    sums: dict[str, int] = {}
    for row in found.ownership:
        inside = sum(counts.get(bucket, 0) for bucket in range(row["start"], row["end"] + 1))
        sums[row["replicaset"]] = sums.get(row["replicaset"], 0) + inside
    total = sum(sums.values()) or 1
    rows = [
        (_name(found, uuid), f"{count:,}", f"{100 * count / total:.1f} %")
        for uuid, count in sorted(sums.items(), key=lambda item: _name(found, item[0]))
    ]
    return _table(("replicaset", "rows", "share"), rows)


def _shade(share: float) -> str:
    """From paper to deep blue."""
    mix = [round(a + (b - a) * share) for a, b in ((244, 23), (243, 78), (238, 121))]
    return f"#{mix[0]:02x}{mix[1]:02x}{mix[2]:02x}"


def _svg(height: int, shapes: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">{"".join(shapes)}</svg>'


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    top = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
