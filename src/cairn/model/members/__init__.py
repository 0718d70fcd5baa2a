"""Instances, replicasets, tiers and who owns which buckets; and the events that tell of changes."""
