"""Changes of rows that every instance has: planned here, proposed to Raft."""
