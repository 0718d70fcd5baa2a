"""SQLite files: the Raft log with the global tables, and the rows with their log."""
