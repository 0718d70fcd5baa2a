"""The `cairn` command. `run` is taken first: its parent process must stay small."""

from __future__ import annotations

import sys


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "run":
        from cairn.cli.instance.run import main as run

        sys.exit(run(sys.argv[2:]))
    from cairn.cli.app import app

    app(prog_name="cairn")


if __name__ == "__main__":
    main()
