"""Rows for COPY and Spark: scans, worker processes, Arrow."""
