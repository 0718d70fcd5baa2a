"""What tools ask of the catalogues of PostgreSQL."""
