"""Rows on one instance: who may write, leases, replicas, moves."""
