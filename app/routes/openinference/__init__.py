"""The Open Inference Protocol v2, under ``/v2``."""
