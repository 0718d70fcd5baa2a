"""The report: what histories and tables say about a cluster, as one page."""
