"""`CALL cairn_…(…)`: what is asked of the cluster itself, and the doors of Spark."""
