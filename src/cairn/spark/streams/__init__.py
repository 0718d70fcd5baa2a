"""Streams of changes of tables, and of topology events."""
