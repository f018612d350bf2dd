"""The native API under ``/v1``, with health, metrics and documentation."""
