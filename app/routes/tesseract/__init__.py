"""Tesseract, under ``/tesseract``."""
