"""Tesseract, served under ``/tesseract``."""
