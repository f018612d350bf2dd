"""The Open Inference Protocol v2, served under ``/v2``."""
