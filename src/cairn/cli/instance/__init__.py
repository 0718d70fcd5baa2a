"""One instance: its flags, and the process that looks after it. Standard library only."""
