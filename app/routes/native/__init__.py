"""The native API, served under ``/v1``, with health, metrics and documentation."""
