"""Shorter ways for what comes often, or together: one row by its key, and many of one statement."""
