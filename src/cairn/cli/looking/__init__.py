"""What the cluster is and does, for whoever looks."""
