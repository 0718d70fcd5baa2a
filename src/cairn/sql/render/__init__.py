"""IR to SQLite's SQL, plans as EXPLAIN shows them, and SQLite's errors in our words."""
