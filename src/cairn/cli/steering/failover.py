"""`cairn pause` and `cairn resume`: whether a silent master is replaced by itself."""

from __future__ import annotations

import json

from cairn.cli.talking import Talk, Target


def run_failover(
    dsn: str | None, password_file: str | None, *, automatic: bool, as_json: bool
) -> int:
    talk = Talk(Target(dsn, password_file))
    try:
        before = talk.call("CALL cairn_status()")["automatic_failover"]
        talk.rows(f"ALTER SYSTEM SET automatic_failover = {'true' if automatic else 'false'}")
    finally:
        talk.close()
    if as_json:
        print(json.dumps({"automatic_failover": automatic, "was": before}))
        return 0
    again = " already" if before == automatic else ""
    if automatic:
        print(f"automatic failover is on{again}")
    else:
        print(f"automatic failover is paused{again}; cairn resume when the work is done")
    return 0
