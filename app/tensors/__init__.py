"""Tensors on the wire and as NumPy arrays: one file a format, one table of dtypes, one place for casts and losses."""
