"""Schema changes, read from tokens: tables, indexes, views, procedures."""
