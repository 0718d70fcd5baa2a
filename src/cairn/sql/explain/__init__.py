"""EXPLAIN: a plan as people and drivers read it."""
