"""Queries said in another way, with the same answer, so that the owners do more of them."""
