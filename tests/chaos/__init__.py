"""Real processes under blows, and a load that does not commute: `python -m tests.chaos --help`."""
