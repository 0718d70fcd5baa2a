"""A statement without its literals: what is the same but for its values is one statement.

Only the beginning is read, by one pattern: texts may be long, and this is for people to look at.
Literals become parameters, so that the result can be explained again; lists become short.
"""

from __future__ import annotations

import re

MOST = 2_000  # characters that are looked at

_TOKEN = re.compile(
    r"""
      (?P<blank>(?:\s+|--[^\n]*\n?|/\*.*?(?:\*/|\Z))+)
    | (?P<quoted>"[^"]*(?:""[^"]*)*(?:"|\Z))
    | (?P<literal>[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)
        | [xXbB]?'[^']*(?:''[^']*)*(?:'|\Z)
        | \$(?P<tag>(?:[A-Za-z_\u0080-\uffff]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)
        | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<param>\$\d+)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ROW = r"\((?:[^()]|\([^()]*\))*\)"
_LIST = re.compile(r"(\bin ?\( ?\$\d+)(?: ?, ?\$\d+)+ ?\)", re.IGNORECASE)
_ROWS = re.compile(rf"(\bvalues ?{_ROW})(?: ?, ?{_ROW})+(?: ?,[^)]*\Z)?", re.IGNORECASE)


def normalized(text: str) -> str:
    text = text[:MOST]
    number = max((int(each) for each in re.findall(r"\$(\d{1,5})", text)), default=0)
    made: list[str] = []
    for token in _TOKEN.finditer(text):
        kind, found = token.lastgroup, token.group()
        if kind == "blank":
            made.append(" ")
        elif kind in ("literal", "tag"):
            number += 1
            made.append(f"${number}")
        else:
            made.append(found)
    short = _LIST.sub(r"\1 /*, … */)", "".join(made))
    return _ROWS.sub(r"\1 /*, … */", short).strip().rstrip("; ")
