"""Queries to typed IR: FROM, joins, sets, groups, recursion."""
