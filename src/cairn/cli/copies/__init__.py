"""Backups and what is put back from them."""
