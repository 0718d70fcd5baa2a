"""jsonpath: its text to a tree, and the tree over JSON."""
