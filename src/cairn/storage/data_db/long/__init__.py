"""Statements that change more than one record of the log can tell."""
