"""One client: its connection, and the parts that answer its requests."""
