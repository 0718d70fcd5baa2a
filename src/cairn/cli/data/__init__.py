"""Tables to and from files, through Spark."""
