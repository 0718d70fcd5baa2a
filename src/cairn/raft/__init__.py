"""Consensus as a core that decides and touches nothing: see `core.RaftCore`."""
