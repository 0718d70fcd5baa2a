"""`data.db`: rows of sharded tables, and the log of what was done to them."""
