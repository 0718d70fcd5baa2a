"""Workloads that people run first on a new database: their tables, rows and statements."""
