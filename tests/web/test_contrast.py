"""Text of the console can be read: contrasts of WCAG 2 AA, in both themes."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("cairn.web") / "static" / "console.css").read_text()
GROUNDS = {
    "text": ("ground", "card", "info-ground", "good-ground", "warn-ground", "bad-ground"),
    "mute": ("ground", "card"),
    "accent": ("ground", "card"),
    "accent-text": ("accent",),
    "good": ("card", "ground", "good-ground"),
    "warn": ("card", "ground", "warn-ground"),
    "bad": ("card", "ground", "bad-ground"),
    "info": ("info-ground",),
}
PAIRS = [(text, ground, 4.5) for text, grounds in GROUNDS.items() for ground in grounds]
PAIRS += [(f"c{number}", "card", 3.0) for number in range(8)]


def theme(name: str) -> dict[str, str]:
    block = re.search(rf"{re.escape(name)} {{(.*?)}}", CSS, re.DOTALL)
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[1]))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", [":root", ':root[data-theme="dark"]'], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(name: str) -> None:
    colours = theme(name)
    weak = {}
    for text, ground, least in PAIRS:
        light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        contrast = (light + 0.05) / (dark + 0.05)
        if contrast < least:
            weak[text, ground] = round(contrast, 2)
    assert weak == {}
