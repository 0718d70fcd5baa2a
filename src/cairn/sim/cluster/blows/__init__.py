"""What happens to a simulated cluster while clients work."""
