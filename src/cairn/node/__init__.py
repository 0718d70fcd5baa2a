"""One instance: runners that feed the cores and carry out what they ask."""
