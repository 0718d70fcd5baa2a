"""Keys to buckets, and sets of buckets."""
