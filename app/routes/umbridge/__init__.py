"""UM-Bridge 1.0, at the root."""
