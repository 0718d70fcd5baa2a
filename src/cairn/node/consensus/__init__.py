"""The Raft group as an instance runs it: log, proposals, snapshots, the picture of the cluster."""
