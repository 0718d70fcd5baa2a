"""The PostgreSQL face of an instance: listener, sessions, statements."""
