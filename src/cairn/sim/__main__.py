"""`python -m cairn.sim --seeds A-B`."""

from cairn.sim.main import main

if __name__ == "__main__":
    raise SystemExit(main())
