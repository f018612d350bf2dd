"""UM-Bridge 1.0, served at the root."""
