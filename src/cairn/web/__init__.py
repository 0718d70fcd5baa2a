"""The HTTP face: probes, metrics, the cluster as JSON and as a page."""
