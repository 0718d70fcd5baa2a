"""Buckets that move: who gets what, how ranges split, each step as an entry, what a delta holds."""
