"""The `cairn` command. `run` is taken first: its parent process must stay small."""

from __future__ import annotations

import io
import signal
import sys


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "run":
        from cairn.cli.instance.run import main as run

        sys.exit(run(sys.argv[2:]))
    from cairn.cli.stopping import stop_at_once

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_at_once)
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no "·" shows a "?" for it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    from cairn.cli.app import app

    app(prog_name="cairn")


if __name__ == "__main__":
    main()
