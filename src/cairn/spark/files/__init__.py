"""Files in and out: loading, and copies of tables that follow their changes."""
