"""The governor: brings every instance from its current grade to its target grade."""
