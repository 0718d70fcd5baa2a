"""What the leader does to bring the cluster to its targets: governor, queue, moves of buckets."""
