"""SQL by hand: psql where it is installed, else a small shell of our own."""
