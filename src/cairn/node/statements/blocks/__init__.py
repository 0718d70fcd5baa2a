"""Blocks of statements that are all or nothing."""
