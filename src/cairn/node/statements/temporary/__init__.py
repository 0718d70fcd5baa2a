"""Temporary tables: what a session has of its own, and statements that change it."""
