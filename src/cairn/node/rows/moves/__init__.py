"""Moves of buckets as instances carry them out: `moving` takes, `giving` gives, `sweeping` deletes
rows that no move remembers, `held` waits for replicas."""
