"""What changes the cluster: members, masters, buckets, tiers."""
