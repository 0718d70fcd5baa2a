"""`python -m cairn.sim.cluster`."""

import sys

from cairn.sim.cluster.main import main

if __name__ == "__main__":
    sys.exit(main())
