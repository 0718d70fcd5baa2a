"""Statements where their rows are: reads with a lease, writes through the writer."""
