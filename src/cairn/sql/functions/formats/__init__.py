"""Patterns of to_char, to_date, to_number and their kind."""
