"""SQLite files as files: opening, one writer each, checksums, pages, copies, temporary files."""
