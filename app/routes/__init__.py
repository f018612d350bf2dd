"""The routes, one file a concern: catalogue, derivatives, health."""
