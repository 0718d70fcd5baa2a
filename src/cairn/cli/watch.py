"""`cairn watch`: topology events on the terminal as they are committed."""

from __future__ import annotations

import json
from typing import Any

from cairn.cli.talking import Talk, Target


def run_watch(dsn: str | None, password_file: str | None, *, as_json: bool) -> int:
    talk = Talk(Target(dsn, password_file), {"smart_connector": "0.2"})
    try:
        while True:
            for text in talk.wait_notices(3600.0):
                event = json.loads(text)
                if as_json:
                    print(text, flush=True)
                elif event["map"] != "heartbeat":
                    print(_line(event), flush=True)
    except KeyboardInterrupt:
        return 0
    finally:
        talk.close()


def _line(event: dict[str, Any]) -> str:
    raft = event.get("raft") or {}
    place = f"{raft.get('term', '')}:{raft.get('index', '')}".rjust(8)
    rest = {
        key: value
        for key, value in event.items()
        if key not in ("op", "map", "timestamp", "raft", "n", "last")
    }
    words = " ".join(f"{key}={_short(value)}" for key, value in rest.items())
    return f"{event.get('timestamp', '')} {place} {event.get('op', ''):8}{event['map']:13}{words}"


def _short(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{value['start']}–{value['end']}"
    return value if isinstance(value, str) else json.dumps(value)
