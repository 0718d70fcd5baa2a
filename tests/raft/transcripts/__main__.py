"""`python -m tests.raft.transcripts`: play every script again and write down what happens now."""

from __future__ import annotations

from .teller import SCRIPTS, retell


def main() -> None:
    for path in SCRIPTS:
        before = path.read_text()
        after = retell(before)
        path.write_text(after)
        print(f"{'same   ' if after == before else 'CHANGED'} {path.name}")


if __name__ == "__main__":
    main()
