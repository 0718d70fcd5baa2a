"""Instances that are far from each other: every byte between them is late, and some later."""
