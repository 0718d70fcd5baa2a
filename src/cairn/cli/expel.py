"""`cairn expel`: an instance leaves for good."""

from __future__ import annotations

from cairn.cli.talking import Talk, Target


def run_expel(
    instance: str, dsn: str | None, password_file: str | None, *, force: bool, timeout_s: float
) -> int:
    talk = Talk(Target(dsn, password_file))
    name = instance.replace("'", "''")
    try:
        answer = talk.call(
            f"CALL cairn_expel('{name}', {'true' if force else 'false'}, {timeout_s})",
            timeout_s + 5.0,
        )
    finally:
        talk.close()
    print(f"{answer['expelled']} is expelled")
    if answer.get("lost_buckets"):
        ranges = ", ".join(answer["lost_buckets"])
        print(f"the rows of buckets {ranges} are lost; others own these buckets now, empty")
    return 0
