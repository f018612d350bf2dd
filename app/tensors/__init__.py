"""Conversion between tensors on the wire and NumPy arrays: a module per format, the dtype table, and casts."""
