"""PostgreSQL for the tests that compare with it."""

from .postgres import both, postgres

__all__ = ["both", "postgres"]
