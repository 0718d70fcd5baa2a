"""Small plots as SVG. Colours are names of the page's CSS variables, so they follow its theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

_WIDTH, _LEFT, _RIGHT, _ROW = 900, 110, 10, 26
_SEEN = 4.0  # the least width of what held for a moment: an outage of seconds in a month
Bar = Sequence[Any]  # begin, end, colour, title, and words inside if there is room


def _svg(height: float, shapes: Sequence[str], kind: str = "plot") -> str:
    box = f'class={kind} viewBox="0 0 {_WIDTH} {height:.0f}" role="img"'
    return f"<div class=wide><svg {box}>{''.join(shapes)}</svg></div>"


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
        f'style="fill:var(--{colour})"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(words)}</text>'


def _label(at: int, words: str) -> str:
    """In the left margin, cut to what fits there."""
    short = words if len(words) <= 15 else words[:14] + "…"
    return f"<g><title>{escape(words)}</title>{_text(0, at * _ROW + 17, short)}</g>"


def legend(words: Mapping[str, str]) -> str:
    keys = "".join(
        f'<span class=key style="background:var(--{colour})"></span>{escape(word)}'
        for word, colour in words.items()
    )
    return f"<p class=dim>{keys}</p>"


def lanes(rows: Sequence[tuple[str, Sequence[Bar]]], begin: datetime, end: datetime) -> str:
    """One lane for each name, with what held from when to when."""
    span = max((end - begin).total_seconds(), 1.0)
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    shapes = []
    for at, (name, bars_) in enumerate(rows):
        shapes.append(_label(at, name))
        for bar in sorted(bars_, key=lambda each: each[0] - each[1]):  # short ones lie on top
            width = max((bar[1] - bar[0]).total_seconds() * scale, _SEEN)
            x = min(_LEFT + (bar[0] - begin).total_seconds() * scale, _WIDTH - _RIGHT - width)
            shapes.append(_rect(x, at * _ROW + 4, width, 18, bar[2], bar[3]))
            if len(bar) > 4 and width > 8 * len(bar[4]):
                inside = escape(bar[4])
                shapes.append(
                    f'<text x="{x + 6:.1f}" y="{at * _ROW + 17}" style="fill:var(--paper)">'
                    f"{inside}</text>"
                )
    height = len(rows) * _ROW + 24
    return _svg(height, shapes + _axis(begin, end, height))


def _axis(begin: datetime, end: datetime, height: float) -> list[str]:
    day = "%m-%d " if begin.date() != end.date() else ""
    marks = []
    for step in range(5):
        at = begin + (end - begin) * step / 4
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / 4
        anchor = "start" if step == 0 else "end" if step == 4 else "middle"
        marks.append(_text(x, height - 4, at.strftime(f"{day}%H:%M:%S"), anchor, "dim"))
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{height - 22}" y2="{height - 17}"/>')
    return marks


def segments(rows: Sequence[tuple[str, Sequence[Bar], str]], count: int) -> str:
    """Ranges of numbers up to `count`, a row for each name and its total at the right."""
    scale = (_WIDTH - _LEFT - 70) / max(count, 1)
    shapes = []
    for at, (name, parts, total) in enumerate(rows):
        shapes.append(_label(at, name))
        shapes.append(_text(_WIDTH, at * _ROW + 17, total, "end"))
        shapes += [
            _rect(_LEFT + low * scale, at * _ROW + 4, max((high - low) * scale, 1), 18, *rest)
            for low, high, *rest in parts
        ]
    return _svg(len(rows) * _ROW + 6, shapes)


def strip(values: Sequence[tuple[int, str]], begin: datetime, end: datetime) -> str:
    """Amounts over time."""
    most = max([value for value, _ in values] + [1])
    width = (_WIDTH - _LEFT - _RIGHT) / len(values)
    shapes = [
        _rect(_LEFT + at * width, 44 - 40 * value / most, max(width - 1, 1), 40 * value / most,
              "c0", title)
        for at, (value, title) in enumerate(values)
        if value
    ]  # fmt: skip
    return _svg(70, [*shapes, *_axis(begin, end, 68)])


def bars(values: Sequence[tuple[str, int, str]]) -> str:
    """Names with amounts, most first."""
    most = max([value for _, value, _ in values] + [1])
    scale = (_WIDTH - _LEFT - 180) / most
    shapes = []
    for at, (name, value, words) in enumerate(values):
        width = max(value * scale, 1.5)
        shapes.append(_label(at, name))
        shapes.append(_rect(_LEFT, at * _ROW + 4, width, 18, "c0", f"{name}: {words}"))
        shapes.append(_text(_LEFT + width + 8, at * _ROW + 17, words, kind="dim"))
    return _svg(len(values) * _ROW + 4, shapes)


def cells(values: Sequence[int], most: int) -> str:
    """A field of buckets; the more rows, the deeper the colour."""
    across, size = 100, _WIDTH / 100
    shapes = []
    for at, value in enumerate(values):
        share = value / most if most else 0.0
        # The square root keeps a few full buckets from making all others look empty.
        style = f"fill:var(--hot);fill-opacity:{0.12 + 0.88 * share**0.5:.2f}"
        if value == 0:
            style = "fill:var(--empty)"
        shapes.append(
            f'<rect x="{at % across * size:.1f}" y="{at // across * size:.1f}" width="8" '
            f'height="8" style="{style}"><title>bucket {at + 1}: {value:,} rows</title></rect>'
        )
    return _svg((len(values) - 1) // across * size + size, shapes, "field")
