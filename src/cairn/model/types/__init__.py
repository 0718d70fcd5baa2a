"""The types of columns: values, their physical form, and how people write them."""
