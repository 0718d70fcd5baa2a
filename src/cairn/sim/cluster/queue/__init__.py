"""Migrations of the governor's queue under kills."""
