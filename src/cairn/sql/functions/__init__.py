"""The functions that Cairn adds to SQLite."""
