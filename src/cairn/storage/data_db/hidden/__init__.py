"""Indexes that are filled before anybody sees them."""
