"""Batch and streaming writes: direct, staged and through the Raft log."""
