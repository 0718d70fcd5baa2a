"""What the Raft log and the row log say, and what applying them did."""
