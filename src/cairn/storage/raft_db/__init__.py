"""`raft.db`: the Raft log and the global tables that its entries make."""
