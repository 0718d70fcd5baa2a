"""From a command line to a member of the cluster, and back."""
