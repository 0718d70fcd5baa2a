"""Rows from one instance to another: who sends what, and what may be applied when."""
