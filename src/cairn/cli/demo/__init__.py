"""A real cluster on this machine, for trying and for tests."""
