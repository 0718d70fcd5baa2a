"""Statements of all kinds of callers: contexts, rights, reads, writes, changes of schema."""
