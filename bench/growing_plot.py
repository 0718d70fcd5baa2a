"""The picture of a recorded run: latency and buckets over time, with what was done and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from math import log10

WIDTH, LEFT, RIGHT = 960, 56, 16
LATENCY = (48, 236)  # top and bottom of a panel
BUCKETS = (290, 478)
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")
GREY = "#718096"


@dataclass(frozen=True)
class Second:
    """One second of the run. Latencies in ms; 0 when nobody was answered."""

    at: float
    p50: float
    p99: float
    longest: float
    buckets: dict[str, int]


@dataclass(frozen=True)
class Event:
    at: float
    words: str


def picture(seconds: list[Second], events: list[Event], title: str) -> str:
    end = max(each.at for each in seconds)

    def x(at: float) -> float:
        return LEFT + at / end * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 640" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="640" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    parts += _latency(seconds, x)
    parts += _buckets(seconds, x)
    parts += _events(events, x)
    for at in range(0, int(end) + 1, 30):
        parts.append(f'<text x="{x(at):.0f}" y="494" text-anchor="middle">{at} s</text>')
    return "\n".join([*parts, "</svg>\n"])


def _latency(seconds: list[Second], x: Callable[[float], float]) -> list[str]:
    """A scale of powers of ten: 1 ms at the bottom, 10 s at the top."""
    top, bottom = LATENCY

    def y(ms: float) -> float:
        return bottom - (bottom - top) * min(max(log10(max(ms, 1.0)) / 4, 0.0), 1.0)

    parts = [f'<text x="{LEFT}" y="{top - 8}">latency of all clients</text>']
    for ms, name in ((1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1000, "1 s"), (10_000, "10 s")):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(ms):.0f}" y2="{y(ms):.0f}" '
            f'stroke="#e2e8f0"/>'
            f'<text x="{LEFT - 6}" y="{y(ms) + 4:.0f}" text-anchor="end">{name}</text>'
        )
    for at, (name, value) in enumerate(
        (("p50", lambda s: s.p50), ("p99", lambda s: s.p99), ("longest", lambda s: s.longest))
    ):
        points = " ".join(f"{x(s.at):.1f},{y(value(s)):.1f}" for s in seconds if value(s))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[at]}" stroke-width="1.3"/>'
            f'<text x="{WIDTH - RIGHT - 160 + 52 * at}" y="{top - 8}" '
            f'fill="{COLOURS[at]}">{name}</text>'
        )
    return parts


def _buckets(seconds: list[Second], x: Callable[[float], float]) -> list[str]:
    top, bottom = BUCKETS
    names = sorted({name for each in seconds for name in each.buckets})
    most = max(max(each.buckets.values(), default=1) for each in seconds)
    parts = [f'<text x="{LEFT}" y="{top - 8}">buckets of each replicaset</text>']
    for count in range(0, most + 1, 500):
        y = bottom - (bottom - top) * count / most
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}" stroke="#e2e8f0"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{count}</text>'
        )
    for at, name in enumerate(names):
        points = " ".join(
            f"{x(s.at):.1f},{bottom - (bottom - top) * s.buckets[name] / most:.1f}"
            for s in seconds
            if name in s.buckets
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[at]}" stroke-width="1.8"/>'
            f'<text x="{WIDTH - RIGHT - 240 + 84 * at}" y="{top - 8}" '
            f'fill="{COLOURS[at]}">{name}</text>'
        )
    return parts


def _events(events: list[Event], x: Callable[[float], float]) -> list[str]:
    parts = []
    for number, event in enumerate(events, start=1):
        at = x(event.at)
        column, line = divmod(number - 1, 8)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{LATENCY[0]}" y2="{BUCKETS[1]}" '
            f'stroke="{GREY}" stroke-dasharray="3 3"/>'
            f'<text x="{at:.1f}" y="{LATENCY[1] + 14 + 12 * (number % 2)}" text-anchor="middle" '
            f'font-size="10" fill="{GREY}">{number}</text>'
            f'<text x="{LEFT + 440 * column}" y="{514 + 16 * line}">'
            f"{number}. {event.at:.0f} s: {escape(event.words)}</text>"
        )
    return parts
