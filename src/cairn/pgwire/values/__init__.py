"""Values of every type in PostgreSQL's text and binary forms."""
