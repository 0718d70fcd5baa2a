"""Statements about users, roles and their rights, read from tokens."""
