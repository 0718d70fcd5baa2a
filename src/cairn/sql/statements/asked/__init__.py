"""SELECTs of functions that only a session or the cluster can carry out, read from tokens."""
