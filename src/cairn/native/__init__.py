"""What is written in C: rows in bulk, without an object of Python for any value.

All of it has a twin in Python that is slower and says what is wrong. C takes only what is plain,
and gives the rest back. Where no compiler was at hand when Cairn was installed, the twin does all.
"""
