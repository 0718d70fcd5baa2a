"""Expressions to typed IR: operators, functions, comparisons, arrays, times."""
