"""What people may set: parameters of sessions, settings of the cluster, limits, DSNs."""
