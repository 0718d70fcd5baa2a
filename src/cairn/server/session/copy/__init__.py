"""COPY FROM STDIN: rows in bulk, and the table that they fill."""
